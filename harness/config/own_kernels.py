"""matrix.yaml that names its kernels: the pydantic model of the file, and what it says as a Matrix."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from fmha.harness.config.kernels import Gates, Held, Key, MatrixKernel, parse
from fmha.harness.config.matrix_document import (
    FileSection,
    GatesSection,
    GuardSection,
    LimitsSection,
    Name,
    ResourcesSection,
    ThresholdsSection,
    thresholds_section,
)
from fmha.harness.config.matrix_model import Guard, Later, LaterGuard, Matrix, RandomSuite
from fmha.harness.config.ours import guard_of, ours_of
from fmha.harness.config.own_random import DrawnValues, NothingLeftError, fault, smaller
from fmha.harness.config.peer_kernels import peers_of
from fmha.harness.config.section import Section, wrong
from fmha.harness.config.suites import MOST_CONFIGURATIONS, SuiteSection
from fmha.harness.config.validation import conforming
from fmha.harness.config.yaml_lines import Document, FieldPath
from fmha.harness.errors import ConfigError
from fmha.harness.judge.case import Case, Value, case_of, parse_case
from fmha.harness.judge.case import Field as AdapterField
from fmha.harness.judge.configuration import OURS
from fmha.harness.judge.limits import ResourceLimits, Thresholds
from fmha.harness.judge.metrics import OF_ANY_KERNEL, Metric
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.adapter_process import AdapterError

if TYPE_CHECKING:
    from fmha.harness.contract.protocol import Cell, Variant
    from fmha.harness.worker.planner.sides import Declares
    from fmha.harness.worker.subjects.adapter_answers import Description

T = TypeVar("T")
MOST_NAME: Final = 100  # characters of a kernel's name: builds are files that are named by it, and by more
_LIMITS: Final = {"build_seconds": 300, "configuration_silence_seconds": 60, "configuration_total_seconds": 300}
BROUGHT: Final = "fmha"  # in the place of an adapter: the attention kernels, whose name is OURS
Place = Annotated[str, StringConstraints(pattern=r"^(fmha|[^:]+\.py:[A-Za-z_]\w*)$")]
Axes = dict[str, list[Value]]


class OwnSuiteSection(Section):
    """`axes` and `grids` are lists whose cartesian product is run, by the names of the kernel's fields. `random` draws
    `cases` between bounds of those fields."""

    kernel: Name | None = None
    axes: Axes | None = None
    grids: list[Axes] = Field(default=[])
    cases: list[str] = Field(default=[])
    random: dict[str, int | list[Value]] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.random is not None and (self.axes or self.grids or self.cases):
            raise wrong(("random",), "stands alone in its suite")
        return self

    def parts(self) -> Iterator[tuple[FieldPath, Axes]]:
        """Axes, or each of several grids of them, with their place in the file."""
        if self.axes is not None:
            yield ("axes",), self.axes
        for index, axes in enumerate(self.grids):
            yield ("grids", index), axes


def own_thresholds_section(metrics: Mapping[str, Metric]) -> type[ThresholdsSection]:
    """The limits of a kernel of one's own. What came after the first three may be left out, so that a matrix.yaml
    from before it is one still: then it is no gate there."""
    return thresholds_section("OwnThresholdsSection", metrics, lambda metric: ... if metric.required else None)


if TYPE_CHECKING:
    OwnThresholdsSection = ThresholdsSection
else:
    OwnThresholdsSection = own_thresholds_section(OF_ANY_KERNEL)


class KernelGatesSection(Section):
    """The gates of a kernel of one's own."""

    default: OwnThresholdsSection
    resources: ResourcesSection | None = None

    def gates(self) -> Gates:
        """As stages have them."""
        most = ResourceLimits(**self.resources.model_dump()) if self.resources else None
        return Gates(Thresholds(self.default.limits()), most, None)


class OwnGatesSection(KernelGatesSection):
    """The same, with the guard's own limits."""

    guard: OwnThresholdsSection | None = None


