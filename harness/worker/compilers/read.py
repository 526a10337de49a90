"""What a build has read, from what its compiler says of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import Any

import fmha
from fmha.harness.worker.compilers.build_inputs import CompilerInputs, listed, made_of, searched
from fmha.harness.worker.compilers.enclosed import BuildError
from fmha.harness.worker.compilers.hashes import Hashes
from fmha.harness.worker.compilers.reads import Facts, facts_of, facts_of_listed

CLOCK_NS = 20_000_000  # how far a file's time may lie behind the clock
_UNSTORED = ("/proc/", "/sys/")  # what the kernel makes up
# Of a module's file, in the order in which they are looked for; one in bytecode alone comes last.
_ENDINGS = ("/__init__.py", *EXTENSION_SUFFIXES, *SOURCE_SUFFIXES)
Run = Callable[[Sequence[str]], str]


def searched_by(run: Run, nvcc: Path, flags: Sequence[str], scratch: Path) -> tuple[str, ...]:
    """The folders in which a build under `flags` looks for includes."""
    target = scratch / "searched.ii"
    return tuple(
        searched(run([str(nvcc), *flags, "-E", "-Xcompiler", "-v", "-o", str(target), "-x", "cu", os.devnull]))
    )


def of_nvcc(root: Path, source: str, listing: bytes, search: Sequence[str], hashes: Hashes) -> CompilerInputs | None:
    """From nvcc's list for make; None for one with a file that is not there: the list was not understood."""
    read = listed(listing.decode("utf-8", "surrogateescape"))
    if source not in read:
        raise BuildError("nvcc does not list what it has read")
    if not all(hashes.of(os.path.join(root, path)) for path in read):
        return None
    return made_of(root, read, search, hashes)


def of_adapter(root: Path, listing: bytes, scratch: Path, hashes: Hashes) -> CompilerInputs:
    """From what `reads` has written down."""
    try:
        said = json.loads(listing)
    except (ValueError, RecursionError) as error:
        raise _unsaid() from error
    return of_process(root, told(said), scratch, hashes)


@dataclass(frozen=True, slots=True)
class Told:
    """What a process says that it has read, as `Reading` has it."""

    read: Mapping[str, Facts]
    listed: Mapping[str, Facts]
    modules: Mapping[str, str]
    path: tuple[str, ...]


def told(said: Any) -> Told:
    """The same from plain data; BuildError for what is none. Anybody may say it, and whatever he likes."""
    try:
        made = Told(dict(said["read"]), dict(said["listed"]), dict(said["modules"]), tuple(said["path"]))
        paths = [*made.read, *made.listed, *made.modules.values(), *made.path]
        if any("\0" in path for path in (*paths, *made.modules)):
            raise _unsaid()
        for path in paths:
            os.fsencode(path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unsaid() from error
    return made


def of_process(root: Path, told: Told, scratch: Path, hashes: Hashes) -> CompilerInputs:
    """What there is now of that. A module that appears where modules are looked for earlier is another."""
    listed_ones = [path for path in told.listed if _inner(root, path)]
    read = [*_stored(told.read, scratch), *told.modules.values()]
    return made_of(root, read, None, hashes, _earlier(root, told), listed_ones)


def as_read(root: Path, told: Told, scratch: Path, start_ns: int, more: Iterable[str | Path] = ()) -> bool:
    """Whether all that a process has read, which started at `start_ns`, is now what it was when it first asked for it.
    So that two changes within a tick of the clock are seen, no file may be younger than the process. Nor may one of
    `more`, which it may have read by means that nobody hears of."""
    stored = _stored(told.read, scratch)
    return (
        all(_as_seen(root, path, told.read[path]) for path in stored)
        and all(facts_of_listed(path) == facts for path, facts in told.listed.items() if _inner(root, path))
        and not any(map(os.path.lexists, _earlier(root, told)))
        and not any(_younger(path, start_ns) for path in (*stored, *told.modules.values(), *more))
    )


def _earlier(root: Path, told: Told) -> list[str]:
    """Where the import system looks before it finds the modules where they are. Of packages elsewhere, what is beside
    a module changes with it."""
    found = []
    for name, file in told.modules.items():
        stem, last = os.path.splitext(file)
        if "." not in name:
            at = next((at for at, folder in enumerate(told.path) if file.startswith(f"{folder}/")), 0)
            found += [f"{folder}/{name}{ending}" for folder in told.path[:at] for ending in _ENDINGS]
        if last == ".py" and os.path.basename(stem) == name.rpartition(".")[2] and _inner(root, file):
            found += [f"{stem}{ending}" for ending in _ENDINGS if ending != ".py"]
    return found


def _as_seen(root: Path, path: str, facts: Facts) -> bool:
    now = facts_of(path)
    # Elsewhere, and in git's own folders, the sandbox hides what is there.
    return now == facts or (facts is None and (not _inner(root, path) or "/.git/" in f"{path}/"))


def _younger(path: str | Path, start_ns: int) -> bool:
    """Whether a file has changed since; not what is no file, as some modules' is none."""
    try:
        return os.path.isfile(path) and _touched(path, start_ns)
    except FileNotFoundError:
        return True


def _stored(read: Iterable[str], scratch: Path) -> list[str]:
    apart = (f"{scratch}/", *_UNSTORED)
    return [path for path in read if not f"{path}/".startswith(apart) and not path.endswith(".pyc")]


def _inner(root: Path, path: str) -> bool:
    """Of folders elsewhere, as of packages, what is in them changes for reasons of their own."""
    return path == str(root) or path.startswith(f"{root}/")


def _unsaid() -> BuildError:
    return BuildError("the compiler's process did not say what it has read")


def changed_since(root: Path, inputs: CompilerInputs, start_ns: int) -> bool:
    """Whether a file may be another by now than the one that a build read which started at `start_ns`."""
    return any(_touched(os.path.join(root, path), start_ns) for path in inputs.files)


def _touched(path: str | Path, start_ns: int) -> bool:
    found = os.stat(path)
    return max(found.st_mtime_ns, found.st_ctime_ns) >= start_ns - CLOCK_NS


def beside_sources(root: Path, inputs: CompilerInputs, sources: Sequence[str]) -> list[str]:
    """Files of the repository that were read and do not belong to the `sources` that a kernel declares.

    Of the interpreter and of fmha, where they lie in the repository, none does; nor does what is hidden.
    """
    base = str(root)
    tools = [sys.prefix, *(os.path.join(path, part) for path in fmha.__path__ for part in ("harness", "emulator"))]
    apart = tuple(f"{os.path.realpath(path)}/" for path in tools)
    known = tuple(f"{os.path.normpath(name)}/" for name in sources)
    found = set()
    for path in inputs.files:
        name = os.path.normpath(path)
        if os.path.isabs(name) or name.startswith("../") or any(part.startswith(".") for part in name.split("/")):
            continue
        if not f"{name}/".startswith(known) and not os.path.realpath(os.path.join(base, name)).startswith(apart):
            found.add(name)
    return sorted(found)
