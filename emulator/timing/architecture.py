"""What the timing model knows of a GPU: emulator/timing/NAME.yaml, each constant with its source and how sure it is."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

NAMES: Final = ("h200", "h100", "b200", "gb200", "gb300")


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the model of time, with its doubt and its source."""

    value: float
    within: str  # how far it may be off: "5%" of the value, or in its own unit, as in "0.2 us"
    source: str

    @property
    def room(self) -> float:
        """How far it may be off, in its own unit."""
        if self.within.endswith("%"):
            return abs(self.value) * float(self.within.rstrip("%")) / 100
        return float(self.within.split()[0])


@dataclass(frozen=True, slots=True)
class Architecture:
    """`times` are the core's constants by name, in cycles of `clock_mhz`, bytes, or bytes a cycle."""

    name: str
    gpu: str
    arch: str
    multiprocessors: int
    registers: int
    clusters: Mapping[int, int]  # of a number of CTAs, one an SM: how many it holds, where its SMs would hold more
    clock_mhz: Constant
    power_clock_mhz: Constant  # at which the tensor pipe may be busy all the time
    power_always: Constant  # of the SMs' power at that clock, the part that does not come from the tensor pipe
    power_memory: Constant  # of the GPU's limit, what memory takes at its full rate
    launch_us: Constant
    combine_us: Constant  # of a launch that overlaps the one before it
    l2_capacity: Constant  # bytes
    l2_partitions: Constant  # each holds what the SMs next to it read
    l2_sharing: Constant  # SMs next to one another to which L2 delivers once what they read together, at most
    l2_sharing_first: Constant  # the same in the first turn, when all begin together
    times: Mapping[str, Constant]

    @property
    def values(self) -> dict[str, float]:
        """The constants alone, by name."""
        return {name: constant.value for name, constant in self.times.items()}


@functools.cache
def architecture(name: str) -> Architecture:
    """The constants of a GPU, one of NAMES, or of a file that `fmha calibrate` wrote; ValueError for another."""
    if not known(name):
        raise ValueError(f"timing {name!r} is not one of {', '.join(NAMES)}")
    document = _document(name)
    for told in ("probes", "calls"):  # what a record has beside constants
        document.pop(told, None)
    times = {key: _constant(entry) for key, entry in document.pop("times").items()}
    clusters = MappingProxyType(document.pop("clusters"))
    given: dict[str, Any] = {k: _constant(entry) if isinstance(entry, dict) else entry for k, entry in document.items()}
    return Architecture(name=name, times=MappingProxyType(times), clusters=clusters, **given)


def known(name: str) -> bool:
    """Whether there are constants of that name, or in a file of that name."""
    return name in NAMES or (name.endswith(".yaml") and Path(name).is_file())


def _document(name: str) -> dict[str, Any]:
    """What the file says, over what that of the GPU says which it is `like`."""
    path = Path(__file__).parent / f"{name}.yaml" if name in NAMES else Path(name)
    said: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "like" not in said:
        return said
    base = _document(said.pop("like"))
    return base | said | {"times": base["times"] | said.get("times", {})}


def _constant(entry: Mapping[str, Any]) -> Constant:
    return Constant(float(entry["value"]), str(entry["within"]), str(entry["from"]))