class OwnGuardSection(Section):
    """The case that is run first."""

    case: str


class KernelSection(Section):
    """An adapter, or its place alone. `gates` are those of the file unless the kernel has its own."""

    adapter: Place
    gates: KernelGatesSection | None = None


def _spelt_out(value: Any) -> Any:
    return {"adapter": value} if isinstance(value, str) else value


class KernelsFile(FileSection):
    """What every file with a section `kernels` has. What a suite says depends on its kernel."""

    kernels: dict[Name, Annotated[KernelSection, BeforeValidator(_spelt_out)]] = Field(min_length=1)
    suites: dict[Name, dict[str, Any]] = Field(min_length=1)
    limits: LimitsSection

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, said: Any) -> Any:
        """What a first file need not say: the suite that runs by default is its first one."""
        if not isinstance(said, dict):
            return said
        suites = said.get("suites")
        first = {"default_suite": next(iter(suites))} if isinstance(suites, dict) and suites else {}
        return {**first, "seed": 0, "limits": dict(_LIMITS), **said}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_suites(self.suites)
        for name, kernel in self.kernels.items():
            if len(name) > MOST_NAME:
                raise wrong(("kernels", name), f"a name has at most {MOST_NAME} characters, and this one {len(name)}")
            if (name == OURS) != (kernel.adapter == BROUGHT):
                raise wrong(("kernels", name), f"{OURS} is the name of the kernels of {BROUGHT}, and of no others")
        if OURS in self.kernels and self.kernels[OURS].gates:
            raise wrong(("kernels", OURS, "gates"), "are those of the file")
        for name, suite in self.suites.items():
            said = suite.get("kernel")
            if said is None and len(self.kernels) > 1 and OURS not in self.kernels:
                raise wrong(("suites", name, "kernel"), "is required where there are several kernels")
            if said is not None and said not in self.kernels:
                raise wrong(("suites", name, "kernel"), f"must be one of {', '.join(self.kernels)}")
        return self

    def kernel_of(self, suite: str) -> str:
        """Without a word about it, ours where the file has them, else the only one."""
        found: str | None = self.suites[suite].get("kernel")
        return found or (OURS if OURS in self.kernels else next(iter(self.kernels)))


class OwnMatrixFile(KernelsFile):
    """That of a repository's own kernels alone."""

    gates: OwnGatesSection
    guard: OwnGuardSection


class MixedMatrixFile(KernelsFile):
    """That of ours and of others: gates and guard are as ours have them."""

    gates: GatesSection
    guard: GuardSection


@dataclass(frozen=True)
class OwnKernel:
    """A kernel of one's own: how matrix.yaml names it, its adapter, that file's sha256, its gates.

    The adapter is asked when something of it is first needed; `problem` says where in matrix.yaml it is named.
    """

    name: str
    adapter: Adapter = field(compare=False)
    sha256: str
    held_to: Gates
    problem: Callable[[str], str] = field(repr=False, compare=False)

    @property
    def prefix(self) -> str:
        return f"{self.name}_"

    @property
    def where(self) -> str:
        return self.adapter.where

    @property
    def path(self) -> str:
        """Of the adapter, below the root."""
        return self.adapter.file

    @property
    def files(self) -> Mapping[str, str]:
        return {self.path: self.sha256}

    @functools.cached_property
    def description(self) -> Description:
        """What the adapter declares. ConfigError, with the file's line, where it raises."""
        try:
            return self.adapter.description
        except AdapterError as error:
            text = f"{error.where}: {error.what}"
            raise ConfigError([self.problem(text)]) from error

    @property
    def fields(self) -> tuple[AdapterField, ...]:
        """The fields of its cases."""
        return self.description.fields

    @property
    def watched(self) -> tuple[str, ...]:
        said = self.description
        return (self.path, *([said.source] if said.source else []), *said.sources)

    @property
    def gates(self) -> Gates:
        """Where nothing is built, there are no resources."""
        return self.held_to if self.description.source else replace(self.held_to, resources=None)

    @property
    def held(self) -> Held:
        return (self.gates.thresholds,) * 4, self.gates.resources, None

    @property
    def keys(self) -> Mapping[str, Key]:
        """One key a field."""
        return {item.name: Key(item.name, item.choices) for item in self.fields}

    def parse(self, name: str) -> Case:
        case = parse_case(self.name, self.fields, name)
        if fault := self.adapter.fault(case):
            raise ValueError(fault)
        return case

    def is_guard(self, cell: Case, guard: Guard) -> bool:
        """Whether it is the case that is named as the guard."""
        return cell == guard.fallback

    def gates_for(self, cell: Case) -> Gates:
        return self.gates

    def peer_of(self, cell: Cell) -> None:
        """It has configurations of its own alone."""

    def smaller(self, cell: Case) -> Iterator[Case]:
        return smaller(self.name, self.adapter, cell)

    def declared(self, name: str) -> Declares:
        return _Planned(self.adapter)


