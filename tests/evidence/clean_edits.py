"""Edits of the kernels' sources that change nothing that is computed, found in whatever the sources are today.

A place is one of these: the factors of a product, which commute to the bit; the two sides of a comparison; the name of
a local; an assertion of what holds. nvcc may write other PTX for it, and the numbers have to stay.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.evidence.seeded_history import Planned

# What the kernels of sm_100a at head_dim 64 are built of; a header of PTX wrappers has asm and little else.
FOLDERS = ("sm100", "sm100/prefill", "common")
_OPERAND = r"[A-Za-z_]\w*(?:(?:\.|::)\w+)*"
_ENDS = r"(?![\w.(\[<]|::|->)"
# Not the end of a longer product or quotient, whose order counts.
_PRODUCT = re.compile(rf"(?<=[(=+,?:] )(?P<a>{_OPERAND}) \* (?P<b>{_OPERAND}){_ENDS}|"
                      rf"(?<=[(\[])(?P<c>{_OPERAND}) \* (?P<d>{_OPERAND}){_ENDS}")  # fmt: skip
_COMPARISON = re.compile(rf"(?:(?<=if \()|(?<=; ))(?P<a>{_OPERAND}) (?P<sign><=|>=|<|>) (?P<b>{_OPERAND})(?=\)|;)")
_LOCAL = re.compile(r"^ {4,}(?:const )?(?:int|float|bool|auto|u?int(?:32|64)_t) (?P<name>\w+)(?: =|\[)", re.MULTILINE)
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True)
class Edit:
    """`old`, which stands once in the file, becomes `new`; or the name `old` does, wherever it stands."""

    subject: str
    file: str  # below kernel/
    old: str
    new: str
    everywhere: bool = False

    def __call__(self, root: Path) -> None:
        path = root / "kernel" / self.file
        changed = self.applied(path.read_text())
        assert changed is not None, self
        path.write_text(changed)

    def applied(self, text: str) -> str | None:
        """None where there is no such place, or more than one."""
        if self.everywhere:
            changed = re.sub(rf"(?<!/)\b{self.old}\b(?!\.cuh)", self.new, text)  # a header's name is another place
            return changed if changed != text else None
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def clean(kernel: Path, count: int) -> tuple[Planned, ...]:
    """A commit for each of `count` edits, each on top of those before it, of all kinds in turn."""
    files = {
        str(path.relative_to(kernel)): path.read_text()
        for folder in FOLDERS
        for path in sorted((kernel / folder).glob("*.cu*"))
        if not path.name.startswith("combine_many")
    }
    members = {name for text in files.values() for name in re.findall(r"(?:\.|->)(\w+)", text)}
    kinds = (
        [edit for file, text in files.items() for edit in _products(file, text)],
        [edit for file, text in files.items() for edit in _comparisons(file, text)],
        [edit for file, text in files.items() for edit in _names(file, text, members)],
        [_assertion(file, text) for file, text in files.items() if "\nnamespace fmha {\n" in text],
    )
    found: list[Edit] = []
    for edit in (edit for group in itertools.zip_longest(*map(_spread, kinds)) for edit in group if edit):
        changed = edit.applied(files[edit.file])
        if changed is not None and len(found) < count:
            files[edit.file] = changed
            found.append(edit)
    assert len(found) == count, f"{len(found)} places for {count} commits"
    return tuple(Planned(edit.subject, edit) for edit in found)


def _products(file: str, text: str) -> Iterator[Edit]:
    for line, found in _places(text, _PRODUCT):
        a, b = found["a"] or found["c"], found["b"] or found["d"]
        new = f"{line[: found.start()]}{b} * {a}{line[found.end() :]}"
        yield Edit(f"{file}: {b} times {a}", file, f"{line}\n", f"{new}\n")


def _comparisons(file: str, text: str) -> Iterator[Edit]:
    for line, found in _places(text, _COMPARISON):
        a, sign, b = found["a"], found["sign"], found["b"]
        new = f"{line[: found.start()]}{b} {_FLIPPED[sign]} {a}{line[found.end() :]}"
        yield Edit(f"{file}: {b} on the left of {a}", file, f"{line}\n", f"{new}\n")


def _places(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """The lines of code that stand once in the text and have one place at least, with the first one's match."""
    for line in text.splitlines():
        found = pattern.search(line)
        if found and text.count(f"{line}\n") == 1 and not line.lstrip().startswith(("//", "#", "static_assert")):
            yield line, found


def _names(file: str, text: str, members: set[str]) -> Iterator[Edit]:
    """Of locals that no struct has a member of; a macro's text would be another place."""
    for name in dict.fromkeys(found["name"] for found in _LOCAL.finditer(text)):
        if name not in members and not re.search(rf"#define.*\b{name}\b", text):
            yield Edit(f"{file}: rename {name}", file, name, f"the_{name}", everywhere=True)


def _assertion(file: str, text: str) -> Edit:
    new = f'\nnamespace fmha {{\nstatic_assert(sizeof(int) == 4, "as {Path(file).name} has it");\n'
    return Edit(f"{file}: assert what holds", file, "\nnamespace fmha {\n", new)


def _spread(edits: list[Edit]) -> list[Edit]:
    """From all files in turn, so that a few commits already touch several."""
    by_file = [list(group) for _, group in itertools.groupby(edits, key=lambda edit: edit.file)]
    return [edit for group in itertools.zip_longest(*by_file) for edit in group if edit]
