"""matrix.yaml that names its kernels: the pydantic model of the file, and what it says as a Matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from fmha.harness.config.document import (
    FileSection,
    GatesSection,
    GuardSection,
    LimitsSection,
    Name,
    ResourcesSection,
    ThresholdsSection,
    thresholds_section,
)
from fmha.harness.config.kernels import Gates, Held, Key, MatrixKernel, parse
from fmha.harness.config.model import Guard, Matrix, RandomSuite
from fmha.harness.config.ours import guard_of, ours_of
from fmha.harness.config.own_random import Drawn, NothingLeftError, fault, smaller
from fmha.harness.config.peers import peers_of
from fmha.harness.config.section import Section, wrong
from fmha.harness.config.suites import MOST_CONFIGURATIONS, SuiteSection
from fmha.harness.config.validation import conforming
from fmha.harness.config.yaml_lines import Document, FieldPath
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.judge.case import Case, Value, case_of, parse_case
from fmha.harness.judge.configuration import OURS
from fmha.harness.judge.limits import Resources, Thresholds
from fmha.harness.judge.metrics import OF_ANY_KERNEL

if TYPE_CHECKING:
    from fmha.harness.contract.protocol import Cell
    from fmha.harness.worker.apart import Declares
    from fmha.harness.worker.subjects.kernel import Kernel

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
        if self.axes is not None:
            yield ("axes",), self.axes
        for index, axes in enumerate(self.grids):
            yield ("grids", index), axes


if TYPE_CHECKING:
    OwnThresholdsSection = ThresholdsSection
else:
    OwnThresholdsSection = thresholds_section("OwnThresholdsSection", OF_ANY_KERNEL, None)


class KernelGatesSection(Section):
    default: OwnThresholdsSection
    resources: ResourcesSection | None = None

    def gates(self) -> Gates:
        most = Resources(**self.resources.model_dump()) if self.resources else None
        return Gates(Thresholds(self.default.limits()), most, None)


class OwnGatesSection(KernelGatesSection):
    guard: OwnThresholdsSection | None = None


class OwnGuardSection(Section):
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_suites(self.suites)
        for name, kernel in self.kernels.items():
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


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """A kernel of one's own: how matrix.yaml names it and its adapter, that file's sha256, its gates."""

    name: str
    where: str
    sha256: str
    kernel: Kernel
    gates: Gates

    @property
    def prefix(self) -> str:
        return f"{self.name}_"

    @property
    def path(self) -> str:
        """Of the adapter, below the root."""
        return self.where.rpartition(":")[0]

    @property
    def files(self) -> Mapping[str, str]:
        return {self.path: self.sha256}

    @property
    def watched(self) -> tuple[str, ...]:
        source = self.kernel.source
        return (self.path, *([source] if source else []), *self.kernel.sources)

    @property
    def held(self) -> Held:
        return (self.gates.thresholds,) * 4, self.gates.resources, None

    @property
    def keys(self) -> Mapping[str, Key]:
        return {item.name: Key(item.name, item.choices) for item in self.kernel.fields}

    def parse(self, name: str) -> Case:
        case = parse_case(self.name, self.kernel.fields, name)
        if fault := self.kernel.fault(case):
            raise ValueError(fault)
        return case

    def is_guard(self, cell: Case, guard: Guard) -> bool:
        return cell == guard.fallback

    def gates_for(self, cell: Case) -> Gates:
        return self.gates

    def peer_of(self, cell: Cell) -> None:
        """It has configurations of its own alone."""

    def smaller(self, cell: Case) -> Iterator[Case]:
        return smaller(self.name, self.kernel, cell)

    def declared(self, name: str) -> Declares:
        from fmha.harness.worker.subjects.called import subject_of

        return subject_of(name, self.kernel, self.where)


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
    guard = Guard(None, _parsed(file.guard.case, kernels, document, ("guard", "case")), guarded)
    return file, _matrix(file, kernels, guard, document, sha256, root)


def _matrix(
    file: KernelsFile,
    kernels: dict[str, MatrixKernel],
    guard: Guard,
    document: Document,
    sha256: str,
    root: Path,
) -> Matrix:
    suites: dict[str, tuple[Cell, ...]] = {}
    random: dict[str, RandomSuite] = {}
    for name in file.suites:
        found = _suite(name, file, kernels, document)
        if isinstance(found, RandomSuite):
            random[name] = found
        else:
            suites[name] = found
    matrix = Matrix(
        default_suite=",".join(file.default_suites),
        seed=file.seed,
        suites=suites,
        random_suites=random,
        guard=guard,
        limits=file.limits.limits(),
        hosts={name: host.settings(name) for name, host in file.hosts.items()},
        sha256=sha256,
        kernels=kernels,
        root=str(root),
    )
    return replace(matrix, suites={name: matrix.ordered(items) for name, items in suites.items()})


def _suite(
    name: str, file: KernelsFile, kernels: Mapping[str, MatrixKernel], document: Document
) -> tuple[Cell, ...] | RandomSuite:
    at: FieldPath = ("suites", name)
    kernel = kernels[file.kernel_of(name)]
    if not isinstance(kernel, OwnKernel):
        said = {key: value for key, value in file.suites[name].items() if key != "kernel"}
        ours = conforming(SuiteSection, said, document, at)
        return ours.drawn() or tuple(ours.configurations())
    section = conforming(OwnSuiteSection, file.suites[name], document, at)
    if section.random is not None:
        return _random(kernel, section.random, document, (*at, "random"))
    return tuple(dict.fromkeys(_cases(section, kernel, kernels, document, at)))


def _random(kernel: OwnKernel, said: Mapping[str, Any], document: Document, at: FieldPath) -> RandomSuite:
    bounds = {key: value if isinstance(value, list) else [value] for key, value in said.items() if key != "cases"}
    cases = said.get("cases")
    if not isinstance(cases, int) or not 1 <= cases <= MOST_CONFIGURATIONS:
        raise ConfigError([document.problem((*at, "cases"), f"must be from 1 to {MOST_CONFIGURATIONS}")])
    if problem := fault(bounds, kernel.kernel.fields):
        raise ConfigError([document.problem((*at, problem[0]), problem[1])])
    space = Drawn(kernel.name, tuple((key, tuple(values)) for key, values in bounds.items()), kernel.kernel)
    try:
        space.draw(0, cases)
    except NothingLeftError as error:
        raise ConfigError([document.problem(at, f"{error.what}; ask for fewer")]) from error
    return RandomSuite(space, cases)


def _declared(file: KernelsFile, usual: Gates, document: Document, root: Path) -> dict[str, OwnKernel]:
    from fmha.harness.worker.subjects.declared import (
        load_kernel,  # NumPy, which only who has kernels of one's own waits for
    )

    found = {}
    for name, section in file.kernels.items():
        if (where := section.adapter) == BROUGHT:
            continue
        try:
            kernel: Kernel = load_kernel(root, where)
        except UserError as error:
            text = f"{error.where}: {error.what}"
            raise ConfigError([document.problem(("kernels", name), text)]) from error
        digest = hashlib.sha256((root / where.rpartition(":")[0]).read_bytes()).hexdigest()
        gates = section.gates.gates() if section.gates else usual
        if not kernel.source:  # nothing is built, so that there are no resources
            gates = replace(gates, resources=None)
        found[name] = OwnKernel(name, where, digest, kernel, gates)
    return found


def _cases(
    section: OwnSuiteSection,
    own: OwnKernel,
    kernels: Mapping[str, MatrixKernel],
    document: Document,
    at: FieldPath,
) -> Iterator[Cell]:
    fields, wrong_with = own.kernel.fields, own.kernel.fault
    count = 0
    for part, axes in section.parts():
        for values in product(*axes.values()):
            count += 1
            if count > MOST_CONFIGURATIONS:
                raise ConfigError([document.problem((*at, *part), f"more than {MOST_CONFIGURATIONS} configurations")])
            try:
                case = case_of(own.name, fields, dict(zip(axes, values, strict=True)))
            except ValueError as error:
                raise ConfigError([document.problem((*at, *part), str(error))]) from error
            if problem := wrong_with(case):
                raise ConfigError([document.problem((*at, *part), f"{problem}, in {case.id}")])
            yield case
    for index, name in enumerate(section.cases):
        count += 1
        yield _parsed(name, kernels, document, (*at, "cases", index))
    if not count:
        raise ConfigError([document.problem(at, "must declare axes, grids, cases or random")])


def _parsed(name: str, kernels: Mapping[str, MatrixKernel], document: Document, at: FieldPath) -> Cell:
    try:
        return parse(name, kernels)
    except ValueError as error:
        raise ConfigError([document.problem(at, f"{name}: {error}")]) from error
