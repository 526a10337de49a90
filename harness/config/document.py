"""matrix.yaml as it is written: the pydantic model of the file, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from harness.config.hosts import HostSection
from harness.config.model import Thresholds
from harness.config.section import Seconds, Section, wrong
from harness.worker.protocol import Configuration, Mask

MOST_CONFIGURATIONS = 10_000

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Size = Annotated[int, Field(ge=1, lt=2**31)]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Cosine = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class AxesSection(Section):
    """Lists whose cartesian product is run. `window` applies to the mask `window` alone."""

    head_dim: list[Size] = Field(min_length=1)
    t: list[Size] = Field(min_length=1)
    s_k: list[Size] = Field(min_length=1)
    batch: list[Size] = Field(default=[1], min_length=1)
    mask: list[Mask] = Field(default=["none"], min_length=1)
    window: list[Size] = Field(default=[])

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in type(self).model_fields:
            values = getattr(self, name)
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise wrong((name, index), f"{value} is repeated")
        if ("window" in self.mask) != bool(self.window):
            raise wrong(("window",), "is required with mask window, and only then")
        masks = len(self.mask) + len(self.window) - ("window" in self.mask)
        total = len(self.head_dim) * len(self.t) * len(self.s_k) * len(self.batch) * masks
        if total > MOST_CONFIGURATIONS:
            raise wrong((), f"{total} configurations; at most {MOST_CONFIGURATIONS}")
        return self

    def configurations(self) -> Iterator[Configuration]:
        masks = [(mask, width) for mask in self.mask for width in (self.window if mask == "window" else [0])]
        for head_dim, t, s_k, batch, (mask, width) in product(self.head_dim, self.t, self.s_k, self.batch, masks):
            yield Configuration(head_dim, t, s_k, batch, mask, width)


class ExtraSection(Section):
    """One configuration beside the axes."""

    head_dim: Size
    t: Size
    s_k: Size
    batch: Size = 1
    mask: Mask = "none"
    window: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.mask == "window") != (self.window > 0):
            raise wrong(("window",), "is required with mask window, and only then")
        return self

    def configuration(self) -> Configuration:
        return Configuration(self.head_dim, self.t, self.s_k, self.batch, self.mask, self.window)


class SuiteSection(Section):
    axes: AxesSection | None = None
    extra: list[ExtraSection] = Field(default=[])

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen = {item.id for item in self.axes.configurations()} if self.axes else set()
        for index, item in enumerate(self.extra):
            name = item.configuration().id
            if name in seen:
                raise wrong(("extra", index), f"{name} is in the suite already")
            seen.add(name)
        if not seen:
            raise wrong((), "the suite is empty; give it axes or extra")
        return self

    def configurations(self) -> list[Configuration]:
        declared = list(self.axes.configurations()) if self.axes else []
        return declared + [item.configuration() for item in self.extra]


class ThresholdsSection(Section):
    cosine: Cosine
    relative_l2: Limit
    max_error: Limit
    lse_error: Limit
    row_max_error: Limit
    row_sum_error: Limit


class OverridesSection(Section):
    """Thresholds that differ from the default's."""

    cosine: Cosine | None = None
    relative_l2: Limit | None = None
    max_error: Limit | None = None
    lse_error: Limit | None = None
    row_max_error: Limit | None = None
    row_sum_error: Limit | None = None


class GatesSection(Section):
    default: ThresholdsSection
    guard: OverridesSection = OverridesSection()

    def default_thresholds(self) -> Thresholds:
        return Thresholds(**self.default.model_dump())

    def guard_thresholds(self) -> Thresholds:
        return Thresholds(**self.default.model_dump() | self.guard.model_dump(exclude_none=True))


class FallbackSection(Section):
    t: Size
    s_k: Size


class GuardSection(Section):
    head_dim: Size
    fallback: FallbackSection


class LimitsSection(Section):
    build_seconds: Seconds
    configuration_silence_seconds: Seconds
    configuration_total_seconds: Seconds


class MatrixFile(Section):
    default_suite: str
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    suites: dict[Name, SuiteSection] = Field(min_length=1)
    gates: GatesSection
    guard: GuardSection
    limits: LimitsSection
    hosts: dict[Name, HostSection] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.default_suite not in self.suites:
            raise wrong(
                ("default_suite",), f"no suite is named {self.default_suite!r}; there are {', '.join(self.suites)}"
            )
        return self
