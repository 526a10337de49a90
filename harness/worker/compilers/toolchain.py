"""Which compiler builds: the programs that an nvcc starts, by what is in them.

Two compilers may give one version and still be two: a beta, a patch in place, a wrapper that has moved on.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.worker.compilers.hashes import Hashes
from fmha.harness.worker.compilers.nvcc import QUERY_SECONDS, Nvcc, NvccError, find_nvcc
from fmha.harness.worker.processes.ahead import Ahead
from fmha.harness.worker.processes.groups import run_group

_SETTING = re.compile(r"^#\$ (\w+)=(.*)$", re.MULTILINE)
_HOST = re.compile(r"^#\$ (\S+) .*-E .*$", re.MULTILINE)
_TOOLS = ("nvcc", "nvcc.profile", "cudafe++", "ptxas", "fatbinary", "bin2c")


_AHEAD: list[Ahead[tuple[Nvcc, str]]] = []  # who has begun to ask


@dataclass(frozen=True, slots=True)
class Toolchain:
    """An nvcc with all that it starts."""

    nvcc: Nvcc
    digest: str  # of the programs' contents
    roots: tuple[Path, ...]  # files and folders that hold them


def foresee() -> None:
    """Begins to ask for the compiler, beside whatever this process does meanwhile."""
    if not _AHEAD:
        _AHEAD.append(Ahead(_asked))


def found_compiler() -> tuple[Nvcc, str]:
    """The nvcc to build with, and what it says that it would start. Raises NvccError."""
    return _AHEAD[0]() if _AHEAD else _asked()


def _asked() -> tuple[Nvcc, str]:
    nvcc = find_nvcc()
    said = said_by(nvcc)
    if host := _HOST.search(said):
        _host_compiler(host[1].strip('"'))  # which is known from here on
    return nvcc, said


def said_by(nvcc: Nvcc) -> str:
    """What `nvcc` says that it would start."""
    asked = [str(nvcc.path), "--dryrun", "-E", "-x", "cu", "/dev/null"]
    answer = run_group(asked, cwd=Path("/"), limit_seconds=QUERY_SECONDS, env=os.environ | {"LC_ALL": "C"})
    if answer.timed_out:
        raise NvccError(f"does not answer --dryrun in {QUERY_SECONDS:.0f} s", where=str(nvcc.path))
    return answer.output


def toolchain(nvcc: Nvcc, said: str, hashes: Hashes) -> Toolchain:
    """The toolchain of an nvcc that says that. Of one that does not say what it starts, its own file alone is known."""
    settings = dict(_SETTING.findall(said))
    programs = [nvcc.path.absolute(), nvcc.path.resolve()]
    roots = [nvcc.path.absolute(), nvcc.path.resolve()]
    if top := settings.get("TOP"):
        kit = Path(top).resolve()
        cicc = Path(settings.get("CICC_PATH", kit / "nvvm" / "bin")).resolve()
        library = Path(settings.get("NVVMIR_LIBRARY_DIR", kit / "nvvm" / "libdevice")).resolve()
        programs += [*(kit / "bin" / name for name in _TOOLS), cicc / "cicc", *sorted(library.glob("*.bc"))]
        roots += [kit, cicc.parent, library]
    if host := _HOST.search(said):
        programs += _host_compiler(host[1].strip('"'))
    contents = [(str(path), hashes.of(str(path))) for path in programs]
    digest = hashlib.sha256(json.dumps([nvcc.version, contents]).encode()).hexdigest()
    return Toolchain(nvcc, digest, tuple(dict.fromkeys(path for path in roots if path.exists())))


def _host_compiler(name: str) -> list[Path]:
    """The host's compiler, which preprocesses, and the program that it has for C++."""
    found = shutil.which(name)
    if found is None:
        return []
    state = os.stat(found)
    return _programs(found, (state.st_ino, state.st_size, state.st_mtime_ns))


@functools.cache
def _programs(found: str, state: tuple[int, int, int]) -> list[Path]:
    answer = run_group([found, "-print-prog-name=cc1plus"], cwd=Path("/"), limit_seconds=QUERY_SECONDS)
    return [Path(found).resolve(), *([Path(answer.output.strip())] if answer.returncode == 0 else [])]
