"""matrix.yaml as the rest of the harness sees it: validated, expanded, frozen."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fmha.harness.config.hosts import HostSettings
from fmha.harness.config.random_cases import Space, draw_cases
from fmha.harness.metrics import METRICS
from fmha.harness.worker.case import Case, Field
from fmha.harness.worker.configuration import parse_id
from fmha.harness.worker.protocol import Cell, Configuration

if TYPE_CHECKING:
    from fmha.harness.kernel import Kernel

ALL = "all"  # every suite, where suites are named


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of one gate by the names of METRICS, in their order; docs/understand/gates.md defines them."""

    limits: Mapping[str, float]

    def laxer(self, other: Thresholds) -> Thresholds:
        """Of each limit, the one that more passes."""
        pairs = {name: (limit, other.limits[name]) for name, limit in self.limits.items()}
        return Thresholds({name: min(pair) if METRICS[name].least else max(pair) for name, pair in pairs.items()})


@dataclass(frozen=True, slots=True)
class Resources:
    """The most that one kernel may use: registers a thread; bytes of spills (stores and loads), of stack a thread, and
    of shared memory a CTA, static and dynamic."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Biases:
    """The most of what has a direction: of a configuration, and pooled over those of a run."""

    slope_bias: float
    lse_bias: float
    coarse: float
    pooled_slope: float
    pooled_lse: float


@dataclass(frozen=True, slots=True)
class RandomSuite:
    """Configurations drawn from a run's seed."""

    space: Space
    cases: int


@dataclass(frozen=True, slots=True)
class Guard:
    """The proven path: plain configurations of `head_dim` run first, `fallback` when a selection has none of them.

    Plain ones have sizes and nothing else: no mask, no sparse branch, one head. Of kernels of one's own `fallback` is
    the guard.
    """

    head_dim: int | None  # None: `fallback` alone
    fallback: Cell
    thresholds: Thresholds


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. Silence is the time a configuration may go without any word from its worker."""

    build_seconds: float
    silence_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class Declared:
    """A kernel of one's own: how matrix.yaml names it, its file below the root and that file's sha256."""

    where: str
    path: str
    sha256: str
    kernel: Kernel


@dataclass(frozen=True)
class Matrix:
    """All of matrix.yaml. Suites are never empty; their configurations have unique ids, those of the guard first.

    `bf16`, `extreme` and `steps` are the limits of configurations with that output or those data.
    """

    default_suite: str
    seed: int
    suites: Mapping[str, tuple[Cell, ...]]
    random_suites: Mapping[str, RandomSuite]
    thresholds: Thresholds
    guard: Guard
    bf16: Thresholds
    extreme: Thresholds
    steps: Thresholds
    resources: Resources | None
    biases: Biases | None
    limits: Limits
    hosts: Mapping[str, HostSettings]
    sha256: str
    kernels: Mapping[str, Declared] = field(default_factory=dict)  # of one's own; else the attention kernels
    root: str = ""  # where the files of `kernels` are

    @functools.cached_property
    def judged_sha256(self) -> str:
        """sha256 of what decides a verdict: suites, gates, guard and limits; not hosts or comments."""
        natures = (self.thresholds, self.guard, self.bf16, self.extreme, self.steps)
        gates = (*natures, self.resources, self.biases, self.limits)
        suites = tuple(sorted(items.items(), key=lambda item: item[0]) for items in (self.suites, self.random_suites))
        return hashlib.sha256(repr((self.default_suite, self.seed, suites, gates)).encode()).hexdigest()

    @property
    def own_files(self) -> Mapping[str, str]:
        """The sha256 of the files that declare kernels of one's own: their references are part of the judge."""
        return {kernel.path: kernel.sha256 for kernel in self.kernels.values()}

    @property
    def own_fields(self) -> tuple[Field, ...]:
        """Of the kernels of one's own, each name once."""
        found = {item.name: item for kernel in self.kernels.values() for item in kernel.kernel.fields}
        return tuple(found.values())

    @property
    def suite_names(self) -> tuple[str, ...]:
        return (*self.suites, *self.random_suites)

    def named(self, suites: str) -> tuple[str, ...]:
        """The suites that `--suite` and `default_suite` name: one, several with commas between, or all of them."""
        names = dict.fromkeys(name.strip() for name in suites.split(","))
        return self.suite_names if ALL in names else tuple(names)

    def configurations(self, suites: str, seed: int, cases: int | None = None) -> tuple[Cell, ...]:
        """Those of one suite or of several, each once; of a random one, `cases` of `seed`."""
        found = [item for suite in self.named(suites) for item in self._of(suite, seed, cases)]
        return self.ordered(dict.fromkeys(found))

    def _of(self, suite: str, seed: int, cases: int | None) -> Iterable[Cell]:
        if suite in self.suites:
            return self.suites[suite]
        random = self.random_suites[suite]
        return draw_cases(seed, random.cases if cases is None else cases, random.space)

    def ordered(self, configurations: Iterable[Cell]) -> tuple[Cell, ...]:
        """The guard's first, else as they come."""
        return tuple(sorted(configurations, key=lambda item: not self.is_guard(item)))

    def parse(self, name: str) -> Cell:
        """The configuration of a name. ValueError, which says what is wrong, for what no configuration's `id` is."""
        if not self.kernels:
            return parse_id(name)
        from fmha.harness.config.own_kernels import parse

        return parse(name, self.kernels)

    def is_guard(self, configuration: Cell) -> bool:
        item = configuration
        if isinstance(item, Case) or self.guard.head_dim is None:
            return item == self.guard.fallback
        return item == Configuration(self.guard.head_dim, item.t, item.s_k, item.batch)

    def thresholds_for(self, configuration: Cell) -> Thresholds:
        """The guard's limits, or the default ones, or the laxer of those that the configuration's nature calls for."""
        if self.is_guard(configuration):
            return self.guard.thresholds
        limits = self.thresholds
        if isinstance(configuration, Case):
            return limits
        if configuration.output == "bf16":
            limits = limits.laxer(self.bf16)
        if configuration.data == "extreme":
            limits = limits.laxer(self.extreme)
        if configuration.data == "steps":
            limits = limits.laxer(self.steps)
        return limits
