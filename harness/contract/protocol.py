"""What crosses the line between the client and the worker: jobs, events, build results.

Everything here is plain data that survives a round trip through JSON, so that the same worker can run on this machine
or on a remote host. Frozen dataclasses only; the worker has few dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from fmha.harness.judge.case import Case
from fmha.harness.judge.configuration import Configuration as Configuration
from fmha.harness.judge.configuration import Mask as Mask
from fmha.harness.judge.findings import FindingRecord as FindingRecord
from fmha.harness.judge.metrics import Bias as Bias
from fmha.harness.judge.metrics import Measurement as Measurement

# How P reaches the second product: through tensor memory, through shared memory, or from registers.
PPath = Literal["tmem", "smem", "registers"]
# In a worker's environment: how many threads its emulator has.
THREADS = "FMHA_THREADS"


@dataclass(frozen=True, slots=True)
class PeerCell:
    """A configuration of what is called instead of our kernels: a problem of theirs. Its fields are attributes."""

    kernel: str
    of: Configuration

    @property
    def id(self) -> str:
        """The peer's name and the problem's, as in records."""
        return f"{self.kernel}_{self.of.id}"

    @property
    def parameters(self) -> dict[str, Any]:
        """As a record has them."""
        return {"kernel": self.kernel, **self.of.parameters}

    @property
    def cost(self) -> float:
        """How long it takes, beside others."""
        return self.of.cost

    @property
    def extent(self) -> tuple[int, int]:
        """Sizes by which configurations are ordered."""
        return self.of.extent

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.of, name)


# A configuration of the attention kernels, of a kernel with an adapter, or of a peer of ours.
Cell = Configuration | Case | PeerCell


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """What a forward kernel was compiled for: query rows a CTA, keys a tile, tiles in flight, threads, shared bytes."""

    rows: int
    keys: int
    stages: int
    threads: int
    shared_bytes: int  # dynamic
    ctas: int = 1  # of a cluster, whose row tile has the rows of each

    @property
    def row_tile(self) -> int:
        """Query rows that the CTAs of a cluster work on together."""
        return self.rows * self.ctas


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled kernel: an entry of one source file under one set of defines."""

    name: str  # e.g. "sm100_hd64_ptmem"
    arch: str  # nvcc -arch, e.g. "sm_100a"
    source: str  # relative to the repository root
    entry: str  # its symbol, or what C++ calls it
    head_dim: int | None  # this and the next: of attention
    p_path: PPath | None
    shape: LaunchShape
    defines: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()  # nvcc's beside -arch and -D; empty: the recipe's
    sources: tuple[str, ...] = ("kernel",)  # files and folders that a build reads
    compiler: str = ""  # the adapter that compiles it, FILE.py:CLASS and its kernel's name; empty: nvcc does
    example: str = field(default="", compare=False)  # a case of it, for that adapter
    combine: str = ""  # the entry, in the same module, that merges the partial results of splits; empty: there is none
    others: tuple[str, ...] = ()  # further entries of the module that an adapter's launches name
    symbols: tuple[tuple[str, str], ...] = field(default=(), compare=False)  # of entries named as in C++, once built

    def symbol(self, entry: str) -> str:
        """What an entry is called in the module."""
        return dict(self.symbols).get(entry, entry)


@dataclass(frozen=True, slots=True)
class Resources:
    """ptxas -v figures of one entry. Bytes, except registers a thread."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared_static: int


@dataclass(frozen=True, slots=True)
class BuildResult:
    """One variant after the build stage. Paths are absolute; empty when `error` is set."""

    variant: Variant
    ptx: str
    cubin: str
    resources: Resources | None
    source_hash: str  # sha256 over the kernel sources that the build read
    nvcc: str  # version line
    flags: tuple[str, ...]
    seconds: float
    cached: bool
    error: str | None = None
    combine_resources: Resources | None = None  # of the combine entry, or the most of `others`, where there are some
    processor_seconds: float | None = None  # that the compilers took; None for a build from the cache
    special_registers: tuple[str, ...] = ()  # that its PTX reads and that say something of the machine, with the place


@dataclass(frozen=True, slots=True)
class Beside:
    """Builds of another commit, to be timed beside the job's own; `reason` says why a variant that is missing is."""

    commit: str
    builds: tuple[BuildResult, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker process is asked to do."""

    device: str  # "emulator"
    builds: tuple[BuildResult, ...]
    configurations: tuple[Cell, ...]
    seed: int
    schedules: tuple[str, ...] = ("realistic",)  # each configuration runs under all; names as in schedules.py
    beside: Beside | None = None
    noise_seeds: tuple[int, ...] = ()  # under which each configuration is measured as well, on the first schedule
    kernels: dict[str, str] = field(default_factory=dict)  # of one's own: FILE.py:CLASS by name
    root: str = ""  # where those files are
    kernel_side: str = ""  # a checkout whose code launches the kernels; empty: that of the worker itself
    workers: int = 0  # at once, at the most; 0: as many as the host has and as help
    costs: dict[str, float] = field(default_factory=dict)  # seconds that configurations have taken before, by id
    timed: bool = False  # each configuration alone, where the device has a clock and `beside` is None
    also: dict[str, str] = field(default_factory=dict)  # further schedules of configurations, with commas, by id
    tolerances: dict[str, float] = field(default_factory=dict)  # the gates of `max_error` of one's own kernels, by id
    # What the kernel's side of one's own kernels has said of configurations while the run was planned, by their ids.
    planned: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: int = 1  # of each configuration, handed out by themselves: one has every so-manieth of its schedules
    schema: int = 2


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a device does at most, and how it was under that load: medians, and what held it back."""

    bytes_per_second: float  # of a copy, read and written
    operations_per_second: float | None  # of a dense bf16 product; None where nobody could measure it
    clock_mhz: float | None = None
    watts: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a launch in each round, of this build and of the one of commit `beside`, which is empty where it was
    timed alone; SM clocks in MHz, or none. What the device does at most was measured beside it, where it can be."""

    seconds: tuple[float, ...]
    clock_mhz: tuple[float, ...]
    beside: str
    beside_seconds: tuple[float, ...]
    beside_clock_mhz: tuple[float, ...]
    ceilings: Ceilings | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A configuration's numbers under another seed."""

    seed: int
    measurement: Measurement
    findings: tuple[FindingRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Met:
    """A configuration's numbers under another schedule."""

    schedule: str
    measurement: Measurement
    findings: tuple[FindingRecord, ...] = ()


EventKind = Literal["started", "result", "error", "done", "note"]


@dataclass(frozen=True, slots=True)
class Event:
    """One JSON line from the worker.

    `started` names a configuration about to run; `result` carries its measurement; `error` says why it has none
    (`status` is one of the statuses in docs/understand/architecture.md); `done` closes the stream. `note` is about no
    configuration: its `message` is for people. `place` says which of several machines or GPUs it ran on. A worker says
    this of a part where a job has several; nobody else hears of parts.
    """

    event: EventKind
    config: str = ""
    measurement: Measurement | None = None
    findings: tuple[FindingRecord, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    status: str = ""
    message: str = ""
    timing: Timed | None = None
    noise: tuple[Drawn, ...] = ()
    met: tuple[Met, ...] = ()
    place: str = ""
    stopped: bool = False  # of `not-run`: somebody ended the run before it, and nothing is said of the kernel
    under: tuple[tuple[str, str], ...] = ()  # of a part's result: its schedules, each with the hash of its outputs
