"""Whether the files that builds have read are the commit's, byte by byte.

git's word that a checkout is clean is not that: it knows nothing of a header that it ignores, passes over a submodule
where `.gitmodules` says so, does not miss what a sparse checkout leaves out, and writes files otherwise than they are
where attributes want it (`ident`, an encoding). A record that names a commit is about that commit, as a host elsewhere
would get it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class FilesRead:
    """Names below the root of a checkout: what builds have read, links that lead there included, what they looked for
    in vain, and what there was in folders that they listed. `exact` are those of `files` that a compiler read to whom
    ends of lines may be a difference."""

    files: frozenset[str]
    exact: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def below(self, folder: str, names: Iterable[str]) -> FilesRead:
        """Those of `names`, all of which lie in the folder, as they are called from there."""
        kept = frozenset(names)
        files, exact, missing = (
            frozenset(name[len(folder) + 1 :] for name in group & kept)
            for group in (self.files, self.exact, self.missing)
        )
        return FilesRead(files, exact, missing)


def read_by(root: Path, builds: Iterable[BuildResult]) -> FilesRead:
    """What builds have read below `root`; of the interpreter and of fmha, where they lie there, nothing. Where a build
    did not say what it has read, its declared sources: a folder among them may hold objects and caches too."""
    base = os.path.realpath(root)
    tools = [sys.prefix, *(os.path.join(path, part) for path in fmha.__path__ for part in ("", "harness", "emulator"))]
    apart = tuple(f"{os.path.realpath(path)}/" for path in tools)
    found: set[str] = set()
    exact: set[str] = set()
    missing: set[str] = set()
    listed: dict[str, frozenset[str]] = {}
    for build in builds:
        variant = build.variant
        manifest = cache.read_manifest(Path(build.ptx).parent) if build.ptx else None
        inputs = (manifest or {}).get("inputs")
        declared = {str(path.relative_to(root)) for path in files_of(root, variant.sources)}
        read = set(inputs["files"]) | (declared & set(variant.sources)) if inputs else declared
        by_nvcc = inputs and not variant.compiler and not variant.source.endswith(".ptx")
        for name in read:
            path = os.path.realpath(os.path.join(base, name))
            if path.startswith(f"{base}/") and (not path.startswith(apart) or name in variant.sources):
                names = {path[len(base) + 1 :], *_links(base, name)}
                found |= names
                exact |= set() if by_nvcc else names
        for folder, names_of_it in (inputs or {}).get("absent", {}).items():
            if not os.path.isabs(folder):
                missing |= {os.path.normpath(os.path.join(folder, name)) for name in names_of_it}
        for folder, names_of_it in (inputs or {}).get("folders", {}).items():
            if names_of_it and not os.path.isabs(folder):
                listed[os.path.normpath(folder)] = frozenset(names_of_it[1:])
    inside = frozenset(name for name in missing if not name.startswith("../"))
    return FilesRead(frozenset(found), frozenset(exact), inside, listed)


def _links(base: str, name: str) -> Iterator[str]:
    """The links that a name passes, which the commit has to have as well as what they lead to."""
    parts = [] if os.path.isabs(name) else name.split("/")
    for count in range(1, len(parts) + 1):
        passed = "/".join(parts[:count])
        if os.path.islink(os.path.join(base, passed)):
            yield passed


def otherwise(root: Path, commit: str, read: FilesRead) -> tuple[str, ...]:
    """The names of what the commit has otherwise than builds in `root` have read it, or not at all; of what they did
    not find, those that the commit has, as in a sparse checkout. What lies in a submodule is held against the commit of
    that which the commit names."""
    blobs = _listed(root, commit, sorted(read.files))
    missed = read.missing & _names_of(root, commit) if read.missing else frozenset[str]()
    module_of = functools.cache(functools.partial(_module_of, root))
    modules: dict[str, list[str]] = {}
    different = [*_left_out(root, commit, read.listed), *missed]
    for name in sorted(read.files | read.missing - missed):
        mode, blob = blobs.get(name, ("", ""))
        if not mode and (module := module_of(os.path.dirname(name))):
            modules.setdefault(module, []).append(name)
        elif name in read.files and not (mode and _holds(root / name, mode, blob, name not in read.exact)):
            different.append(name)
    named = _listed(root, commit, list(modules))
    for module, inside in modules.items():
        mode, sha = named.get(module, ("", ""))
        within = read.below(module, inside)
        left = otherwise(root / module, sha, within) if mode == _MODULE else within.files
        different += [f"{module}/{name}" for name in left]
    return tuple(sorted(set(different)))


def _names_of(root: Path, commit: str) -> frozenset[str]:
    """Files and folders of a commit, in one answer: who builds has looked for thousands of names."""
    listed = git(root, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit, errors="surrogateescape")
    return frozenset(listed.stdout.split("\0"))


def _left_out(root: Path, commit: str, listed: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What the commit has in the folders, and whoever listed them did not see. What lies there besides is another's:
    an output, or a cache; who reads it has read it."""
    for folder, names in listed.items():
        at = "" if folder == "." else folder
        has = git(root, "ls-tree", "-z", "--name-only", f"{commit}:{at}", errors="surrogateescape")  # or has no such
        yield from (os.path.join(at, name) for name in has.stdout.split("\0") if name and name not in names)


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


def _module_of(root: Path, folder: str) -> str:
    """The submodule that a folder is, or is in; empty where none is."""
    above = [str(path) for path in (Path(folder), *Path(folder).parents)][-2::-1]  # from the root down, without it
    return next((inner for inner in above if (root / inner / ".git").exists()), "")


def _holds(path: Path, mode: str, blob: str, by_lines: bool) -> bool:
    """Whether a file has the contents of a blob. `by_lines`: where attributes have git write CR LF at the end of lines,
    a C preprocessor takes both away, within a raw string as well; all else that they write, it reads."""
    try:
        data = os.fsencode(os.readlink(path)) if mode == trees.LINK else path.read_bytes()
    except OSError:
        return False
    ways = (data, data.replace(b"\r\n", b"\n")) if by_lines else (data,)
    return any(trees.name_of_blob(way, blob) == blob for way in ways)
