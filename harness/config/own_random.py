"""Random configurations of a kernel of one's own, and smaller ones of a configuration that fails."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from fmha.harness.errors import UserError
from fmha.harness.judge.case import Case, Field, Value, case_of
from fmha.harness.judge.random_cases import size

if TYPE_CHECKING:
    from fmha.harness.worker.subjects.adapter import Adapter

MOST_TRIES: Final = 1000  # for one configuration that is legal and has not been drawn yet


class NothingLeftError(UserError):
    """So many different configurations cannot be drawn."""


@dataclass(frozen=True, slots=True)
class DrawnValues:
    """What a suite draws from: of a number the least and the most, of a choice those that are drawn. Fields that
    `values` leaves out have their defaults."""

    name: str
    values: tuple[tuple[str, tuple[Value, ...]], ...]
    kernel: Adapter = field(repr=False, compare=False)

    def draw(self, seed: int, count: int) -> list[Case]:
        """`count` different ones; the first ones stay the same when more are drawn. NothingLeftError."""
        cases: dict[str, Case] = {}
        number = tries = 0
        while len(cases) < count:
            digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
            case = self._proposal(Random(int.from_bytes(digest[:8], "little")))
            number, tries = number + 1, tries + 1
            if case.id not in cases and self.kernel.fault(case) is None:
                cases[case.id] = case
                tries = 0
            if tries > MOST_TRIES:
                raise NothingLeftError(
                    f"{len(cases)} configurations are drawn, and no other is found", next_step="ask for fewer"
                )
        return list(cases.values())

    def _proposal(self, random: Random) -> Case:
        chosen: dict[str, object] = {}
        for name, values in self.values:
            whole = [value for value in values if isinstance(value, int)]
            chosen[name] = size(random, whole[0], whole[-1]) if whole else random.choice(values)
        return case_of(self.name, self.kernel.fields, chosen)


def smaller(name: str, kernel: Adapter, case: Case) -> Iterator[Case]:
    """Legal configurations one step simpler than `case`: choices and numbers as they are by default, then less."""
    given = dict(case.values)
    for item in kernel.fields:
        for value in _less(item, given[item.name]):
            found = case_of(name, kernel.fields, given | {item.name: value})
            if kernel.fault(found) is None:
                yield found


def _less(item: Field, value: Value) -> Iterator[Value]:
    plain = item.choices[0] if item.choices and item.default is None else item.default
    if plain is not None and plain != value:
        yield plain
    if isinstance(value, int):
        yield from dict.fromkeys(
            less for less in (item.least, value // 2, value - value // 4, value - 1) if item.least <= less < value
        )


def fault(given: Mapping[str, list[Value]], fields: tuple[Field, ...]) -> tuple[str, str] | None:
    """The first field of a random suite that is wrong, and why."""
    known = {item.name: item for item in fields}
    for name, values in given.items():
        if name not in known:
            return name, f"the kernel has no such field; it has {', '.join(known)}"
        for value in values:
            if wrong := known[name].fault(value):
                return name, wrong
        if not values or (not known[name].choices and (len(values) > 2 or values[0] > values[-1])):  # type: ignore[operator]
            return name, "must be [least, most] of a number, or some of the choices"
    for item in fields:
        if item.default is None and item.name not in given:
            return item.name, "is required"
    return None
