"""Running mutants: each under several schedules, until one notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fmha.emulator.device import LaunchError, Module, Schedule, load_ptx
from fmha.emulator.mutation.operators import PtxMutant, probe_of
from fmha.emulator.mutation.redundant import Redundant
from fmha.emulator.ptx import Function, PtxError


@dataclass(frozen=True, slots=True)
class MutantTrial:
    """One run: the rules of its error findings, and whether the outputs are right."""

    rules: tuple[str, ...]
    right: bool

    @property
    def verdict(self) -> str | None:
        """What noticed, None when nothing did."""
        if self.rules:
            return self.rules[0]
        return None if self.right else "wrong numbers"


# Runs the kernel of a module, on fresh devices of this schedule and seed.
Launch: TypeAlias = Callable[[Module, Schedule, int], MutantTrial]
Plan: TypeAlias = tuple[tuple[Schedule, int], ...]
Status: TypeAlias = Literal["killed", "survived", "redundant", "unreached", "invalid"]


class MutationError(Exception):
    """The kernel itself does not run right: nothing can be said about mutants of it."""


@dataclass(frozen=True, slots=True)
class MutantOutcome:
    """`by`: the rule or "wrong numbers" that killed; the reason of a redundant mutant; the error of an invalid one."""

    mutant: PtxMutant
    status: Status
    by: str
    schedule: Schedule | None = None
    seed: int | None = None


def schedule_plan(randoms: int) -> Plan:
    """`realistic`, `early` and `late`, and so many random schedules."""
    fixed: Plan = (("realistic", 0), ("early", 0), ("late", 0))
    return (*fixed, *(("random", seed) for seed in range(1, randoms + 1)))


def check_original(ptx: str, launch: Launch, plan: Plan) -> None:
    """MutationError where the kernel itself fails under one of the schedules."""
    module = load_ptx(ptx)
    for schedule, seed in plan:
        verdict = launch(module, schedule, seed).verdict
        if verdict is not None:
            raise MutationError(f"the kernel itself fails under schedule {schedule}, seed {seed}: {verdict}")


def run_mutant(
    mutant: PtxMutant, launch: Launch, plan: Plan, kernel: str, redundant: Sequence[Redundant]
) -> MutantOutcome:
    """A mutant on the redundant list is run all the same: one that is killed shows the list to be wrong."""
    try:
        module = load_ptx(mutant.ptx)
        for schedule, seed in plan:
            verdict = launch(module, schedule, seed).verdict
            if verdict is not None:
                return MutantOutcome(mutant, "killed", verdict, schedule, seed)
    except (PtxError, LaunchError) as error:
        return MutantOutcome(mutant, "invalid", str(error))
    for entry in redundant:
        if entry.matches(kernel, mutant):
            return MutantOutcome(mutant, "redundant", entry.reason)
    return MutantOutcome(mutant, "survived", "")


def check_reached(outcome: MutantOutcome, ptx: str, function: Function, launch: Launch) -> MutantOutcome:
    """A survivor whose instruction the launch never executes says nothing of the machine: it is "unreached"."""
    if outcome.status != "survived":
        return outcome
    trial = launch(load_ptx(probe_of(ptx, function, outcome.mutant)), "realistic", 0)
    return outcome if "trap" in trial.rules else replace(outcome, status="unreached", by="never executed")


def run_mutants(
    mutants: Iterable[PtxMutant], launch: Launch, plan: Plan, kernel: str, redundant: Sequence[Redundant] = ()
) -> Iterator[MutantOutcome]:
    """Their outcomes in order, each once it is known."""
    for mutant in mutants:
        yield run_mutant(mutant, launch, plan, kernel, redundant)
