"""matrix.yaml as it is written: the pydantic model of the file, field by field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args

from pydantic import Field, create_model, model_validator

from fmha.harness.config.host_sections import HostSection
from fmha.harness.config.matrix_model import ALL, Limits
from fmha.harness.config.section import HostName, Seconds, Section, wrong
from fmha.harness.config.suites import Count, Size, SuiteSection
from fmha.harness.judge.configuration import Data, Output
from fmha.harness.judge.limits import Biases, ResourceLimits, Thresholds
from fmha.harness.judge.metrics import METRICS, Metric

Name = HostName
GateLimit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LeastCosine = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class ThresholdsSection(Section):
    """A limit for each of some metrics."""

    def limits(self) -> dict[str, float]:
        """The limits that are given, by metric."""
        given = self.model_dump(exclude_none=True)
        return {name: given[name] for name in METRICS if name in given}


def thresholds_section(
    name: str, metrics: Mapping[str, Metric], default: Callable[[Metric], float | EllipsisType | None]
) -> type[ThresholdsSection]:
    """The section with a key for each of these metrics, and what it has by `default`: None for one that may be left
    out, `...` for one that is required."""
    keys: dict[str, Any] = {}
    for metric, known in metrics.items():
        kind: Any = LeastCosine if known.least else GateLimit
        usual = default(known)
        said = Field(usual, description=f"{known.definition}; floor {known.floor:g}")
        keys[metric] = (kind | None if usual is None else kind, said)
    return create_model(name, __base__=ThresholdsSection, **keys)


if TYPE_CHECKING:
    DefaultSection = ThresholdsSection
    OverridesSection = ThresholdsSection
else:
    DefaultSection = thresholds_section("DefaultSection", METRICS, lambda metric: metric.limit)
    OverridesSection = thresholds_section("OverridesSection", METRICS, lambda _: None)


class ResourcesSection(Section):
    """The most that a kernel may use."""

    registers: Count
    spill_bytes: Count
    stack_bytes: Count
    shared_bytes: Count


class BiasesSection(Section):
    """Limits of what has a direction."""

    slope_bias: GateLimit
    lse_bias: GateLimit
    coarse: GateLimit
    pooled_slope: GateLimit
    pooled_lse: GateLimit


class GatesSection(Section):
    """`default` is for every configuration, `guard` for the guards, a word of the axes `output` or `data` for those
    that have it. docs/understand/gates.md says whence all are."""

    default: DefaultSection = DefaultSection()
    guard: OverridesSection = OverridesSection()
    bf16: OverridesSection = OverridesSection()
    extreme: OverridesSection = OverridesSection()
    steps: OverridesSection = OverridesSection()
    resources: ResourcesSection | None = None
    bias: BiasesSection | None = None

    @classmethod
    def natures(cls) -> tuple[str, ...]:
        """The sections that are of configurations with that output, or those data."""
        words = (*get_args(Output), *get_args(Data))
        return tuple(name for name in cls.model_fields if name in words)

    def default_thresholds(self) -> Thresholds:
        """The limits of every configuration that no override names."""
        return Thresholds(self.default.limits())

    def thresholds(self, overrides: OverridesSection) -> Thresholds:
        """The default limits with these in place of theirs."""
        return Thresholds(self.default.limits() | overrides.limits())

    def most_resources(self) -> ResourceLimits | None:
        """As the judge has them; None without any."""
        return ResourceLimits(**self.resources.model_dump()) if self.resources else None

    def most_bias(self) -> Biases | None:
        """As the judge has them; None without any."""
        return Biases(**self.bias.model_dump()) if self.bias else None


class FallbackSection(Section):
    """The configuration that guards a run which selects none of head_dim."""

    t: Size
    s_k: Size


class GuardSection(Section):
    """Which configurations are guards."""

    head_dim: Size
    fallback: FallbackSection


class LimitsSection(Section):
    """How long a build and a configuration may take, seconds."""

    build_seconds: Seconds
    configuration_silence_seconds: Seconds
    configuration_total_seconds: Seconds

    def limits(self) -> Limits:
        """As stages have them."""
        return Limits(
            build_seconds=self.build_seconds,
            silence_seconds=self.configuration_silence_seconds,
            total_seconds=self.configuration_total_seconds,
        )


class FileSection(Section):
    """What every matrix file has. `default_suite` is one suite or several, `all` for every one."""

    default_suite: str | list[str]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    hosts: dict[Name, HostSection] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_hosts(self) -> Self:
        """A commit could otherwise have whoever runs it send a secret of theirs, or start a command."""
        for name, host in self.hosts.items():
            if host.secrets:
                raise wrong(("hosts", name, "secrets"), "is for one's own hosts alone, ~/.config/fmha/hosts.yaml")
        return self

    def check_suites(self, suites: Collection[str]) -> None:
        """Raises `wrong` for a default suite that is not there, and for a suite with the name of all."""
        if ALL in suites:
            raise wrong(("suites", ALL), "is the name of all of them together")
        if not self.default_suites:
            raise wrong(("default_suite",), "must not be empty")
        for name in self.default_suites:
            if name not in (*suites, ALL):
                raise wrong(("default_suite",), f"no suite is named {name!r}; there are {', '.join(suites)}")

    @property
    def default_suites(self) -> list[str]:
        """The default suites, in a list however they are written."""
        return [self.default_suite] if isinstance(self.default_suite, str) else self.default_suite


class MatrixFile(FileSection):
    """That of the attention kernels alone, which names none."""

    suites: dict[Name, SuiteSection] = Field(min_length=1)
    gates: GatesSection
    guard: GuardSection
    limits: LimitsSection

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.check_suites(self.suites)
        return self
