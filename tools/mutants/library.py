"""The library: every mistake as an edit of the kernels' source that survives other edits, or says that it does not.

A YAML file in library/ is a list of mutants:

    - name: sink-ignored                  # unique; the outcome's key, and what the holdout is drawn by
      did: the sink is not in the denominator
      class: sink
      edits:
        - {file: common/row_output.cuh, old: reciprocal(sum + sink), new: reciprocal(sum)}
      equivalent: ...                     # an argument, where nothing can notice; or one an architecture

`old` is compared token by token: spaces and line breaks do not count, so that clang-format and an indentation more do
not make a mutant void. It must occur exactly once in the file, or in the part that `within` names: from the one place
where that text occurs to the next line that begins with a closing brace.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = HERE / "library"
HELD_OUT: Final = 20
ARCHES: Final = ("sm_100a", "sm_90a")
CLASSES: Final = (
    "arithmetic",
    "rescale",
    "statistics",
    "masks",
    "indices",
    "operands",
    "parity",
    "ordering",
    "buffers",
    "lists",
    "sink",
    "splits",
    "epilogue",
    "launch",
    "overflow",
    "thresholds",
    "waits",
    "overlap",
    "inputs",
    "glue",
)
_ROOMS: Final = {
    "sm100": ("sm_100a",),
    "sm90": ("sm_90a",),
    "common": ARCHES,
    "include": ARCHES,
    "kernel_side": ARCHES,
}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, ten times as fast
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_END: Final = re.compile(r"^}", re.MULTILINE)
_TOP: Final = re.compile(r"^(?!template|#|//|namespace|})\S.*$", re.MULTILINE)


class LibraryError(Exception):
    """A mutant that is not written as it should be."""


class DoesNotApplyError(Exception):
    """The source has changed where a mutant changes it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old` by `new` in one of the sources that a commit of a kernel has."""

    file: str  # under kernel, or in kernel_side under harness
    old: str
    new: str
    within: str = ""

    def applied(self, text: str) -> str:
        """`text` edited. DoesNotApplyError unless there is exactly one place to edit."""
        first, last = self._place(text)
        return text[:first] + self.new.strip("\n") + text[last:]

    def lines(self, text: str) -> frozenset[int]:
        """The numbers of the lines of `text` that are edited. DoesNotApplyError."""
        first, last = self._place(text)
        return frozenset(range(text.count("\n", 0, first) + 1, text.count("\n", 0, last) + 2))

    def function(self, text: str) -> frozenset[int] | None:
        """The lines of the function that is edited, body and head; None where it is no function that code alone is made
        of: one of a struct, one that the compiler may evaluate, or something else. DoesNotApplyError."""
        first, last = self._place(text)
        heads = [match for match in _TOP.finditer(text, 0, first) if match.start() < first]
        close = _END.search(text, last)
        if not heads or close is None or _END.search(text, heads[-1].end(), last):
            return None
        head = heads[-1].group()
        if (
            "(" not in head
            or "constexpr" in head
            or head.startswith("struct")
            or text.find("{", heads[-1].start()) > first
        ):
            return None
        begin = text.count("\n", 0, heads[-1].start()) + 1
        return frozenset(range(begin, text.count("\n", 0, close.start()) + 2))

    def _place(self, text: str) -> tuple[int, int]:
        begin, end = self._part(text)
        found = [match.span() for match in _pattern(self.old).finditer(text, begin, end)]
        if len(found) != 1:
            raise DoesNotApplyError(f"found {len(found)} times in {self._where()}, not once: {self.old.strip()!r}")
        return found[0]

    def _part(self, text: str) -> tuple[int, int]:
        if not self.within:
            return 0, len(text)
        found = [match.span() for match in _pattern(self.within).finditer(text)]
        if len(found) != 1:
            raise DoesNotApplyError(f"found {len(found)} times in {self.file}, not once: {self.within!r}")
        close = _END.search(text, found[0][1])
        return found[0][0], close.start() if close else len(text)

    def _where(self) -> str:
        return f"{self.file}, {self.within!r}" if self.within else self.file


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s*".join(re.escape(token) for token in _TOKEN.findall(text)))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. `equivalent` has an argument for each architecture on which nothing can notice it."""

    name: str
    did: str
    kind: str  # of CLASSES
    edits: tuple[Edit, ...]
    equivalent: Mapping[str, str] = field(default_factory=dict)

    @property
    def arches(self) -> tuple[str, ...]:
        """The architectures whose kernels read what is edited."""
        rooms = {edit.file.partition("/")[0] for edit in self.edits}
        return tuple(arch for arch in ARCHES if any(arch in _ROOMS[room] for room in rooms))

    @property
    def of_kernel_side(self) -> bool:
        """Whether it is how kernels are chosen or launched that is edited."""
        return any(edit.file.startswith("kernel_side/") for edit in self.edits)

    @property
    def digest(self) -> str:
        """Of what it changes: an outcome of another digest is another mutant's."""
        return hashlib.sha256(repr(self.edits).encode()).hexdigest()[:16]

    def sources(self, root: Path) -> dict[str, str]:
        """The edited files' new text, by their names below `root`. DoesNotApplyError."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            before = texts.get(place_of(edit.file)) or (root / place_of(edit.file)).read_text(encoding="utf-8")
            texts[place_of(edit.file)] = edit.applied(before)
        return texts


def place_of(file: str) -> str:
    """Where a file of an edit lies in a checkout."""
    return f"harness/{file}" if file.startswith("kernel_side/") else f"kernel/{file}"


def load(where: Path = FOLDER) -> tuple[Mutant, ...]:
    """All of a folder, in the order of its files, or those of one file. LibraryError."""
    files = sorted(where.glob("*.yaml")) if where.is_dir() else [where]
    mutants = [mutant for path in files for mutant in _read(path)]
    seen: set[str] = set()
    for mutant in mutants:
        if mutant.name in seen:
            raise LibraryError(f"{mutant.name}: there are two of this name")
        seen.add(mutant.name)
    return tuple(mutants)


def held_out(mutants: Iterable[Mutant]) -> frozenset[str]:
    """The names whose SHA-256 is lowest: these are not looked at while suites are designed."""
    names = sorted((mutant.name for mutant in mutants), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return frozenset(names[:HELD_OUT])


def refused(mutants: Sequence[Mutant], root: Path) -> list[str]:
    """Why mutants do not apply to the sources below `root`; nothing is built."""
    reasons = []
    for mutant in mutants:
        try:
            for name, text in mutant.sources(root).items():
                if text == (root / name).read_text(encoding="utf-8"):
                    reasons.append(f"{mutant.name}: changes nothing in {name}")
        except (DoesNotApplyError, OSError) as error:
            reasons.append(f"{mutant.name}: {error}")
    return reasons


def _read(path: Path) -> Iterator[Mutant]:
    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LibraryError(f"{path}: {error}") from error
    if not isinstance(entries, list):
        raise LibraryError(f"{path}: not a list of mutants")
    for number, entry in enumerate(entries, 1):
        try:
            yield _mutant(entry)
        except KeyError as error:
            raise LibraryError(f"{path.name}, entry {number}: no {error}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise LibraryError(f"{path.name}, entry {number}: {error}") from error


def _mutant(entry: Mapping[str, Any]) -> Mutant:
    if unknown := entry.keys() - {"name", "did", "class", "edits", "equivalent"}:
        raise ValueError(f"no such field: {', '.join(sorted(unknown))}")
    if entry["class"] not in CLASSES:
        raise ValueError(f"no class {entry['class']!r}")
    edits = tuple(Edit(**edit) for edit in entry["edits"])
    mutant = Mutant(entry["name"], entry["did"], entry["class"], edits)
    argument = entry.get("equivalent", {})
    arguments = dict.fromkeys(mutant.arches, argument) if isinstance(argument, str) else dict(argument)
    if not edits or not set(arguments) <= set(mutant.arches):
        raise ValueError("edits and architectures do not fit together")
    return Mutant(mutant.name, mutant.did, mutant.kind, edits, arguments)
