"""matrix.yaml of a repository with kernels of its own: the pydantic model of the file, and what it says as a Matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from fmha.harness.config.document import (
    FileSection,
    LimitsSection,
    Name,
    ResourcesSection,
    ThresholdsSection,
    thresholds_section,
)
from fmha.harness.config.model import Declared, Guard, Matrix, Resources, Thresholds
from fmha.harness.config.section import Section, wrong
from fmha.harness.config.suites import MOST_CONFIGURATIONS
from fmha.harness.config.yaml_lines import Document, FieldPath
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.metrics import METRICS
from fmha.harness.worker.case import Case, Value, case_of, parse_case

if TYPE_CHECKING:
    from fmha.harness.kernel import Kernel

Place = Annotated[str, StringConstraints(pattern=r"^[^:]+\.py:[A-Za-z_]\w*$")]
Axes = dict[str, list[Value]]


class OwnSuiteSection(Section):
    """`axes` and `grids` are lists whose cartesian product is run, by the names of the kernel's fields."""

    kernel: Name | None = None
    axes: Axes | None = None
    grids: list[Axes] = Field(default=[])
    cases: list[str] = Field(default=[])

    def parts(self) -> Iterator[tuple[FieldPath, Axes]]:
        if self.axes is not None:
            yield ("axes",), self.axes
        for index, axes in enumerate(self.grids):
            yield ("grids", index), axes


if TYPE_CHECKING:
    OwnThresholdsSection = ThresholdsSection
else:
    OwnThresholdsSection = thresholds_section(
        "OwnThresholdsSection", (metric for metric in METRICS.values() if not metric.of_attention), required=True
    )


class OwnGatesSection(Section):
    default: OwnThresholdsSection
    guard: OwnThresholdsSection | None = None
    resources: ResourcesSection | None = None


class OwnGuardSection(Section):
    case: str


class OwnMatrixFile(FileSection):
    kernels: dict[Name, Place] = Field(min_length=1)
    suites: dict[Name, OwnSuiteSection] = Field(min_length=1)
    gates: OwnGatesSection
    guard: OwnGuardSection
    limits: LimitsSection

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_suites(self.suites)
        for name, suite in self.suites.items():
            if suite.kernel is None and len(self.kernels) > 1:
                raise wrong(("suites", name, "kernel"), "is required where there are several kernels")
            if suite.kernel is not None and suite.kernel not in self.kernels:
                raise wrong(("suites", name, "kernel"), f"must be one of {', '.join(self.kernels)}")
        return self


def own_matrix(file: OwnMatrixFile, document: Document, sha256: str, root: Path) -> Matrix:
    """The file as a Matrix; the kernels that it names are loaded. Raises ConfigError with one line a problem."""
    declared = _declared(file, document, root)
    first = next(iter(file.kernels))
    suites = {
        name: tuple(dict.fromkeys(_cases(name, suite, declared, suite.kernel or first, document)))
        for name, suite in file.suites.items()
    }
    gates = file.gates
    thresholds, guarded = (Thresholds(section.limits()) for section in (gates.default, gates.guard or gates.default))
    fallback = _parsed(file.guard.case, declared, document, ("guard", "case"))
    matrix = Matrix(
        default_suite=",".join(file.default_suites),
        seed=file.seed,
        suites=suites,
        random_suites={},
        thresholds=thresholds,
        guard=Guard(None, fallback, guarded),
        bf16=thresholds,
        extreme=thresholds,
        steps=thresholds,
        resources=Resources(**gates.resources.model_dump()) if gates.resources else None,
        biases=None,
        limits=file.limits.limits(),
        hosts={name: host.settings(name) for name, host in file.hosts.items()},
        sha256=sha256,
        kernels=declared,
        root=str(root),
    )
    return replace(matrix, suites={name: matrix.ordered(items) for name, items in suites.items()})


def parse(name: str, kernels: Mapping[str, Declared]) -> Case:
    """The case of a name. ValueError for what is no case's of any kernel."""
    owners = [kernel for kernel in kernels if name == kernel or name.startswith(f"{kernel}_")]
    if not owners:
        raise ValueError(f"no kernel is named so; names begin with one of {', '.join(kernels)}")
    owner = max(owners, key=len)
    case = parse_case(owner, kernels[owner].kernel.fields, name)
    if fault := kernels[owner].kernel.fault(case):
        raise ValueError(fault)
    return case


def _declared(file: OwnMatrixFile, document: Document, root: Path) -> dict[str, Declared]:
    from fmha.harness.worker.declared import load_kernel  # NumPy, which only who has kernels of one's own waits for

    found = {}
    for name, where in file.kernels.items():
        try:
            kernel: Kernel = load_kernel(root, where)
        except UserError as error:
            text = f"{error.where}: {error.what}"
            raise ConfigError([document.problem(("kernels", name), text)]) from error
        path = where.rpartition(":")[0]
        digest = hashlib.sha256((root / path).read_bytes()).hexdigest()
        found[name] = Declared(where, path, digest, kernel)
    return found


def _cases(
    suite: str, section: OwnSuiteSection, declared: Mapping[str, Declared], kernel: str, document: Document
) -> Iterator[Case]:
    at: FieldPath = ("suites", suite)
    fields, fault = declared[kernel].kernel.fields, declared[kernel].kernel.fault
    count = 0
    for part, axes in section.parts():
        for values in product(*axes.values()):
            count += 1
            if count > MOST_CONFIGURATIONS:
                raise ConfigError([document.problem((*at, *part), f"more than {MOST_CONFIGURATIONS} configurations")])
            try:
                case = case_of(kernel, fields, dict(zip(axes, values, strict=True)))
            except ValueError as error:
                raise ConfigError([document.problem((*at, *part), str(error))]) from error
            if problem := fault(case):
                raise ConfigError([document.problem((*at, *part), f"{problem}, in {case.id}")])
            yield case
    for index, name in enumerate(section.cases):
        count += 1
        yield _parsed(name, declared, document, (*at, "cases", index))
    if not count:
        raise ConfigError([document.problem(at, "must declare axes, grids or cases")])


def _parsed(name: str, declared: Mapping[str, Declared], document: Document, at: FieldPath) -> Case:
    try:
        return parse(name, declared)
    except ValueError as error:
        raise ConfigError([document.problem(at, f"{name}: {error}")]) from error
