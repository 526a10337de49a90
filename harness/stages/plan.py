"""The plan: which configurations run, in which order, on which variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fmha.harness.config import Filter, Matrix
from fmha.harness.contract.protocol import Cell, PeerCell, Variant
from fmha.harness.errors import ChoiceError, UserError
from fmha.harness.hosts import Host
from fmha.harness.stages.outcome import Step


@dataclass(frozen=True, slots=True)
class RunSelection:
    """What to run: suites, as Matrix.named takes them, `random_cases` of those that are random, or `cases` by name; of
    that what `filter` accepts, and of that one a variant, if so asked. `seed` is what random ones are drawn from."""

    suite: str
    filter: Filter
    seed: int
    random_cases: int | None = None
    cases: Sequence[str] = ()
    one_a_variant: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of the work: the guard first. There is always at least one of each."""

    suite: str  # empty when configurations were asked for by name
    filter: Filter
    steps: tuple[Step, ...]
    suites: tuple[str, ...] = ()  # the names of `suite`
    random: Mapping[str, int] = field(default_factory=dict)  # how many were drawn of each random one
    one_a_variant: bool = False

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Each needed variant once, in the order of first use."""
        return tuple(dict.fromkeys(step.variant for step in self.steps if step.variant))

    @property
    def guard(self) -> tuple[Step, ...]:
        """The steps that are run first."""
        return tuple(step for step in self.steps if step.guard)

    @property
    def rest(self) -> tuple[Step, ...]:
        """The others."""
        return tuple(step for step in self.steps if not step.guard)


def make_plan(matrix: Matrix, selection: RunSelection, host: Host) -> Plan:
    """Plan a selection. Raises UserError for an unknown suite, for no configuration's name, or for an empty selection.

    The selection's configurations of the guard's head_dim are the guard. A selection without any gets the guard's
    fallback in addition, so that nothing is ever run before the proven path has been seen to hold.
    """
    suite, of_suites = ("", {}) if selection.cases else (selection.suite, _of_suites(matrix, selection))
    configurations = matrix.ordered(_named(matrix, selection.cases) if selection.cases else of_suites)
    configurations = matrix.with_peers(configurations, selection.filter.kernels)
    selected = selection.filter.select(configurations, f"suite {suite}" if suite else "what --case names")
    if selection.one_a_variant:
        selected = _one_a_variant(selected, host)
    guard = [item for item in selected if matrix.is_guard(item)]
    rest = [item for item in selected if not matrix.is_guard(item)]
    steps = [_step(item, host, guard=True) for item in guard]
    if not guard:
        steps = [_step(matrix.guard.fallback, host, guard=True, selected=False)]
    steps += [_step(item, host, guard=False) for item in rest]
    steps = [replace(step, suites=_suites_of(step.configuration, of_suites)) for step in steps]
    names = matrix.named(suite) if suite else ()
    drawn = matrix.drawn_of(suite, selection.random_cases) if suite else {}
    return Plan(suite, selection.filter, tuple(steps), names, drawn, selection.one_a_variant)


def _suites_of(configuration: Cell, of_suites: Mapping[Cell, tuple[str, ...]]) -> tuple[str, ...]:
    """A peer's are those of the problem that it solves."""
    if configuration in of_suites:
        return of_suites[configuration]
    if not isinstance(configuration, PeerCell):
        return ()
    found = [names for item, names in of_suites.items() if getattr(item, "problem", None) == configuration.of]
    return tuple(dict.fromkeys(name for names in found for name in names))


def _of_suites(matrix: Matrix, selection: RunSelection) -> Mapping[Cell, tuple[str, ...]]:
    """The configurations of the selection's suites, with those that have each."""
    suites = matrix.known(selection.suite)
    if selection.random_cases is not None and not set(suites) & set(matrix.random_suites):
        random = ", ".join(matrix.random_suites)
        hint = f"use one of {random}" if random else "matrix.yaml has no random suite"
        raise UserError(f"--cases: suite {', '.join(suites)} is not random", next_step=hint)
    return matrix.suites_of(selection.suite, selection.seed, selection.random_cases)


def _named(matrix: Matrix, cases: Sequence[str]) -> list[Cell]:
    configurations = {}
    for name in cases:
        try:
            configurations[name] = matrix.parse(name)
        except ValueError as error:
            raise UserError(f"--case {name}: {error}", next_step="docs/use/matrix.md explains names") from error
    return list(configurations.values())


def _one_a_variant(selected: Sequence[Cell], host: Host) -> tuple[Cell, ...]:
    """For every variant the largest configuration: of attention that with the most keys, then queries."""
    largest: dict[str, Cell] = {}
    for item in sorted(selected, key=lambda item: item.extent, reverse=True):
        variant = host.variant_for(item)
        if not isinstance(variant, str):
            largest.setdefault(variant.name, item)
    if not largest:
        raise UserError("no kernel runs any of the selected configurations")
    return tuple(item for item in selected if item in largest.values())


def _step(configuration: Cell, host: Host, *, guard: bool, selected: bool = True) -> Step:
    try:
        variant = host.variant_for(configuration)
    except ChoiceError as error:
        return Step(configuration, guard, selected, None, str(error), fault=True)
    if isinstance(variant, str):
        return Step(configuration, guard, selected, None, variant)
    return Step(configuration, guard, selected, variant)
