"""What plain data may be: each kind is a function that returns where a value is otherwise, or nothing.

A request comes from somebody who has a key, and not from our client because of that. So every field has a kind with
bounds, and a field that no kind names is refused: what is not understood is not carried along.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from fmha.harness.supervisor.rundir import HostError

MOST_SHOWN = 80
MOST_DEPTH = 16
MOST_INTEGER = 1 << 63
Kind = Callable[[Any, str], str | None]


def refuse_unless(kind: Kind, value: Any, name: str) -> None:
    """Raises HostError for a value that is not of the kind, saying which field of it is wrong."""
    if (wrong := kind(value, name)) is not None:
        raise HostError(f"the request is refused: {wrong}", "fmha here and there may differ; try again", usage=True)


def text(most: int, pattern: str = "", what: str = "") -> Kind:
    """Text of at most so many characters, all of which `pattern` matches; `what` says that in words."""
    wanted = re.compile(pattern or r"[^\0]*", re.DOTALL)

    def check(value: Any, name: str) -> str | None:
        if not isinstance(value, str):
            return f"{name} is no text"
        if len(value) > most:
            return f"{name} has more than {most} characters"
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return f"{name} is no text"
        return None if wanted.fullmatch(value) else f"{name} is {what or 'no such text'}: {_shown(value)}"

    return check


def integer(least: int, most: int) -> Kind:
    """Whole numbers of this range; a bool is none."""

    def check(value: Any, name: str) -> str | None:
        good = type(value) is int and least <= value <= most
        return None if good else f"{name} is no whole number from {least} to {most}: {_shown(value)}"

    return check


def number(least: float, most: float) -> Kind:
    """Finite numbers of this range; a bool is none."""

    def check(value: Any, name: str) -> str | None:
        good = type(value) in (int, float) and math.isfinite(value) and least <= value <= most
        return None if good else f"{name} is no number from {least:g} to {most:g}: {_shown(value)}"

    return check


def flag(value: Any, name: str) -> str | None:
    """None for true and false, else what is wrong."""
    return None if isinstance(value, bool) else f"{name} is neither true nor false: {_shown(value)}"


def one_of(*words: str) -> Kind:
    """These words."""

    def check(value: Any, name: str) -> str | None:
        good = isinstance(value, str) and value in words
        return None if good else f"{name} is none of {', '.join(words)}: {_shown(value)}"

    return check


def maybe(kind: Kind) -> Kind:
    """That, or null."""
    return lambda value, name: None if value is None else kind(value, name)


def several(kind: Kind, most: int) -> Kind:
    """A list of at most so many of them."""

    def check(value: Any, name: str) -> str | None:
        if not isinstance(value, list) or len(value) > most:
            return f"{name} is no list of at most {most}"
        return next((wrong for at, item in enumerate(value) if (wrong := kind(item, f"{name}[{at}]"))), None)

    return check


def named(key: Kind, kind: Kind, most: int) -> Kind:
    """An object of at most so many fields, whose names are `key` and whose values are `kind`."""

    def check(value: Any, name: str) -> str | None:
        if not isinstance(value, dict) or len(value) > most:
            return f"{name} is no object of at most {most} fields"
        for word, item in value.items():
            if wrong := key(word, f"a name in {name}") or kind(item, f"{name}.{word[:MOST_SHOWN]}"):
                return wrong
        return None

    return check


def fields(required: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None) -> Kind:
    """An object with these fields and no others."""
    more = optional or {}

    def check(value: Any, name: str) -> str | None:
        if not isinstance(value, dict):
            return f"{name} is no object"
        if missing := required.keys() - value.keys():
            return f"{name} has no {min(missing)}"
        if unknown := value.keys() - required.keys() - more.keys():
            return f"{name} has a field that nobody knows: {_shown(min(unknown))}"
        kinds = {**required, **more}
        return next((wrong for word, item in value.items() if (wrong := kinds[word](item, f"{name}.{word}"))), None)

    return check


def plain(most: int) -> Kind:
    """Any data, of at most so many values and characters, not nested deeply: what somebody else is to check."""

    def check(value: Any, name: str) -> str | None:
        left, pending = most, [(value, 0)]
        while pending:
            item, depth = pending.pop()
            left -= 1 + (len(item) if isinstance(item, str) else 0)
            if left < 0 or depth > MOST_DEPTH:
                return f"{name} is too large or nested too deeply"
            if type(item) is int and abs(item) >= MOST_INTEGER:
                return f"{name} has a whole number beyond 64 bits"
            if isinstance(item, float) and not math.isfinite(item):
                return f"{name} has a number that is not finite"
            if isinstance(item, dict):
                pending += [(part, depth + 1) for pair in item.items() for part in pair]
            elif isinstance(item, list):
                pending += [(part, depth + 1) for part in item]
        return None

    return check


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except RecursionError:
        return "nested too deeply"
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
