"""`--filter hd=64,t=1|4`: picks configurations of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from fmha.harness.config.kernels import Key
from fmha.harness.contract.protocol import Cell
from fmha.harness.errors import UserError
from fmha.harness.judge.configuration import AXES, KINDS, OURS

# What a filter calls a field of Configuration.
KEYS: Final[Mapping[str, str]] = {axis.key: name for name, axis in AXES.items() if axis.key}
KERNEL: Final = "kernel"  # the key of every configuration
Keys = Mapping[str, Mapping[str, Key]]  # by kernel, what a filter calls its fields
OUR_KEYS: Final[Keys] = {
    OURS: {key: Key(name, () if KINDS[name] is int else get_args(KINDS[name])) for key, name in KEYS.items()}
}


class NothingSelectedError(UserError):
    """A suite has nothing that a filter accepts."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Accepts a configuration whose every named axis has one of its values; an empty filter accepts all."""

    accepted: Mapping[str, tuple[int | str, ...]]
    keys: Keys = field(default_factory=lambda: OUR_KEYS)

    def __str__(self) -> str:
        return ",".join(f"{key}={'|'.join(map(str, values))}" for key, values in self.accepted.items())

    @property
    def kernels(self) -> tuple[str, ...]:
        """Those that are named."""
        return tuple(str(name) for name in self.accepted.get(KERNEL, ()))

    def accepts(self, configuration: Cell) -> bool:
        """Whether every key that is filtered by has one of its values."""
        return all(self._value(configuration, key) in values for key, values in self.accepted.items())

    def _value(self, configuration: Cell, key: str) -> int | str | None:
        """None where its kernel has no such field."""
        if key == KERNEL:
            return configuration.kernel
        found = self.keys.get(configuration.kernel, {}).get(key)
        value: int | str | None = getattr(configuration, found.attribute, None) if found else None
        return value

    def select(self, configurations: Iterable[Cell], where: str) -> tuple[Cell, ...]:
        """The accepted ones, in order. Raises UserError when there are none."""
        candidates = tuple(configurations)
        chosen = tuple(item for item in candidates if self.accepts(item))
        if not chosen:
            present = "; ".join(
                f"{key} is one of {', '.join(map(str, sorted(self._values(candidates, key), key=_order)))}"
                for key in self.accepted
            )
            raise NothingSelectedError(f"no configuration matches --filter {self} in {where}; there {present}")
        return chosen

    def _values(self, candidates: Iterable[Cell], key: str) -> set[int | str]:
        found = (self._value(item, key) for item in candidates)
        return {value for value in found if value is not None}


def parse_filter(terms: Sequence[str], keys: Keys = OUR_KEYS) -> Filter:
    """Read `key=value[|value...][,key=...]`, once or several times. Values of one key add up. Raises UserError."""
    known: dict[str, list[Key]] = {}
    for fields in keys.values():
        for name, field_of in fields.items():
            known.setdefault(name, []).append(field_of)
    known[KERNEL] = [Key(KERNEL, tuple(keys))]
    accepted: dict[str, tuple[int | str, ...]] = {}
    for term in (part.strip() for text in terms for part in text.split(",")):
        key, equals, values = (part.strip() for part in term.partition("="))
        if not equals:
            raise UserError(f"--filter: {term!r} is not key=value", next_step="write for example hd=64,t=1|4")
        if key not in known:
            raise UserError(f"--filter: unknown key {key!r}", next_step=f"use one of {', '.join(known)}")
        for value in values.split("|"):
            read = _value(key, value.strip(), known[key])
            if read not in accepted.get(key, ()):
                accepted[key] = (*accepted.get(key, ()), read)
    return Filter(accepted, keys)


def _value(key: str, text: str, fields: Sequence[Key]) -> int | str:
    """As one of the kernels' fields of that name has it."""
    choices = tuple(dict.fromkeys(choice for item in fields for choice in item.choices))
    if text in choices:
        return text
    if all(item.choices for item in fields):
        raise UserError(f"--filter: {text!r} is no {key}", next_step=f"use one of {', '.join(choices)}")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UserError(f"--filter: {key} is a whole number, not {text!r}")
    return int(text)


def _order(value: int | str) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)
