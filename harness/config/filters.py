"""`--filter hd=64,t=1|4`: picks configurations of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from harness.errors import UserError
from harness.worker.protocol import Configuration, Mask

_AXES: Mapping[str, Callable[[Configuration], int | str]] = {
    "hd": lambda item: item.head_dim,
    "t": lambda item: item.t,
    "sk": lambda item: item.s_k,
    "mask": lambda item: item.mask,
    "batch": lambda item: item.batch,
}
_MASKS: tuple[str, ...] = get_args(Mask)


@dataclass(frozen=True, slots=True)
class Filter:
    """Accepts a configuration whose every named axis has one of its values; an empty filter accepts all."""

    accepted: Mapping[str, tuple[int | str, ...]]

    def __str__(self) -> str:
        return ",".join(f"{key}={'|'.join(map(str, values))}" for key, values in self.accepted.items())

    def accepts(self, configuration: Configuration) -> bool:
        return all(_AXES[key](configuration) in values for key, values in self.accepted.items())

    def select(self, configurations: Iterable[Configuration], suite: str) -> tuple[Configuration, ...]:
        """The accepted ones, in order. Raises UserError when there are none."""
        candidates = tuple(configurations)
        chosen = tuple(item for item in candidates if self.accepts(item))
        if not chosen:
            present = "; ".join(
                f"{key} is one of {', '.join(map(str, sorted({_AXES[key](item) for item in candidates}, key=_order)))}"
                for key in self.accepted
            )
            raise UserError(f"no configuration matches --filter {self} in suite {suite}; there {present}")
        return chosen


def parse_filter(terms: Sequence[str]) -> Filter:
    """Read `key=value[|value...][,key=...]`, once or several times. Values of one key add up. Raises UserError."""
    accepted: dict[str, tuple[int | str, ...]] = {}
    for term in (part.strip() for text in terms for part in text.split(",")):
        key, equals, values = (part.strip() for part in term.partition("="))
        if not equals:
            raise UserError(f"--filter: {term!r} is not key=value", next_step="write for example hd=64,t=1|4")
        if key not in _AXES:
            raise UserError(f"--filter: unknown key {key!r}", next_step=f"use one of {', '.join(_AXES)}")
        for value in values.split("|"):
            read = _value(key, value.strip())
            if read not in accepted.get(key, ()):
                accepted[key] = (*accepted.get(key, ()), read)
    return Filter(accepted)


def _value(key: str, text: str) -> int | str:
    if key == "mask":
        if text not in _MASKS:
            raise UserError(f"--filter: {text!r} is no mask", next_step=f"use one of {', '.join(_MASKS)}")
        return text
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UserError(f"--filter: {key} is a whole number, not {text!r}")
    return int(text)


def _order(value: int | str) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)
