"""matrix.yaml as the rest of the harness sees it: validated, expanded, frozen."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fmha.harness.config.kernels import Gates, Key, MatrixKernel, parse
from fmha.harness.config.settings import HostSettings
from fmha.harness.contract.protocol import Cell
from fmha.harness.errors import UserError
from fmha.harness.judge.limits import Biases, Thresholds

T = TypeVar("T")
ALL = "all"  # every suite, where suites are named


class DrawnSpace(Protocol):
    """What configurations are drawn from."""

    def draw(self, seed: int, count: int) -> Sequence[Cell]:
        """`count` different ones; the first ones stay the same when more are drawn."""


@dataclass(frozen=True, slots=True)
class RandomSuite:
    """Configurations drawn from a run's seed."""

    space: DrawnSpace
    cases: int


@dataclass(frozen=True, slots=True)
class Guard:
    """The proven path: plain configurations of `head_dim` run first, `fallback` when a selection has none of them.

    Plain ones have sizes and nothing else: no mask, no sparse branch, one head.
    """

    head_dim: int | None  # None: `fallback` alone
    fallback: Cell
    thresholds: Thresholds


class LaterGuard(Guard):
    """A guard of one configuration, which is read when it is first asked for: an adapter says what its name means."""

    __slots__ = ("_found", "_read")
    _found: Cell | None
    _read: Callable[[], Cell]

    def __init__(self, read: Callable[[], Cell], thresholds: Thresholds) -> None:
        for name, value in (("head_dim", None), ("thresholds", thresholds), ("_read", read), ("_found", None)):
            object.__setattr__(self, name, value)

    @property
    def fallback(self) -> Cell:
        """The configuration that guards where none is selected, read when it is first asked for."""
        if (found := self._found) is None:
            object.__setattr__(self, "_found", found := self._read())
        return found

    def __repr__(self) -> str:
        return repr(Guard(None, self.fallback, self.thresholds))


