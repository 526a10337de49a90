"""What to do about a build of one's own kernel that failed: read from what the compilers said, for who wrote the
adapter."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

MOST_LOOKED_AT: Final = 20_000  # files of the repository
_SKIPPED: Final = frozenset({".git", ".fmha", ".venv", "build", "node_modules", "__pycache__"})
_TORCHS: Final = ("ATen/", "c10/", "torch/", "THC/")


def with_hint(said: str, arch: str, root: Path) -> str:
    """`said`, a headline and more, with what to do next behind the headline, where that is known."""
    for pattern, hint in _KNOWN:
        if found := pattern.search(said):
            first, *rest = said.split("\n", 1)
            return "\n".join([first, f"next: {hint(found, arch, root)}", *rest])
    return said


def _header(found: re.Match[str], _: str, root: Path) -> str:
    name = found[1] or found[2]
    for path in _files(root):
        if f"/{path}".endswith(f"/{name}"):
            folder = path[: -len(name)].rstrip("/") or "."
            return f'{path} is in the repository: add "-I{folder}" to the adapter\'s flags'
    if name.startswith(_TORCHS):
        return "add TORCH_HEADERS, which fmha has, to the adapter's flags: docs/use/kernels.md"
    return f'no file of the repository is {name}: copy it there, and add "-IFOLDER" to the adapter\'s flags'


def _files(root: Path) -> Iterator[str]:
    """Paths of files below the root, from there on."""
    left = MOST_LOOKED_AT
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        for name in names:
            yield str(PurePosixPath(os.path.relpath(os.path.join(folder, name), root)))
        left -= len(names)
        if left < 0:
            return


def _no_entry(found: re.Match[str], _arch: str, _root: Path) -> str:
    if found[2] == "none":
        return (
            "the PTX has no kernel: a template is there once it is instantiated, as by"
            f" `template __global__ void {found[1]}<float>(...);` in a .cu of yours that includes the file"
        )
    return "let `build` return one of those names; a template's with its arguments, as add<float, 4>"


def _architecture(_found: re.Match[str], arch: str, _root: Path) -> str:
    return f"this was compiled for {arch}, which is `arch` of the host in matrix.yaml; the adapter's archs can say more"


def _standard(found: re.Match[str], _arch: str, _root: Path) -> str:
    version = found[1] or found[2] or "17"
    return f'add "-std=c++{version}" to the adapter\'s flags, which take the place of those that are usual'


_Hint = Callable[[re.Match[str], str, Path], str]
_KNOWN: Final[tuple[tuple[re.Pattern[str], _Hint], ...]] = (
    (re.compile(r'cannot open source file "([^"]+)"|fatal error: ([^\s:]+): No such file'), _header),
    (re.compile(r"entry of .*: there is no ([^;]+); there are (\w+)"), _no_entry),
    (re.compile(r"not supported on \.target|requires \.target|Feature '[^']+' requires"), _architecture),
    (re.compile(r"requires C\+\+(\d\d)|C\+\+(\d\d) or later"), _standard),
)
