"""Runs a compiler in the sandbox: it reads the tree and the toolchain, and writes one scratch folder.

What it leaves there is taken by `taken`, as the bytes of a plain file and nothing else.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fmha.harness.isolate import MECHANISMS, VARIABLE, Grant, enclose
from fmha.harness.worker.compilers.nvcc import NvccError
from fmha.harness.worker.processes.groups import Completed, describe_exit, run_group

READ = "FMHA_READ"  # folders beside the tree that compilers may read, separated by colons
MOST_BYTES = 1 << 30  # of one file that a compiler leaves
MOST_SAID = 16 << 20  # bytes of what one says: a header that includes itself says something new for hours
# Variables that compilers are given, by their beginnings. Others would change a build without showing in its key:
# NVCC_APPEND_FLAGS, CPATH and GCC_EXEC_PREFIX among them.
_GIVEN = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_", "PYTHONPATH", "PYTHONHOME", "CUDA_", "TRITON_", "CUTE_")
# PYTHONPATH names the tree of a run, another one each time: what modules are read from there counts by their contents.
_OF_NO_BUILD = ("PATH", "LC_", "LANG", "CUDA_VISIBLE_DEVICES", "CUDA_CACHE_", "TRITON_CACHE_DIR", "PYTHONPATH")
_SCRATCH = ("TMPDIR", "HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")  # what compilers keep for themselves goes too
_INCLUDES = ("-I", "-isystem", "-iquote", "-idirafter", "--include-path=", "--system-include=")
# What nvcc, its shell and gcc's driver say of a child that was killed; what we kill ourselves has timed out.
_KILLED = re.compile(r"died due to signal (?:9|15)\b|Killed signal terminated program")
_ENDED = ("SIGKILL", "exit code 137", "exit code 143")
_MEMORY = re.compile(r"out of memory allocating|virtual memory exhausted|std::bad_alloc|Cannot allocate memory")
TIMES = "times"
# How much processor time a command took is known inside alone: who waits for a sandbox waits for nothing that is in it.
_TIMED = 'times=$1; shift; "$@"; code=$?; times > "$times"; exit $code'
_CHILDREN = re.compile(r"[^\n]*\n(\d{1,6})m(\d{1,2}\.?\d*)s (\d{1,6})m(\d{1,2}\.?\d*)s\n")  # times(1p): line 2
_HEADLINE = re.compile(r"\b(error|fatal)\s*:")
_NO_SPACE = (
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    str(signal.strsignal(signal.SIGXFSZ)),
    signal.SIGXFSZ.name,
)


class BuildError(Exception):
    """One variant cannot be built: a headline, then the detail."""


_NO_TIME = {"SOURCE_DATE_EPOCH": "0"}  # __DATE__ and __TIME__ are of it: a build is what its sources are, whenever


def environment() -> dict[str, str]:
    """What compilers are given of this process's variables."""
    return {name: value for name, value in os.environ.items() if name.startswith(_GIVEN)}


def of_compilers() -> dict[str, str]:
    """What compilers are given, with what is set for all of them."""
    return environment() | {"LC_ALL": "C", **_NO_TIME}


def deciding() -> list[tuple[str, str]]:
    """Those of them that may decide what is built. PATH leads to programs, which are known by their contents."""
    return sorted(item for item in environment().items() if not item[0].startswith(_OF_NO_BUILD))


@dataclass(frozen=True, slots=True)
class EnclosedCompilers:
    """How the compilers of one build run."""

    root: Path
    read: tuple[Path, ...]  # beside the root and what every sandbox has
    scratch: Path
    limit_seconds: float
    deadline: float
    cancel: threading.Event
    spent: list[float] = field(default_factory=list)  # processor seconds, one a run

    def run(self, command: Sequence[str]) -> Completed:
        """Runs a compiler in the root, so that relative paths are the same on every machine; BuildError unless it
        succeeds."""
        grant = Grant(read=(self.root, *self.read), write=(self.scratch,))
        given = of_compilers() | {name: str(self.scratch) for name in _SCRATCH}
        timed = ["/bin/sh", "-c", _TIMED, "sh", str(self.scratch / TIMES), *command]
        inside, variables = enclose(timed, grant, cwd=self.root, environment=given)
        completed = _by_signal(
            run_group(
                inside,
                cwd=self.root,
                limit_seconds=max(0.0, self.deadline - time.monotonic()),
                env=variables,
                cancel=self.cancel,
                limit_bytes=MOST_SAID,
            )
        )
        if completed.flooded:
            raise BuildError(f"{Path(command[0]).name} wrote more than {MOST_SAID} bytes of messages, killed")
        if completed.timed_out:
            raise BuildError(
                f"{Path(command[0]).name} exceeded {self.limit_seconds:g} s, killed\n{completed.output}".rstrip()
            )
        if completed.returncode != 0:
            raise self._failure(command, completed)
        self.spent.append(_spent(self.scratch / TIMES))
        return completed

    def _failure(self, command: Sequence[str], completed: Completed) -> Exception:
        how = describe_exit(completed.returncode)
        said = f"{completed.output}\n{how}"
        if not self.cancel.is_set() and (found := _outside_word(completed.output, how)):
            return NvccError(
                f"the compiler was ended from outside, or for want of memory: {found}",
                where=command[-1],
                next_step="dmesg says whether memory ran out; build with more of it",
            )
        if reason := next((text for text in _NO_SPACE if text in said), None):
            return OSError(errno.ENOSPC, reason)
        return BuildError(_explain(completed))


