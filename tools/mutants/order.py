"""In which order a mutant meets configurations: first what has noticed it before, then those that execute the lines
that it changes and have noticed others in the same files, the cheapest first. Whoever lives meets all of them, so that
the order decides what a verdict costs, and never what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.harness.contract.protocol import Configuration, Variant
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.pool.lines import read, spell
from tools.mutants.library import Mutant, place_of

Chooser = Callable[[Configuration, str], Variant | str]
Lines = Mapping[str, frozenset[int]]  # by file under kernel


@dataclass(frozen=True, slots=True)
class Facts:
    """What the kernels as they are did under each configuration of an architecture, by its id: how many instructions of
    warps, and which lines. Empty where nobody has looked."""

    costs: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, Lines] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        lines = {name: {file: spell(numbers) for file, numbers in of.items()} for name, of in self.lines.items()}
        return {"costs": dict(self.costs), "lines": lines}

    @staticmethod
    def read(data: Mapping[str, Any]) -> Facts:
        lines = {name: {file: read(text) for file, text in of.items()} for name, of in data["lines"].items()}
        return Facts(data["costs"], lines)


@dataclass(frozen=True, slots=True)
class Hints:
    """What earlier records say: the configuration that noticed a case, by name and architecture, and how often one has
    noticed a mutant of a file, by architecture and file."""

    killer: Mapping[tuple[str, str], str] = field(default_factory=dict)
    of_file: Mapping[tuple[str, str], Counter[str]] = field(default_factory=dict)

    @staticmethod
    def of(cases: Iterable[Mapping[str, Any]]) -> Hints:
        """From the cases of a record."""
        killed = [case for case in cases if case["default"]]
        of_file: dict[tuple[str, str], Counter[str]] = {}
        for case in killed:
            for file in case["files"]:
                of_file.setdefault((case["arch"], file), Counter())[case["default"]["configuration"]] += 1
        return Hints({(c["name"], c["arch"]): c["default"]["configuration"] for c in killed}, of_file)


def by_variant(
    configurations: Iterable[Configuration], arch: str, chooser: Chooser = variant_for
) -> dict[Variant, list[Configuration]]:
    """The configurations that `arch` has kernels for, by kernel, in the order of first use."""
    found: dict[Variant, list[Configuration]] = {}
    for configuration in configurations:
        variant = chooser(configuration, arch)
        if isinstance(variant, Variant):
            found.setdefault(variant, []).append(configuration)
    return found


def changed_functions(mutant: Mutant, root: Path) -> dict[str, frozenset[int] | None]:
    """By file, the lines of the functions that the mutant changes; None where it changes more."""
    found: dict[str, frozenset[int] | None] = {}
    for edit in mutant.edits:
        mine = edit.function((root / place_of(edit.file)).read_text(encoding="utf-8"))
        before = found.get(edit.file, frozenset())
        found[edit.file] = None if mine is None or before is None else before | mine
    return found


def changed_lines(mutant: Mutant, root: Path) -> Lines:
    """The lines that the mutant replaces, by file as its edits have it, of the sources below `root`."""
    found: dict[str, frozenset[int]] = {}
    for edit in mutant.edits:
        text = (root / place_of(edit.file)).read_text(encoding="utf-8")
        found[edit.file] = found.get(edit.file, frozenset()) | edit.lines(text)
    return found


def ordered(
    configurations: Sequence[Configuration], changed: Lines, facts: Facts, killer: str, kills: Counter[str]
) -> list[Configuration]:
    """`configurations` with `killer` first; then by how many of the `changed` lines each executes, by its `kills`, and
    by its cost."""

    def rank(configuration: Configuration) -> tuple[bool, int, int, float]:
        name = configuration.id
        executed = facts.lines.get(name, {})
        met = sum(len(lines & executed.get(file, frozenset())) for file, lines in changed.items())
        # Where nobody has looked, an estimate: all of an architecture have the one or the other.
        return name != killer, -met, -kills[name], facts.costs.get(name, configuration.cost)

    return sorted(configurations, key=rank)
