"""What the loop asks of a kernel of the matrix, before anything of it is built: the client's half of a kernel.

Ours and those of a repository's own answer alike; whoever asks never has to know which it is. The other half, which
runs beside the device, is `Subject` of fmha.harness.worker.subjects.subject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fmha.harness.config.matrix_model import Guard
    from fmha.harness.contract.protocol import Cell
    from fmha.harness.judge.limits import Biases, ResourceLimits, Thresholds
    from fmha.harness.worker.planner.sides import Declares


@dataclass(frozen=True, slots=True)
class Key:
    """What `--filter` calls a field: the attribute of a configuration, and its choices; none for a whole number."""

    attribute: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gates:
    """All that a configuration is held to."""

    thresholds: Thresholds
    resources: ResourceLimits | None
    biases: Biases | None


# The limits, of the usual configurations first; then the most resources and the most bias.
Held = tuple[tuple["Thresholds", ...], "ResourceLimits | None", "Biases | None"]


class MatrixKernel(Protocol):
    """A kernel that matrix.yaml has. Configurations given to it are its own."""

    @property
    def prefix(self) -> str:
        """What names of its configurations begin with, and one more `_`; of several that fit the longest is meant."""

    @property
    def where(self) -> str:
        """FILE.py:CLASS of its adapter; empty for what comes with fmha."""

    @property
    def files(self) -> Mapping[str, str]:
        """The sha256 of files that declare it: its reference is part of the judge."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Files and folders from the root whose change may change what is built."""

    @property
    def held(self) -> Held:
        """All its gates, in an order that never changes: of them a digest is made."""

    @property
    def keys(self) -> Mapping[str, Key]:
        """What a filter can ask for, by key."""

    def parse(self, name: str) -> Cell:
        """The configuration of a name. ValueError, which says what is wrong, for what no configuration's `id` is."""

    def is_guard(self, cell: Any, guard: Guard) -> bool:
        """Whether it is one of the configurations that are run first."""

    def gates_for(self, cell: Any) -> Gates:
        """Of a configuration that is not the guard's."""

    def peer_of(self, cell: Cell) -> Cell | None:
        """Its configuration of another kernel's problem; None unless it is there to be called in that one's place."""

    def smaller(self, cell: Any) -> Iterator[Cell]:
        """Legal configurations one step simpler, the boldest first."""

    def declared(self, name: str) -> Declares | None:
        """What builds and launches it, ready for use; None for what the commit's own fmha brings."""


def parse(name: str, kernels: Mapping[str, MatrixKernel]) -> Cell:
    """The configuration of a name. ValueError, which says what is wrong, for what no configuration's `id` is."""
    fitting = [kernel for kernel in kernels.values() if f"{name}_".startswith(kernel.prefix)]
    if not fitting:
        raise ValueError(f"no kernel is named so; names begin with one of {', '.join(kernels)}")
    return max(fitting, key=lambda kernel: len(kernel.prefix)).parse(name)