class Later(Mapping[str, T]):
    """Values by name, each made when it is first asked for; the names are known before."""

    def __init__(self, makers: Mapping[str, Callable[[], T]]) -> None:
        self._makers = makers
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds. Silence is the time a configuration may go without any word from its worker."""

    build_seconds: float
    silence_seconds: float
    total_seconds: float


@dataclass(frozen=True)
class Matrix:
    """All of matrix.yaml. Suites are never empty; their configurations have unique ids, those of the guard first.

    What an adapter has to say (suites of its kernel, the guard's configuration, keys of filters) is asked of it when it
    is first needed: who only looks starts no program of the repository's.
    """

    default_suite: str
    seed: int
    suites: Mapping[str, tuple[Cell, ...]]
    random_suites: Mapping[str, RandomSuite]
    guard: Guard
    limits: Limits
    hosts: Mapping[str, HostSettings]
    sha256: str
    kernels: Mapping[str, MatrixKernel]  # at least one
    root: str = ""  # where files of kernels are that are a repository's own

    def complete(self) -> Matrix:
        """Itself, with all that adapters have to say. Raises ConfigError for what is wrong with that."""
        assert self.judged_sha256
        return self

    @functools.cached_property
    def judged_sha256(self) -> str:
        """sha256 of what decides a verdict: suites, gates, guard and limits; not hosts or comments."""
        held, *others = (kernel.held for kernel in self.kernels.values())
        (usual, *natures), resources, biases = held
        gates = (usual, self.guard, *natures, resources, biases, self.limits)
        suites = tuple(sorted(items.items(), key=lambda item: item[0]) for items in (self.suites, self.random_suites))
        said: tuple[object, ...] = (self.default_suite, self.seed, suites, gates)
        said += (others,) if any(other != held for other in others) else ()
        return hashlib.sha256(repr(said).encode()).hexdigest()

    @property
    def files(self) -> Mapping[str, str]:
        """The sha256 of the files that declare kernels: their references are part of the judge."""
        return {path: digest for kernel in self.kernels.values() for path, digest in kernel.files.items()}

    @property
    def keys(self) -> Mapping[str, Mapping[str, Key]]:
        """What `--filter` calls the fields of each kernel."""
        return {name: kernel.keys for name, kernel in self.kernels.items()}

    @property
    def places(self) -> dict[str, str]:
        """Where the adapters are, FILE.py:CLASS by the kernel's name; of those alone that have one."""
        return {name: kernel.where for name, kernel in self.kernels.items() if kernel.where}

    @property
    def biases(self) -> Biases | None:
        """What is held of all configurations together that are measured for it."""
        return next((biases for kernel in self.kernels.values() if (biases := kernel.held[2])), None)

    @property
    def suite_names(self) -> tuple[str, ...]:
        """Of both kinds, in the order of the file."""
        return (*self.suites, *self.random_suites)

    def named(self, suites: str) -> tuple[str, ...]:
        """The suites that `--suite` and `default_suite` name: one, several with commas between, or all of them."""
        names = dict.fromkeys(name.strip() for name in suites.split(","))
        return self.suite_names if ALL in names else tuple(names)

    def known(self, suites: str) -> tuple[str, ...]:
        """The same, all of which there are. UserError for one that there is none of."""
        names = self.named(suites)
        for name in names:
            if name not in self.suite_names:
                hint = f"matrix.yaml has {', '.join(self.suite_names)}; {ALL} is every one"
                raise UserError(f"no suite is named {name!r}", next_step=hint)
        return names

    def configurations(self, suites: str, seed: int, cases: int | None = None) -> tuple[Cell, ...]:
        """Those of one suite or of several, each once; of a random one, `cases` of `seed`."""
        return self.ordered(self.suites_of(suites, seed, cases))

    def suites_of(self, suites: str, seed: int, cases: int | None = None) -> dict[Cell, tuple[str, ...]]:
        """The same, each with those of the suites that have it."""
        found: dict[Cell, tuple[str, ...]] = {}
        for suite in self.named(suites):
            for item in dict.fromkeys(self._of(suite, seed, cases)):
                found[item] = (*found.get(item, ()), suite)
        return found

    def drawn_of(self, suites: str, cases: int | None = None) -> dict[str, int]:
        """How many configurations are drawn of each random one of the suites."""
        return {
            suite: self.random_suites[suite].cases if cases is None else cases
            for suite in self.named(suites)
            if suite in self.random_suites
        }

    def _of(self, suite: str, seed: int, cases: int | None) -> Iterable[Cell]:
        if suite in self.suites:
            return self.suites[suite]
        random = self.random_suites[suite]
        return random.space.draw(seed, random.cases if cases is None else cases)

    def with_peers(self, configurations: Iterable[Cell], kernels: Sequence[str]) -> tuple[Cell, ...]:
        """And the problems among them as configurations of those of `kernels` that are peers, each once."""
        found: dict[Cell, None] = {}
        for item in configurations:
            found[item] = None
            for name in kernels:
                if (peer := self.kernels[name].peer_of(item)) is not None:
                    found[peer] = None
        return tuple(found)

    def ordered(self, configurations: Iterable[Cell]) -> tuple[Cell, ...]:
        """The guard's first, else as they come."""
        return tuple(sorted(configurations, key=lambda item: not self.is_guard(item)))

    def parse(self, name: str) -> Cell:
        """The configuration of a name. ValueError, which says what is wrong, for what no configuration's `id` is."""
        return parse(name, self.kernels)

    def is_guard(self, configuration: Cell) -> bool:
        """Whether it is run first, and stops the run where it fails."""
        name = configuration.kernel
        return name == self.guard.fallback.kernel and self.kernels[name].is_guard(configuration, self.guard)

    def thresholds_for(self, configuration: Cell) -> Thresholds:
        """The limits that hold for it."""
        return self.gates_for(configuration).thresholds

    def gates_for(self, configuration: Cell) -> Gates:
        """Of its kernel, and of the guard's limits where it is one."""
        gates = self.kernels[configuration.kernel].gates_for(configuration)
        return replace(gates, thresholds=self.guard.thresholds) if self.is_guard(configuration) else gates
