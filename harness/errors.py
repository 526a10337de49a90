"""The errors a user is meant to read, and the exit codes of `fmha`. `fmha.harness.cli` maps one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What `fmha` tells its caller. 130 and the like are never used: an interrupted run is an incomplete one."""

    PASS = 0
    GATE_FAILED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INCOMPLETE = 4


class FmhaError(Exception):
    """An expected failure: what happened, where it happened, and what to do next, in one line."""

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.next_step = next_step
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {next_step}" if next_step else text)


class UserError(FmhaError):
    """The request cannot be met as it was asked."""


class ConfigError(UserError):
    """A configuration file is wrong: one line a problem, each with its file, line and field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ChoiceError(UserError):
    """A commit's own code failed when it was asked which build runs a configuration; the message has its words."""


class CommitError(FmhaError):
    """A commit's own code lets nothing of it be run: that is the verdict about it, and the message has its words."""


class InfrastructureError(FmhaError):
    """The machinery failed: nothing was learned about the kernel."""


class CancelledError(FmhaError):
    """Somebody asked a run to end before anything of it was measured."""


class InterruptionError(FmhaError):
    """The run was stopped from outside before its verdict."""