def _outside_word(output: str, how: str) -> str:
    """The line that says that something else than the compiler ended it; empty where none does. Looked for line by
    line: one has as many characters as the author of an `#error` likes."""
    lines = output.split("\n")
    killed = next((line for line in lines if _KILLED.search(line)), how if how in _ENDED else "")
    return (killed or next((line for line in lines if _MEMORY.search(line)), "")).strip()


def _spent(path: Path) -> float:
    """What the shell wrote of its children: as a user and in the kernel. 0 where that is no time."""
    try:
        found = _CHILDREN.fullmatch(taken(path, "no times").decode("ascii", "replace"))
    except BuildError:
        return 0.0
    minutes, seconds, more_minutes, more = map(float, found.groups()) if found else (0.0,) * 4
    return round(60 * (minutes + more_minutes) + seconds + more, 3)


def _by_signal(completed: Completed) -> Completed:
    """A sandbox ends with 128 and the number where a signal ended what runs in it, as a shell does."""
    ended = completed.returncode - 128
    return replace(completed, returncode=-ended) if 0 < ended < signal.NSIG else completed


def _explain(completed: Completed) -> str:
    """nvcc's first line that says what is wrong, then all the others."""
    lines = [line for line in completed.output.splitlines() if line.strip()]
    if completed.returncode < 0:  # of a signal the shell that started it says this, which is no word of the compiler's
        said = signal.strsignal(-completed.returncode)
        lines = [line for line in lines if line.strip() not in (said, f"{said} (core dumped)")]
    headline = next((line for line in lines if _HEADLINE.search(line)), lines[-1] if lines else "")
    rest = [line for line in lines if line is not headline]
    return "\n".join([headline.strip() or f"nvcc failed with {describe_exit(completed.returncode)}", *rest])


def taken(path: Path, missing: str) -> bytes:
    """What a compiler has left at `path`; BuildError with the words `missing` where that is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BuildError(missing) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise BuildError(missing)
        if facts.st_size > MOST_BYTES:
            raise BuildError(f"{path.name} is {facts.st_size} bytes, more than {MOST_BYTES}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def granted(root: Path, flags: Sequence[str]) -> tuple[Path, ...]:
    """Folders outside `root` that a build may read: those of $FMHA_READ, and those that `flags` include where a sandbox
    is not required, since there the tree is one's own. BuildError for another that `flags` include."""
    found = [path for path in _listed() if path.exists()]
    for folder, path in outside(root, flags).items():
        if os.environ.get(VARIABLE) in ("require", *MECHANISMS) or _private(path):
            raise BuildError(f"error: {refused(folder, path)}")
        found.append(path)
    return tuple(dict.fromkeys(found))


def outside(root: Path, flags: Sequence[str]) -> dict[str, Path]:
    """The folders that `flags` include and that are neither in `root`, nor of the system, nor of $FMHA_READ: by what
    `flags` say, where they are."""
    known = (root.resolve(), *_listed())
    leading = {folder: (root / folder).resolve() for folder in included(flags)}
    return {
        folder: path
        for folder, path in leading.items()
        if path.exists() and not _of_the_system(path) and not any(path.is_relative_to(place) for place in known)
    }


def refused(folder: str, path: Path) -> str:
    """Why a folder is not read, and who can grant it."""
    return (
        f"-I {folder} lies outside the repository, and compilers may not read it here: the owner of this machine"
        f" grants it with {READ}={path}"
    )


def _listed() -> tuple[Path, ...]:
    return tuple(Path(name).resolve() for name in os.environ.get(READ, "").split(os.pathsep) if os.path.isabs(name))


def included(flags: Sequence[str]) -> list[str]:
    """The include folders that nvcc's flags name."""
    found = []
    for flag, after in zip(flags, [*flags[1:], ""], strict=False):
        for start in _INCLUDES:
            if flag == start.rstrip("="):
                found.append(after)
            elif flag.startswith(start):
                found.append(flag[len(start) :])
    return [folder for folder in found if folder]


def _of_the_system(path: Path) -> bool:
    return path.is_relative_to("/usr") or path.is_relative_to(sys.prefix)


def _private(path: Path) -> bool:
    """Whether a folder holds what only its owner is to see: the home as a whole, and what is hidden in it."""
    try:
        home = Path.home().resolve()
    except RuntimeError:
        return False
    if home.is_relative_to(path):
        return True
    return path.is_relative_to(home) and path.relative_to(home).parts[0].startswith(".")
