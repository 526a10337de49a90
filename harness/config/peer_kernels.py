"""What users call instead of our kernels, as kernels of the matrix: a run has them where `--kernel` names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from fmha.harness.config.filters import OUR_KEYS
from fmha.harness.config.kernels import Gates, Held, Key
from fmha.harness.config.matrix_model import Guard
from fmha.harness.config.ours import Ours
from fmha.harness.contract.protocol import Cell, PeerCell
from fmha.harness.judge.configuration import OURS, Configuration, parse_id
from fmha.harness.judge.limits import Thresholds
from fmha.harness.judge.metrics import OF_ANY_KERNEL
from fmha.harness.worker.subjects.peers import PEERS, Peer, refusal


@dataclass(frozen=True, slots=True)
class PeerKernel:
    """Its configurations are problems of `ours`, and so are its gates, those of LSE apart."""

    name: str
    ours: Ours

    where: ClassVar[str] = ""
    files: ClassVar[Mapping[str, str]] = MappingProxyType({})
    watched: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[Mapping[str, Key]] = OUR_KEYS[OURS]

    @property
    def prefix(self) -> str:
        """What its names begin with."""
        return f"{self.name}_"

    @property
    def held(self) -> Held:
        """The limits of our kernels."""
        return self.ours.held

    def parse(self, name: str) -> PeerCell:
        """The configuration of that name. ValueError for one that says how our kernels run it."""
        item = parse_id(name.removeprefix(self.prefix))
        if item != item.problem:
            raise ValueError(f"it says how our kernels run it; a peer's is {PeerCell(self.name, item.problem).id}")
        return PeerCell(self.name, item)

    def is_guard(self, cell: PeerCell, guard: Guard) -> bool:
        """A peer guards nothing."""
        return False

    def gates_for(self, cell: PeerCell) -> Gates:
        """Those of ours for bf16 outputs, for metrics that every kernel has."""
        limits = self.ours.gates_for(replace(cell.of, output="bf16")).thresholds.limits
        usual = {name: limit for name, limit in limits.items() if name in OF_ANY_KERNEL}
        return Gates(Thresholds(usual), None, None)

    def peer_of(self, cell: Cell) -> PeerCell | None:
        """None also where it takes no such problem."""
        if not isinstance(cell, Configuration) or refusal(self.name, cell.problem):
            return None
        return PeerCell(self.name, cell.problem)

    def smaller(self, cell: PeerCell) -> Iterator[PeerCell]:
        """As ours, but for what says how our kernels run."""
        return (PeerCell(self.name, item) for item in self.ours.smaller(cell.of) if item == item.problem)

    def declared(self, name: str) -> Peer:
        """What the kernel's side is told of it."""
        return Peer(name)


def peers_of(ours: Ours) -> dict[str, PeerKernel]:
    """Every peer, held to the limits of ours."""
    return {name: PeerKernel(name, ours) for name in PEERS}
