"""The attention kernels as a kernel of the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from fmha.harness.config.filters import OUR_KEYS
from fmha.harness.config.kernels import Gates, Held, Key
from fmha.harness.config.matrix_model import Guard
from fmha.harness.contract.protocol import Cell, Configuration
from fmha.harness.judge.configuration import OURS, parse_id
from fmha.harness.judge.limits import Thresholds
from fmha.harness.judge.random_cases import smaller

if TYPE_CHECKING:
    from fmha.harness.config.matrix_document import GatesSection, GuardSection


@dataclass(frozen=True, slots=True)
class Ours:
    """The kernels below kernel/. `natures` are the limits of configurations with that output, or those data."""

    gates: Gates
    natures: Mapping[str, Thresholds]

    prefix: ClassVar[str] = ""
    where: ClassVar[str] = ""
    files: ClassVar[Mapping[str, str]] = MappingProxyType({})
    watched: ClassVar[tuple[str, ...]] = ("kernel",)
    keys: ClassVar[Mapping[str, Key]] = OUR_KEYS[OURS]

    @property
    def held(self) -> Held:
        """Every set of limits that some configuration is held to."""
        gates = self.gates
        return (gates.thresholds, *self.natures.values()), gates.resources, gates.biases

    def parse(self, name: str) -> Configuration:
        """The configuration of that name. ValueError for none."""
        return parse_id(name)

    def is_guard(self, cell: Configuration, guard: Guard) -> bool:
        """Whether it is the fallback, or the guarded head_dim at its sizes."""
        return cell == guard.fallback or (
            guard.head_dim is not None and cell == Configuration(guard.head_dim, cell.t, cell.s_k, cell.batch)
        )

    def gates_for(self, cell: Configuration) -> Gates:
        """The default ones, or the laxer of those that the configuration's nature calls for; none of what it does not
        ask for."""
        limits = self.gates.thresholds
        for name, own in self.natures.items():
            if name in (cell.output, cell.data):
                limits = limits.laxer(own)
        return replace(self.gates, thresholds=limits.without(cell.unmeasured))

    def peer_of(self, cell: Cell) -> None:
        """It has configurations of its own alone."""

    def smaller(self, cell: Configuration) -> Iterator[Configuration]:
        """Configurations that are simpler in one respect, for the search of the least that fails."""
        return smaller(cell)

    def declared(self, name: str) -> None:
        """The commit's own code has what builds and launches them."""


def ours_of(gates: GatesSection) -> Ours:
    """The attention kernels with the gates of matrix.yaml."""
    usual = Gates(gates.default_thresholds(), gates.most_resources(), gates.most_bias())
    return Ours(usual, {name: gates.thresholds(getattr(gates, name)) for name in gates.natures()})


def guard_of(section: GuardSection, gates: GatesSection) -> Guard:
    """The guard of matrix.yaml, with its limits."""
    head_dim, fallback = section.head_dim, section.fallback
    return Guard(head_dim, Configuration(head_dim, fallback.t, fallback.s_k), gates.thresholds(gates.guard))
