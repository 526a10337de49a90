"""In which order a mutant meets configurations: first what has noticed it before, then those that execute the lines
that it changes and have noticed others in the same files, the cheapest first. Whoever lives meets all of them, so that
the order decides what a verdict costs, and never what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.harness.contract.lines import read, spell
from fmha.harness.contract.protocol import Configuration, Variant
from fmha.harness.kernel_side.variants import variant_for
from tools.mutants.library import Mutant, place_of

NEAR = 2  # lines apart
SLOW = "it takes too long"  # what is said of a case whose configuration has had its time
Chooser = Callable[[Configuration, str], Variant | str]
Lines = Mapping[str, frozenset[int]]  # by file under kernel


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the kernels as they are did under each configuration of an architecture, by its id: how many instructions of
    warps, and which lines. Empty where nobody has looked."""

    costs: Mapping[str, float] = field(default_factory=dict)
    lines: Mapping[str, Lines] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        lines = {name: {file: spell(numbers) for file, numbers in of.items()} for name, of in self.lines.items()}
        return {"costs": dict(self.costs), "lines": lines}

    @staticmethod
    def read(data: Mapping[str, Any]) -> KernelFacts:
        """From what `as_json` gave."""
        lines = {name: {file: read(text) for file, text in of.items()} for name, of in data["lines"].items()}
        return KernelFacts(data["costs"], lines)


@dataclass(frozen=True, slots=True)
class NoticedBefore:
    """A configuration that has noticed a mutant, and the lines of it, on an architecture."""

    arch: str
    changed: Lines
    configuration: str


@dataclass(frozen=True, slots=True)
class Hints:
    """What earlier records say: the configuration that noticed a case, by name and architecture, and all that were
    seen of mutants that the library still has."""

    killer: Mapping[tuple[str, str], str] = field(default_factory=dict)
    seen: Sequence[NoticedBefore] = ()

    @staticmethod
    def of(cases: Iterable[Mapping[str, Any]], mutants: Iterable[Mutant], root: Path) -> Hints:
        """From the cases of a record; `mutants` apply to the sources below `root`."""
        lines = {mutant.name: changed_lines(mutant, root) for mutant in mutants}
        # What took too long may have had a slow machine, and takes all of its time again: nothing to begin with.
        noticed = [case for case in cases if case["default"] and case["default"]["by"] != [SLOW]]
        killed = [(case["name"], case["arch"], case["default"]["configuration"]) for case in noticed]
        seen = [NoticedBefore(arch, lines[name], by) for name, arch, by in killed if name in lines]
        return Hints({(name, arch): by for name, arch, by in killed}, seen)

    def near(self, arch: str, changed: Lines) -> Counter[str]:
        """How often a configuration has noticed what changed a line not far from a line of `changed`."""
        return Counter(seen.configuration for seen in self.seen if seen.arch == arch and _meet(seen.changed, changed))


def _meet(some: Lines, others: Lines) -> bool:
    return any(
        min(lines) - NEAR <= max(others[file]) and min(others[file]) <= max(lines) + NEAR
        for file, lines in some.items()
        if file in others
    )


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
    kernels: Mapping[Variant, Sequence[Configuration]],
    changed: Lines,
    facts: KernelFacts,
    killer: str,
    near: Counter[str],
    bytes_of: Callable[[Variant], int],
) -> dict[Variant, list[Configuration]]:
    """`kernels` and the configurations of each: `killer` first, then by how many of the `changed` lines a configuration
    executes, by what it has noticed `near` them, and by its cost; kernels by the best of theirs, and those of little
    PTX, which is compiled and read soon, before others that are as good."""

    def rank(configuration: Configuration) -> tuple[bool, int, int]:
        executed = facts.lines.get(configuration.id, changed)  # one that nobody has looked at may execute them all
        met = sum(len(lines & executed.get(file, frozenset())) for file, lines in changed.items())
        return configuration.id != killer, -met, -near[configuration.id]

    # Where nobody has looked, an estimate of the cost: all of an architecture have the one or the other.
    sorts = {
        variant: sorted(mine, key=lambda item: (*rank(item), facts.costs.get(item.id, item.cost)))
        for variant, mine in kernels.items()
    }
    return dict(sorted(sorts.items(), key=lambda item: (*rank(item[1][0]), bytes_of(item[0]))))
