"""The statuses of a configuration, and the exit code they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from fmha.harness.errors import ExitCode


class Status(StrEnum):
    """What came of a configuration."""

    PASS = "pass"
    FAIL = "fail"
    HAZARD = "hazard"
    TIMEOUT = "timeout"
    CRASH = "crash"
    BUILD_ERROR = "build-error"
    ADAPTER_ERROR = "adapter-error"
    INFRA_ERROR = "infra-error"
    NOT_RUN = "not-run"


OF_THE_KERNEL = frozenset({Status.FAIL, Status.HAZARD, Status.TIMEOUT, Status.CRASH, Status.BUILD_ERROR})
RED = OF_THE_KERNEL | {Status.ADAPTER_ERROR}


def exit_code(statuses: Iterable[Status]) -> ExitCode:
    """The exit code of a run.

    Evidence against the kernel comes first (1), then an adapter that is wrong itself (2), failed machinery (3), and
    gaps (4): a red configuration stays red whatever happened to the others. No configurations at all is a usage error,
    never a success.
    """
    seen = set(statuses)
    if not seen:
        return ExitCode.USAGE
    if seen & OF_THE_KERNEL:
        return ExitCode.GATE_FAILED
    if Status.ADAPTER_ERROR in seen:
        return ExitCode.USAGE
    if Status.INFRA_ERROR in seen:
        return ExitCode.INFRASTRUCTURE
    if Status.NOT_RUN in seen:
        return ExitCode.INCOMPLETE
    return ExitCode.PASS
