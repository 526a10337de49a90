"""`--filter hd=64,t=1|4`: picks configurations of a suite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

from fmha.harness.errors import UserError
from fmha.harness.worker.configuration import Configuration

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
}
_KINDS = get_type_hints(Configuration)


class NothingSelectedError(UserError):
    """A suite has nothing that a filter accepts."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Accepts a configuration whose every named axis has one of its values; an empty filter accepts all."""

    accepted: Mapping[str, tuple[int | str, ...]]

    def __str__(self) -> str:
        return ",".join(f"{key}={'|'.join(map(str, values))}" for key, values in self.accepted.items())

    def accepts(self, configuration: Configuration) -> bool:
        return all(getattr(configuration, KEYS[key]) in values for key, values in self.accepted.items())

    def select(self, configurations: Iterable[Configuration], where: str) -> tuple[Configuration, ...]:
        """The accepted ones, in order. Raises UserError when there are none."""
        candidates = tuple(configurations)
        chosen = tuple(item for item in candidates if self.accepts(item))
        if not chosen:
            present = "; ".join(
                f"{key} is one of {', '.join(map(str, sorted(_values(candidates, key), key=_order)))}"
                for key in self.accepted
            )
            raise NothingSelectedError(f"no configuration matches --filter {self} in {where}; there {present}")
        return chosen


def parse_filter(terms: Sequence[str]) -> Filter:
    """Read `key=value[|value...][,key=...]`, once or several times. Values of one key add up. Raises UserError."""
    accepted: dict[str, tuple[int | str, ...]] = {}
    for term in (part.strip() for text in terms for part in text.split(",")):
        key, equals, values = (part.strip() for part in term.partition("="))
        if not equals:
            raise UserError(f"--filter: {term!r} is not key=value", next_step="write for example hd=64,t=1|4")
        if key not in KEYS:
            raise UserError(f"--filter: unknown key {key!r}", next_step=f"use one of {', '.join(KEYS)}")
        for value in values.split("|"):
            read = _value(key, value.strip())
            if read not in accepted.get(key, ()):
                accepted[key] = (*accepted.get(key, ()), read)
    return Filter(accepted)


def _value(key: str, text: str) -> int | str:
    kind = _KINDS[KEYS[key]]
    if kind is not int:
        if text not in get_args(kind):
            raise UserError(f"--filter: {text!r} is no {key}", next_step=f"use one of {', '.join(get_args(kind))}")
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UserError(f"--filter: {key} is a whole number, not {text!r}")
    return int(text)


def _values(candidates: Iterable[Configuration], key: str) -> set[int | str]:
    return {getattr(item, KEYS[key]) for item in candidates}


def _order(value: int | str) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)
