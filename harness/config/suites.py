"""Suites of matrix.yaml as they are written: grids of axes, single configurations, random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from fmha.harness.config.model import RandomSuite
from fmha.harness.config.random_cases import Space
from fmha.harness.config.section import Section, wrong
from fmha.harness.worker.configuration import (
    DEFAULTS,
    UNLIMITED,
    Configuration,
    Data,
    Indices,
    KeyValues,
    Lengths,
    Mask,
    MergeChoice,
    Offsets,
    Output,
    PathChoice,
    Sink,
    fault,
    parse_id,
)

MOST_CONFIGURATIONS = 10_000

Size = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Bound = Annotated[int, Field(ge=UNLIMITED, lt=2**31)]
# Fields that mean something beside a certain value of another one only.
_DEPENDENT: dict[str, Callable[[dict[str, Any]], bool]] = {
    "window": lambda item: item["mask"] == "window",
    "left": lambda item: item["mask"] == "band",
    "right": lambda item: item["mask"] == "band",
    "s_sparse": lambda item: item["topk"] > 0,
    "sparse_indices": lambda item: item["topk"] > 0,
    "sparse_lens": lambda item: item["topk"] > 0,
}


class AxesSection(Section):
    """Lists whose cartesian product is run, by the names of Configuration's fields.

    An axis that a configuration has no use for is left out of it: `window` beside the mask `window` alone, `left` and
    `right` beside `band` alone, the sparse branch's beside `topk` above 0 alone.
    """

    head_dim: list[Size] = Field(min_length=1)
    t: list[Size] = Field(min_length=1)
    s_k: list[Count] = Field(min_length=1)
    batch: list[Size] = Field(default=[1], min_length=1)
    mask: list[Mask] = Field(default=["none"], min_length=1)
    window: list[Size] = Field(default=[])
    left: list[Bound] = Field(default=[UNLIMITED], min_length=1)
    right: list[Bound] = Field(default=[UNLIMITED], min_length=1)
    heads: list[Size] = Field(default=[1], min_length=1)
    kv: list[KeyValues] = Field(default=["separate"], min_length=1)
    query_offsets: list[Offsets] = Field(default=["aligned"], min_length=1)
    kv_lens: list[Lengths] = Field(default=["full"], min_length=1)
    topk: list[Count] = Field(default=[0], min_length=1)
    s_sparse: list[Count] = Field(default=[0], min_length=1)
    sparse_indices: list[Indices] = Field(default=["valid"], min_length=1)
    sparse_lens: list[Lengths] = Field(default=["full"], min_length=1)
    sink: list[Sink] = Field(default=["none"], min_length=1)
    data: list[Data] = Field(default=["normal"], min_length=1)
    output: list[Output] = Field(default=["unnormalised"], min_length=1)
    splits: list[Size] = Field(default=[1], min_length=1)
    p_path: list[PathChoice] = Field(default=["auto"], min_length=1)
    rows: list[Count] = Field(default=[0], min_length=1)
    merge: list[MergeChoice] = Field(default=["auto"], min_length=1)
    before: list[Count] = Field(default=[0], min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        total = 1
        for name in type(self).model_fields:
            values = getattr(self, name)
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise wrong((name, index), f"{value} is repeated")
            total *= max(1, len(values))
        if ("window" in self.mask) != bool(self.window):
            raise wrong(("window",), "is required with mask window, and only then")
        if total > MOST_CONFIGURATIONS:
            raise wrong((), f"{total} configurations; at most {MOST_CONFIGURATIONS}")
        for item in self.configurations():
            if problem := fault(item):
                raise wrong((problem[0],), f"{problem[1]}, in {item.id}")
        return self

    def configurations(self) -> Iterator[Configuration]:
        """Each once, the first axis slowest."""
        seen = set()
        names = list(type(self).model_fields)
        for values in product(*(getattr(self, name) or [DEFAULTS[name]] for name in names)):
            item: dict[str, Any] = dict(zip(names, values, strict=True))
            item |= {name: DEFAULTS[name] for name, used in _DEPENDENT.items() if not used(item)}
            configuration = Configuration(**item)
            if configuration not in seen:
                seen.add(configuration)
                yield configuration


class ExtraSection(Section):
    """One configuration beside the axes."""

    head_dim: Size
    t: Size
    s_k: Count
    batch: Size = 1
    mask: Mask = "none"
    window: Count = 0
    left: Bound = UNLIMITED
    right: Bound = UNLIMITED
    heads: Size = 1
    kv: KeyValues = "separate"
    query_offsets: Offsets = "aligned"
    kv_lens: Lengths = "full"
    topk: Count = 0
    s_sparse: Count = 0
    sparse_indices: Indices = "valid"
    sparse_lens: Lengths = "full"
    sink: Sink = "none"
    data: Data = "normal"
    output: Output = "unnormalised"
    splits: Size = 1
    p_path: PathChoice = "auto"
    rows: Count = 0
    merge: MergeChoice = "auto"
    before: Count = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problem := fault(self.configuration()):
            raise wrong((problem[0],), problem[1])
        return self

    def configuration(self) -> Configuration:
        return Configuration(**self.model_dump())


class RandomSection(Section):
    """How many configurations are drawn, and the bounds that docs/use/matrix.md explains."""

    cases: Annotated[int, Field(ge=1, le=MOST_CONFIGURATIONS)]
    head_dim: list[Size] = Field(min_length=1)
    rows: Size
    keys: Size
    topk: Size
    batch: Size
    work: Size

    def space(self) -> Space:
        return Space(tuple(self.head_dim), self.rows, self.keys, self.topk, self.batch, self.work)


def _named(name: str) -> str:
    try:
        parse_id(name)
    except ValueError as error:
        raise wrong((), f"{name}: {error}") from error
    return name


class SuiteSection(Section):
    """`cases` are configurations by their names."""

    axes: AxesSection | None = None
    grids: list[AxesSection] = Field(default=[])
    extra: list[ExtraSection] = Field(default=[])
    cases: list[Annotated[str, AfterValidator(_named)]] = Field(default=[])
    random: RandomSection | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.random is not None and (self.axes or self.grids or self.extra or self.cases):
            raise wrong(("random",), "stands alone in its suite")
        seen: set[str] = set()
        for at, items in self._written():
            for item in items:
                if item.id in seen:
                    raise wrong(at, f"{item.id} is in the suite already")
                seen.add(item.id)
        if not seen and self.random is None:
            raise wrong((), "the suite is empty; give it axes, grids, extra, cases or random")
        return self

    def drawn(self) -> RandomSuite | None:
        return RandomSuite(self.random.space(), self.random.cases) if self.random else None

    def configurations(self) -> list[Configuration]:
        return [item for _, items in self._written() for item in items]

    def _written(self) -> Iterator[tuple[tuple[str | int, ...], list[Configuration]]]:
        """What each part of the suite declares, and where it is written."""
        if self.axes:
            yield ("axes",), list(self.axes.configurations())
        for index, grid in enumerate(self.grids):
            yield ("grids", index), list(grid.configurations())
        for index, item in enumerate(self.extra):
            yield ("extra", index), [item.configuration()]
        for index, name in enumerate(self.cases):
            yield ("cases", index), [parse_id(name)]
