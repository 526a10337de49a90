"""Whether the files that builds have read are the commit's, byte by byte.

git's word that a checkout is clean is not that: it knows nothing of a header that it ignores, passes over a submodule
where `.gitmodules` says so, and writes files otherwise than they are where attributes want it (`ident`, an encoding,
ends of lines). A record that names a commit is about that commit, as a host elsewhere would get it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import fmha
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.git import git
from fmha.harness.supervisor import tree as trees
from fmha.harness.worker.compilers import cache
from fmha.harness.worker.compilers.sources import files_of

_MODULE: Final = "160000"
_AT_ONCE: Final = 500  # names on one command line


def read_by(root: Path, builds: Iterable[BuildResult]) -> list[str]:
    """The files below `root` that builds have read; of the interpreter and of fmha, where they lie there, none. Where a
    build did not say what it has read, its declared sources: a folder among them may hold objects and caches too."""
    base = os.path.realpath(root)
    tools = [sys.prefix, *(os.path.join(path, part) for path in fmha.__path__ for part in ("", "harness", "emulator"))]
    apart = tuple(f"{os.path.realpath(path)}/" for path in tools)
    found: set[str] = set()
    for build in builds:
        manifest = cache.read_manifest(Path(build.ptx).parent) if build.ptx else None
        inputs = (manifest or {}).get("inputs")
        declared = {str(path.relative_to(root)) for path in files_of(root, build.variant.sources)}
        read = set(inputs["files"]) | (declared & set(build.variant.sources)) if inputs else declared
        for name in read:
            path = os.path.realpath(os.path.join(base, name))
            if path.startswith(f"{base}/") and (not path.startswith(apart) or name in build.variant.sources):
                found |= {path[len(base) + 1 :], *_links(base, name)}
    return sorted(found)


def _links(base: str, name: str) -> Iterator[str]:
    """The links that a name passes, which the commit has to have as well as what they lead to."""
    parts = [] if os.path.isabs(name) else name.split("/")
    for count in range(1, len(parts) + 1):
        passed = "/".join(parts[:count])
        if os.path.islink(os.path.join(base, passed)):
            yield passed


def otherwise(root: Path, commit: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the files `names` below `root` that the commit has otherwise, or not at all. What lies in a submodule is
    held against the commit of that which the commit names."""
    blobs = _listed(root, commit, names)
    modules: dict[str, list[str]] = {}
    different = []
    for name in names:
        mode, blob = blobs.get(name, ("", ""))
        if not mode and (module := _module_of(root, name)):
            modules.setdefault(module, []).append(name)
        elif not mode or not _holds(root / name, mode, blob):
            different.append(name)
    named = _listed(root, commit, list(modules))
    for module, inside in modules.items():
        mode, sha = named.get(module, ("", ""))
        within = [name[len(module) + 1 :] for name in inside]
        left = otherwise(root / module, sha, within) if mode == _MODULE else within
        different += [f"{module}/{name}" for name in left]
    return tuple(sorted(different))


def _listed(root: Path, commit: str, names: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Mode and object of each name that the commit has; none where it is not here, as of a submodule at another one."""
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(names), _AT_ONCE):
        wanted = names[start : start + _AT_ONCE]
        listed = git(root, "ls-tree", "-z", "--full-tree", commit, "--", *wanted, errors="surrogateescape")
        for entry in filter(None, listed.stdout.split("\0")):
            facts, _, name = entry.partition("\t")
            mode, _, sha = facts.split()
            found[name] = (mode, sha)
    return found


def _module_of(root: Path, name: str) -> str:
    """The submodule that a file is in; empty where none is."""
    above = [str(path) for path in Path(name).parents][-2::-1]  # from the root down, without it
    return next((folder for folder in above if (root / folder / ".git").exists()), "")


def _holds(path: Path, mode: str, blob: str) -> bool:
    try:
        data = os.fsencode(os.readlink(path)) if mode == trees.LINK else path.read_bytes()
    except OSError:
        return False
    return trees.name_of_blob(data, blob) == blob