class _Planned:
    """What builds and launches a kernel, of which kind its adapter is not asked before."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def built_in(self, tree: Path) -> None:
        self.adapter.built_in(tree)

    def variant_for(self, configuration: Any, arch: str) -> Variant | str:
        return self._subject.variant_for(configuration, arch)

    @functools.cached_property
    def _subject(self) -> Declares:
        from fmha.harness.worker.subjects.called import subject_of  # NumPy, which only who plans waits for

        return subject_of(self.adapter)


def kernels_matrix(document: Document, sha256: str, root: Path) -> tuple[FileSection, Matrix]:
    """A file with a section `kernels`; those that it names are loaded. Raises ConfigError with one line a problem."""
    named = document.data["kernels"]
    if isinstance(named, dict) and (OURS in named or BROUGHT in named.values()):
        mixed = conforming(MixedMatrixFile, document.data, document)
        ours = ours_of(mixed.gates)
        usual = {name: limit for name, limit in ours.gates.thresholds.limits.items() if name in OF_ANY_KERNEL}
        fallback = Gates(Thresholds(usual), ours.gates.resources, None)
        kernels: dict[str, MatrixKernel] = {OURS: ours, **peers_of(ours), **_declared(mixed, fallback, document, root)}
        return mixed, _matrix(mixed, kernels, guard_of(mixed.guard, mixed.gates), document, sha256, root)
    file = conforming(OwnMatrixFile, document.data, document)
    gates = file.gates
    kernels = dict(_declared(file, gates.gates(), document, root))
    guarded = Thresholds((gates.guard or gates.default).limits())
    guard = LaterGuard(partial(_parsed, file.guard.case, kernels, document, ("guard", "case")), guarded)
    return file, _matrix(file, kernels, guard, document, sha256, root)


def _matrix(
    file: KernelsFile,
    kernels: dict[str, MatrixKernel],
    guard: Guard,
    document: Document,
    sha256: str,
    root: Path,
) -> Matrix:
    suites: dict[str, Callable[[], tuple[Cell, ...]]] = {}
    random: dict[str, Callable[[], RandomSuite]] = {}
    for name in file.suites:
        at: FieldPath = ("suites", name)
        kernel = kernels[file.kernel_of(name)]
        if not isinstance(kernel, OwnKernel):
            said = {key: value for key, value in file.suites[name].items() if key != "kernel"}
            ours = conforming(SuiteSection, said, document, at)
            if (drawn := ours.drawn()) is not None:
                random[name] = partial(_itself, drawn)
            else:
                suites[name] = partial(_itself, tuple(ours.configurations()))
            continue
        section = conforming(OwnSuiteSection, file.suites[name], document, at)
        if section.random is not None:
            random[name] = partial(_random, kernel, section.random, document, (*at, "random"))
        else:
            suites[name] = partial(_listed, section, kernel, kernels, document, at)
    matrix = Matrix(
        default_suite=",".join(file.default_suites),
        seed=file.seed,
        suites={},
        random_suites=Later(random),
        guard=guard,
        limits=file.limits.limits(),
        hosts={name: host.settings(name) for name, host in file.hosts.items()},
        sha256=sha256,
        kernels=kernels,
        root=str(root),
    )
    return replace(matrix, suites=Later({name: partial(_ordered, matrix, made) for name, made in suites.items()}))


def _itself(value: T) -> T:
    return value


def _ordered(matrix: Matrix, made: Callable[[], tuple[Cell, ...]]) -> tuple[Cell, ...]:
    return matrix.ordered(made())


def _listed(
    section: OwnSuiteSection,
    kernel: OwnKernel,
    kernels: Mapping[str, MatrixKernel],
    document: Document,
    at: FieldPath,
) -> tuple[Cell, ...]:
    return tuple(dict.fromkeys(_cases(section, kernel, kernels, document, at)))


def _random(kernel: OwnKernel, said: Mapping[str, Any], document: Document, at: FieldPath) -> RandomSuite:
    bounds = {key: value if isinstance(value, list) else [value] for key, value in said.items() if key != "cases"}
    cases = said.get("cases")
    if not isinstance(cases, int) or not 1 <= cases <= MOST_CONFIGURATIONS:
        raise ConfigError([document.problem((*at, "cases"), f"must be from 1 to {MOST_CONFIGURATIONS}")])
    if problem := fault(bounds, kernel.fields):
        raise ConfigError([document.problem((*at, problem[0]), problem[1])])
    space = DrawnValues(kernel.name, tuple((key, tuple(values)) for key, values in bounds.items()), kernel.adapter)
    try:
        space.draw(0, cases)
    except NothingLeftError as error:
        raise ConfigError([document.problem(at, f"{error.what}; ask for fewer")]) from error
    return RandomSuite(space, cases)


def _declared(file: KernelsFile, usual: Gates, document: Document, root: Path) -> dict[str, OwnKernel]:
    found = {}
    for name, section in file.kernels.items():
        if (where := section.adapter) == BROUGHT:
            continue
        problem = partial(document.problem, ("kernels", name))
        try:
            digest = hashlib.sha256((root / where.rpartition(":")[0]).read_bytes()).hexdigest()
        except OSError as error:
            raise ConfigError([problem(f"{root}: {where}: no such file")]) from error
        adapter = Adapter(root, where, name, limit_seconds=file.limits.build_seconds, plans=True)
        found[name] = OwnKernel(name, adapter, digest, section.gates.gates() if section.gates else usual, problem)
    return found


def _cases(
    section: OwnSuiteSection,
    own: OwnKernel,
    kernels: Mapping[str, MatrixKernel],
    document: Document,
    at: FieldPath,
) -> Iterator[Cell]:
    made: list[tuple[FieldPath, Case]] = []
    for part, axes in section.parts():
        for values in product(*axes.values()):
            if len(made) >= MOST_CONFIGURATIONS:
                raise ConfigError([document.problem((*at, *part), f"more than {MOST_CONFIGURATIONS} configurations")])
            try:
                case = case_of(own.name, own.fields, dict(zip(axes, values, strict=True)))
            except ValueError as error:
                raise ConfigError([document.problem((*at, *part), str(error))]) from error
            made.append((part, case))
    for (part, case), problem in zip(made, own.adapter.faults([case for _, case in made]), strict=True):
        if problem:
            raise ConfigError([document.problem((*at, *part), f"{problem}, in {case.id}")])
        yield case
    for index, name in enumerate(section.cases):
        yield _parsed(name, kernels, document, (*at, "cases", index))
    if not made and not section.cases:
        raise ConfigError([document.problem(at, "must declare axes, grids, cases or random")])


def _parsed(name: str, kernels: Mapping[str, MatrixKernel], document: Document, at: FieldPath) -> Cell:
    try:
        return parse(name, kernels)
    except ValueError as error:
        raise ConfigError([document.problem(at, f"{name}: {error}")]) from error
