"""Suites of matrix.yaml as they are written: grids of axes, single configurations, random ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from fmha.harness.config.matrix_model import RandomSuite
from fmha.harness.config.section import Section, wrong
from fmha.harness.config.yaml_lines import Document
from fmha.harness.errors import ConfigError
from fmha.harness.judge.configuration import AXES, DEFAULTS, KINDS, Configuration, fault, parse_id
from fmha.harness.judge.random_cases import Space

MOST_CONFIGURATIONS = 10_000
MOST_TOGETHER = 20_000  # of all suites of a file: whoever reads it makes every one of them

Size = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


def _kind(name: str) -> Any:
    """What a value of a field of Configuration may be."""
    if KINDS[name] is int:
        return Annotated[int, Field(ge=AXES[name].least, lt=2**31)]
    return Annotated[KINDS[name], BeforeValidator(_word)]


def _word(value: Any) -> Any:
    """A choice that looks like a number, as it is named: `scale: [0.25]`."""
    return f"{value:g}" if isinstance(value, float) else value


def _keys(lists: bool) -> dict[str, Any]:
    """A key for each field of Configuration: one value, or a list of them."""
    keys: dict[str, Any] = {}
    for name, default in DEFAULTS.items():
        missing = default is MISSING
        if lists:
            key = f"`{AXES[name].key}`" if AXES[name].key else ""
            said: Any = {"description": AXES[name].words, "json_schema_extra": {"filter": key}}
            keys[name] = (list[_kind(name)], Field(... if missing else [default], min_length=1, **said))  # type: ignore[misc]
        else:
            keys[name] = (_kind(name), ... if missing else default)
    return keys


class GridSection(Section):
    """Lists whose cartesian product is run, by the names of Configuration's fields.

    An axis that a configuration has no use for is left out of it: `window` beside the mask `window` alone, `left` and
    `right` beside `band` alone, the sparse branch's beside `topk` above 0 alone.
    """

    if TYPE_CHECKING:
        mask: list[str]
        window: list[int]

    @model_validator(mode="after")
    def _check(self) -> Self:
        axes = {name: getattr(self, name) for name in type(self).model_fields}
        if (total := prod(map(len, axes.values()))) > MOST_CONFIGURATIONS:  # before each is held against the others
            raise wrong((), f"{total} configurations; at most {MOST_CONFIGURATIONS}")
        for name, values in axes.items():
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise wrong((name, index), f"{value} is repeated")
        if ("window" in self.mask) != (self.window != [DEFAULTS["window"]]):
            raise wrong(("window",), "is required with mask window, and only then")
        for item in self.configurations():
            if problem := fault(item):
                raise wrong((problem[0],), f"{problem[1]}, in {item.id}")
        return self

    def configurations(self) -> Iterator[Configuration]:
        """Each once, the first axis slowest."""
        seen = set()
        names = list(type(self).model_fields)
        for values in product(*(getattr(self, name) for name in names)):
            item: dict[str, Any] = dict(zip(names, values, strict=True))
            item |= {name: DEFAULTS[name] for name, axis in AXES.items() if not axis.used(item)}
            configuration = Configuration(**item)
            if configuration not in seen:
                seen.add(configuration)
                yield configuration


class SingleSection(Section):
    """One configuration beside the axes."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problem := fault(self.configuration()):
            raise wrong((problem[0],), problem[1])
        return self

    def configuration(self) -> Configuration:
        """As the judge has it."""
        return Configuration(**self.model_dump())


if TYPE_CHECKING:
    AxesSection = GridSection
    ExtraSection = SingleSection
else:
    AxesSection = create_model("AxesSection", __base__=GridSection, **_keys(lists=True))
    ExtraSection = create_model("ExtraSection", __base__=SingleSection, **_keys(lists=False))


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
        """What a random suite draws from."""
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
        """The random suite, where it is one."""
        return RandomSuite(self.random.space(), self.random.cases) if self.random else None

    def configurations(self) -> list[Configuration]:
        """Its configurations, in the order of the file."""
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


def refuse_too_many(document: Document) -> None:
    """Raises ConfigError for a file whose suites have more than MOST_TOGETHER configurations, before any is made: a
    few aliases make thousands of suites."""
    suites = document.data.get("suites")
    total = 0
    for name, suite in suites.items() if isinstance(suites, dict) else ():
        said = suite if isinstance(suite, dict) else {}
        lists = {key: value for key, value in said.items() if isinstance(value, list)}
        total += sum(map(len, lists.values()))
        for axes in (said.get("axes"), *lists.get("grids", ())):
            if isinstance(axes, dict):
                own = prod(max(len(values), 1) for values in axes.values() if isinstance(values, list))
                total += own if own <= MOST_CONFIGURATIONS else 0  # which is refused by itself
        if total > MOST_TOGETHER:
            what = f"with this suite the file has more than {MOST_TOGETHER} configurations"
            raise ConfigError([document.problem(("suites", name), what)])
