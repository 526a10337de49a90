"""Who judges: which files decide what is said of a kernel, and by which content they did.

The judge is this package, the emulator, and what matrix.yaml says. The kernel's side, harness/kernel_side and kernel/,
comes with the commit that is judged. All other files of the harness carry out what the two say; where the judge is
another commit's they are that commit's too. docs/understand/trust.md says what each of them can touch.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.judge import core_digest

MATRIX = "matrix.yaml"
CORE = "emulator/core"
JUDGE = "harness/judge"
KERNEL_SIDE = "harness/kernel_side"
MACHINE = "emulator"
_PACKAGE = "fmha"
_ROOTS = (_PACKAGE, "harness", MACHINE)
_SUFFIXES = frozenset({".py", ".pyi"})
_DIGITS = 16  # of a file's sha256 in a record: enough to tell two contents apart; the whole judge has all 64


@dataclass(frozen=True, slots=True)
class Identity:
    """The judge's content: the start of the sha256 of each file by its path, and the sha256 of them all.

    The emulator's core is one entry, CORE: what the core that runs was compiled from. matrix.yaml is another, MATRIX:
    of what it says about suites, gates, guard and limits, not of its hosts or comments. `harness` is the sha256 of the
    rest of the harness, which carries out what the judge and the kernel's side say.
    """

    digest: str
    files: Mapping[str, str]
    harness: str = ""

    def changed(self, other: Identity) -> tuple[str, ...]:
        """Paths at which the two differ, those that only one of them has among them."""
        both = self.files.keys() | other.files.keys()
        return tuple(sorted(name for name in both if self.files.get(name) != other.files.get(name)))


def is_judge(path: str) -> bool:
    """Whether a file of a checkout, named from its root, is the judge's."""
    return path == MATRIX or path.startswith((f"{JUDGE}/", f"{MACHINE}/"))


def is_kernel_side(path: str) -> bool:
    """Whether a file of a checkout, named from its root, comes with the kernel whoever judges."""
    return path.startswith((f"{KERNEL_SIDE}/", "kernel/"))


def identity(matrix_sha256: str, own: Mapping[str, str] | None = None) -> Identity:
    """The judge that this process is: `matrix_sha256` is that of what the matrix file says, `own` those of files that
    declare kernels of one's own."""
    files = installed_sources()
    judge = {name: digest for name, digest in files.items() if is_judge(name)}
    rest = {name: digest for name, digest in files.items() if not is_judge(name) and not is_kernel_side(name)}
    return identity_of(judge | dict(own or {}) | {MATRIX: matrix_sha256}, _together(rest))


def identity_of(files: Mapping[str, str], harness: str = "") -> Identity:
    """The identity of a judge from the sha256 of its files."""
    return Identity(_together(files), {name: files[name][:_DIGITS] for name in sorted(files)}, harness)


def installed_root() -> Path:
    """The folder that holds the harness that runs."""
    return Path(__file__).resolve().parents[2]


def sources(root: Path) -> dict[str, str]:
    """sha256 by path of the Python files of fmha below `root`, and of the core's sources as one where there are any."""
    files = {name: hashlib.sha256(content).hexdigest() for name, content in _contents(root)}
    core = root / CORE
    return files | ({CORE: core_digest.of_sources(core)} if core.is_dir() else {})


@functools.cache
def installed_sources() -> Mapping[str, str]:
    """Those of this process; of its core what that was compiled from, which may be older than its sources."""
    return sources(installed_root()) | {CORE: core_digest.of_installed()}


def _together(files: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}\0{files[name]}\n" for name in sorted(files)).encode()).hexdigest()


def _contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file that is imported. What is no regular file, or lies behind a link, is none."""
    for name, path in sorted(_files(root)):
        if path.suffix in _SUFFIXES and path.is_file() and not path.is_symlink():
            yield name, path.read_bytes()


def _files(root: Path) -> Iterable[tuple[str, Path]]:
    # Installed, the package is itself the folder that has the other two; a checkout has links to them in it.
    own = root if not (root / _PACKAGE).is_dir() else root / _PACKAGE
    yield from ((f"{_PACKAGE}/{path.name}", path) for path in own.glob("*.py"))
    for top in ("harness", MACHINE):
        yield from ((path.relative_to(root).as_posix(), path) for path in (root / top).rglob("*"))
