"""`--filter hd=64,t=1|4`: picks configurations of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args, get_type_hints

from fmha.harness.errors import UserError
from fmha.harness.worker.case import Field
from fmha.harness.worker.protocol import Cell, Configuration

# What a filter calls a field of Configuration.
KEYS: Mapping[str, str] = {
    "hd": "head_dim",
    "t": "t",
    "sk": "s_k",
    "mask": "mask",
    "batch": "batch",
    "heads": "heads",
    "kv": "kv",
    "offsets": "query_offsets",
    "lens": "kv_lens",
    "topk": "topk",
    "sink": "sink",
    "data": "data",
    "out": "output",
    "splits": "splits",
    "p": "p_path",
    "rows": "rows",
    "merge": "merge",
    "before": "before",
}
_KINDS = get_type_hints(Configuration)


class NothingSelectedError(UserError):
    """A suite has nothing that a filter accepts."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Accepts a configuration whose every named axis has one of its values; an empty filter accepts all."""

    accepted: Mapping[str, tuple[int | str, ...]]
    fields: Mapping[str, str] = field(default_factory=lambda: KEYS)  # what each key is called in a configuration

    def __str__(self) -> str:
        return ",".join(f"{key}={'|'.join(map(str, values))}" for key, values in self.accepted.items())

    def accepts(self, configuration: Cell) -> bool:
        return all(self._value(configuration, key) in values for key, values in self.accepted.items())

    def _value(self, configuration: Cell, key: str) -> int | str | None:
        """None where a kernel has no such field."""
        value: int | str | None = getattr(configuration, self.fields[key], None)
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


def parse_filter(terms: Sequence[str], own: Sequence[Field] = ()) -> Filter:
    """Read `key=value[|value...][,key=...]`, once or several times. Values of one key add up. Raises UserError.

    The keys are the names of the fields of one's `own` kernels, those of attention where there are none.
    """
    fields = {item.name: item.name for item in own} or KEYS
    choices = {item.name: item.choices for item in own} or {
        key: () if (kind := _KINDS[name]) is int else get_args(kind) for key, name in KEYS.items()
    }
    accepted: dict[str, tuple[int | str, ...]] = {}
    for term in (part.strip() for text in terms for part in text.split(",")):
        key, equals, values = (part.strip() for part in term.partition("="))
        if not equals:
            raise UserError(f"--filter: {term!r} is not key=value", next_step="write for example hd=64,t=1|4")
        if key not in fields:
            raise UserError(f"--filter: unknown key {key!r}", next_step=f"use one of {', '.join(fields)}")
        for value in values.split("|"):
            read = _value(key, value.strip(), choices[key])
            if read not in accepted.get(key, ()):
                accepted[key] = (*accepted.get(key, ()), read)
    return Filter(accepted, fields)


def _value(key: str, text: str, choices: Sequence[str]) -> int | str:
    if choices:
        if text not in choices:
            raise UserError(f"--filter: {text!r} is no {key}", next_step=f"use one of {', '.join(choices)}")
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UserError(f"--filter: {key} is a whole number, not {text!r}")
    return int(text)


def _order(value: int | str) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)
