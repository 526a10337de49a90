"""What a build has read, from what its compiler says of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

import fmha
from fmha.harness.worker.compilers.build_inputs import CompilerInputs, listed, made_of, searched
from fmha.harness.worker.compilers.enclosed import BuildError
from fmha.harness.worker.compilers.hashes import Hashes

CLOCK_NS = 20_000_000  # how far a file's time may lie behind the clock
_UNSTORED = ("/proc/", "/sys/")
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
    """From what `reads` has written down. A module that appears where modules are looked for earlier is another."""
    try:
        told: dict[str, Any] = json.loads(listing)
        read = [str(path) for path in told["read"]]
        modules = {str(name): str(path) for name, path in told["modules"].items()}
        folders = [str(path) for path in told["path"]]
        listed_ones = [str(path) for path in told["listed"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BuildError("the compiler's process did not say what it has read") from error
    inside = f"{scratch}/"
    plain = [path for path in read if not path.startswith((inside, *_UNSTORED)) and not path.endswith(".pyc")]
    earlier = []
    for name, file in modules.items():
        if "." not in name:
            at = next((at for at, folder in enumerate(folders) if file.startswith(f"{folder}/")), 0)
            endings = ["", *(suffix for suffix in all_suffixes() if suffix != ".pyc")]
            earlier += [f"{folder}/{name}{ending}" for folder in folders[:at] for ending in endings]
    # Of folders elsewhere, as of packages, what is in them changes for reasons of their own.
    inner = [path for path in listed_ones if path == str(root) or path.startswith(f"{root}/")]
    return made_of(root, [*plain, *modules.values()], None, hashes, earlier, inner)


def changed_since(root: Path, inputs: CompilerInputs, start_ns: int) -> bool:
    """Whether a file may be another by now than the one that a build read which started at `start_ns`."""
    return any(
        max(found.st_mtime_ns, found.st_ctime_ns) >= start_ns - CLOCK_NS
        for found in (os.stat(os.path.join(root, path)) for path in inputs.files)
    )


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
