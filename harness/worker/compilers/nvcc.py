"""Finds an nvcc that compiles for sm_100a: the system's, or the one from PyPI beside this interpreter."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.errors import InfrastructureError
from fmha.harness.extras import install
from fmha.harness.worker.processes.groups import run_group

MINIMUM = (12, 9)  # the first nvcc that knows sm_100a's tcgen05 well enough for the kernels here
QUERY_SECONDS = 30.0
_RELEASE = re.compile(r"release (\d+)\.(\d+)")


class NvccError(InfrastructureError):
    """There is no nvcc to build with; the message says what was looked at and what to do."""


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A compiler that answered. `version` is its own line, e.g. `Cuda compilation tools, release 13.0, V13.0.88`."""

    path: Path
    version: str
    release: tuple[int, int]


def next_step() -> str:
    """What to do where no nvcc is found."""
    return f"{install('nvcc')}, or put an nvcc >= 12.9 on PATH or into FMHA_NVCC"


def find_nvcc(environment: Mapping[str, str] | None = None, site_packages: Path | None = None) -> Nvcc:
    """The nvcc to build with: $FMHA_NVCC if set, else PATH's if it is new enough, else the one pip has installed.

    A compiler named by $FMHA_NVCC is used or refused, never silently replaced.
    """
    environment = os.environ if environment is None else environment
    if chosen := environment.get("FMHA_NVCC"):
        return _required(chosen, environment)
    seen = []
    if on_path := shutil.which("nvcc", path=environment.get("PATH", "")):
        try:
            return _usable(query(Path(on_path)))
        except NvccError as error:
            seen.append(str(error))
    packaged = (site_packages or Path(sysconfig.get_path("purelib"))) / "nvidia" / "cu13"
    if (packaged / "bin" / "nvcc").is_file():
        _make_executable(packaged)
        return _usable(query(packaged / "bin" / "nvcc"))
    raise NvccError("; ".join([*seen, "no nvcc >= 12.9 was found"]), next_step=next_step())


def query(path: Path) -> Nvcc:
    """Asks `path` for its version; NvccError when it does not answer like an nvcc."""
    try:
        answer = run_group([str(path), "--version"], cwd=Path.cwd(), limit_seconds=QUERY_SECONDS)
    except OSError as error:
        raise NvccError(f"cannot be started: {error.strerror}", where=str(path)) from error
    if answer.timed_out:
        raise NvccError(f"does not answer --version in {QUERY_SECONDS:.0f} s", where=str(path))
    for line in answer.output.splitlines():
        if match := _RELEASE.search(line):
            return Nvcc(path, line.strip(), (int(match[1]), int(match[2])))
    raise NvccError(f"its --version names no release (exit code {answer.returncode})", where=str(path))


def _required(chosen: str, environment: Mapping[str, str]) -> Nvcc:
    found = shutil.which(chosen, path=environment.get("PATH", ""))
    if found is None:
        raise NvccError("FMHA_NVCC names no executable file", where=chosen, next_step="correct it or unset it")
    try:
        return _usable(query(Path(found)))
    except NvccError as error:
        raise NvccError(error.what, where=error.where, next_step="correct or unset FMHA_NVCC") from error


def _usable(nvcc: Nvcc) -> Nvcc:
    if nvcc.release < MINIMUM:
        raise NvccError("nvcc {}.{} is older than 12.9".format(*nvcc.release), where=str(nvcc.path))
    return nvcc


def _make_executable(toolkit: Path) -> None:
    """Restores executable bits that an installer dropped: nvcc starts cicc, cudafe++, ptxas and fatbinary."""
    for tool in (*(toolkit / "bin").iterdir(), *(toolkit / "nvvm" / "bin").glob("*")):
        if tool.suffix or not tool.is_file() or os.access(tool, os.X_OK):
            continue
        try:
            tool.chmod(tool.stat().st_mode | 0o111)
        except OSError as error:
            raise NvccError(f"is not executable: {error.strerror}", where=str(tool), next_step=next_step()) from error
