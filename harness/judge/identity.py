"""The judge and the judged: which files decide what is said of a kernel, and by which content they did.

The kernel's side is what builds and launches it; it comes with the commit that is judged, whose parameter struct and
flags may be its own. The judge makes inputs, computes the reference, measures, gates, chooses suites and compares.
docs/use/evidence.md, "The judge", says where each comes from.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MATRIX = "matrix.yaml"
CORE = "emulator/core"
# What a commit brings itself, whoever judges it; docs/understand/architecture.md has the contract of each.
KERNEL_SIDE = (
    "harness/kernel_side/choice.py",
    "harness/kernel_side/launch.py",
    "harness/kernel_side/params.py",
    "harness/kernel_side/recipe.py",
    "harness/kernel_side/variants.py",
    "kernel/sm90/shapes.h",
)
# What is told of a verdict afterwards, and commands of their own. The line is drawn by what a process that judges
# imports: a module that is there may change any other, whatever it is for, and one that is not cannot decide anything.
BESIDE = (
    "emulator/bench.py",
    "emulator/debug/",
    "emulator/mutation/",
    "emulator/programs/",
    "emulator/rules/__main__.py",
    "emulator/timing/timeline.py",
    "harness/archive/__main__.py",
    "harness/archive/prune.py",
    "harness/arguments.py",
    "harness/attention.py",
    "harness/bench/",
    "harness/cli/bench.py",
    "harness/cli/bisect.py",
    "harness/cli/budget.py",
    "harness/cli/cancel.py",
    "harness/cli/clean.py",
    "harness/cli/compare.py",
    "harness/cli/debug.py",
    "harness/cli/diag.py",
    "harness/cli/diff_run.py",
    "harness/cli/doctor.py",
    "harness/cli/emulate.py",
    "harness/cli/history.py",
    "harness/cli/hosts.py",
    "harness/cli/init.py",
    "harness/cli/logs.py",
    "harness/cli/ps.py",
    "harness/cli/publish.py",
    "harness/cli/report.py",
    "harness/cli/results.py",
    "harness/cli/roofline.py",
    "harness/cli/text.py",
    "harness/cli/trace.py",
    "harness/cli/watch.py",
    "harness/emulate/",
    "harness/evidence/bisect.py",
    "harness/evidence/suspects.py",
    "harness/evidence/watch.py",
    "harness/exact.py",
    "harness/examples/",
    "harness/report/",
    "harness/scripted/",
    "harness/see/",
    "harness/stages/administration.py",
    "harness/stages/init.py",
    "harness/trends/",
)
_PACKAGE = "fmha"
_ROOTS = (_PACKAGE, "harness", "emulator")
_LINKS = {"fmha/harness": "../harness", "fmha/emulator": "../emulator"}  # as they are in every checkout
_SUFFIXES = frozenset({".py", ".pyi", ".cpp", ".hpp"})
_DIGITS = 16  # of a file's sha256 in a record: enough to tell two contents apart; the whole judge has all 64


@dataclass(frozen=True, slots=True)
class Identity:
    """The judge's content: the start of the sha256 of each file by its path, and the sha256 of them all.

    The sources of the emulator's core are one entry, CORE, and matrix.yaml another, MATRIX: of what it says about
    suites, gates, guard and limits, not of its hosts or comments.
    """

    digest: str
    files: Mapping[str, str]

    def changed(self, other: Identity) -> tuple[str, ...]:
        """Paths at which the two differ, those that only one of them has among them."""
        both = self.files.keys() | other.files.keys()
        return tuple(sorted(name for name in both if self.files.get(name) != other.files.get(name)))


def is_judge(path: str) -> bool:
    """Whether a file of a checkout, named from its root, is the judge's."""
    if path == MATRIX or path in _LINKS:
        return True
    if path in KERNEL_SIDE or path.startswith(BESIDE):
        return False
    root, _, rest = path.partition("/")
    return bool(rest) and root in _ROOTS and Path(path).suffix in _SUFFIXES


def identity(matrix_sha256: str, root: Path | None = None, own: Mapping[str, str] | None = None) -> Identity:
    """The judge whose sources are below `root`, those of this process where it is not given; `matrix_sha256` is that
    of what the matrix file says, `own` those of files that declare kernels of one's own."""
    return identity_of(_sources(root or installed_root()) | dict(own or {}) | {MATRIX: matrix_sha256})


def identity_of(files: Mapping[str, str]) -> Identity:
    """The identity of a judge from the sha256 of its files."""
    digest = hashlib.sha256("".join(f"{name}\0{files[name]}\n" for name in sorted(files)).encode()).hexdigest()
    return Identity(digest, {name: files[name][:_DIGITS] for name in sorted(files)})


def installed_root() -> Path:
    """The folder that holds the harness that runs."""
    return Path(__file__).resolve().parent.parent


def sources(root: Path) -> dict[str, str]:
    """sha256 by path of the judge's sources below `root`, the core's as one; without matrix.yaml."""
    files, core = {}, hashlib.sha256()
    for name, content in sorted(_contents(root)):
        digest = hashlib.sha256(content).hexdigest()
        if name.startswith(f"{CORE}/"):
            core.update(f"{name}\0{digest}\n".encode())
        else:
            files[name] = digest
    return files | {CORE: core.hexdigest()}


_sources = functools.cache(sources)


def _contents(root: Path) -> Iterable[tuple[str, bytes]]:
    """Name and content of every file of the judge; of a link of the package that leads elsewhere, where it leads."""
    # Installed, the package is itself the folder that has the other two; a checkout has links to them in it.
    files = {} if (root / _PACKAGE).is_dir() else {f"{_PACKAGE}/{path.name}": path for path in root.glob("*.py")}
    files |= {path.relative_to(root).as_posix(): path for name in _ROOTS for path in (root / name).rglob("*")}
    for name, path in files.items():
        if name in _LINKS and path.is_symlink():
            if os.readlink(path) != _LINKS[name]:
                yield name, os.fsencode(os.readlink(path))
        elif is_judge(name) and path.suffix in _SUFFIXES and path.is_file():
            yield name, path.read_bytes()
