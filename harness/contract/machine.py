"""The machine of a run, and its GPUs, as hosts tell of them and a record has them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores` are those this process may use."""

    cpu: str
    cores: int = field(metadata={"description": "cores this run was allowed to use", "ge": 1})
    system: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a run, as its driver names it."""

    name: str = field(metadata={"description": 'as the driver names it, e.g. "NVIDIA B200"'})
    uuid: str
    driver: str
