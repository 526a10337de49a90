"""One cell of the matrix of a kernel of one's own: its fields by name. docs/use/kernels.md has the protocol.

Loads next to nothing, as the protocol between client and worker does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Value = int | str
MOST: Final = 2**31 - 1
_WORD = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True, slots=True)
class Field:
    """An axis of a kernel's configurations: a whole number, or one of `choices`.

    Without a `default` every configuration says it; one that has its default is left out of a configuration's name.
    """

    name: str
    choices: tuple[str, ...] = ()
    default: Value | None = None
    least: int = 1
    most: int = MOST

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.name.replace("_", "")):
            raise ValueError(f"field {self.name!r}: a name has lower-case letters, digits and '_'")
        if odd := [choice for choice in self.choices if not _WORD.fullmatch(choice)]:
            raise ValueError(f"field {self.name}: choice {odd[0]!r} is no word of lower-case letters and digits")
        if self.name in TAKEN:
            raise ValueError(f"field {self.name!r}: a case has something else of that name")
        if self.default is not None and (wrong := self.fault(self.default)):
            raise ValueError(f"field {self.name}: its default {wrong}")

    def fault(self, value: object) -> str | None:
        """What is wrong with a value."""
        if self.choices:
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}, not {value!r}"
        if type(value) is not int:
            return f"must be a whole number, not {value!r}"
        if not self.least <= value <= self.most:
            return f"must be at least {self.least} and at most {self.most}, not {value}"
        return None

    @property
    def pattern(self) -> str:
        """Of its part of a name: `rows4`, `data-steps`."""
        value = f"-({'|'.join(map(re.escape, self.choices))})" if self.choices else r"(\d{1,10})"
        return f"_{re.escape(self.name)}{value}"


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration of the kernel that matrix.yaml calls `kernel`. Its fields are attributes: `case.rows`."""

    kernel: str
    id: str
    values: tuple[tuple[str, Value], ...]

    @property
    def parameters(self) -> dict[str, Any]:
        """Its kernel and its fields by name, as records have them."""
        return {"kernel": self.kernel, **dict(self.values)}

    @property
    def cost(self) -> float:
        """What it costs the worker, roughly and in no unit."""
        return float(math.prod(abs(value) or 1 for _, value in self.values if isinstance(value, int)))

    @property
    def extent(self) -> tuple[int, int]:
        """What orders configurations of one kernel by size."""
        return math.prod(value for _, value in self.values if isinstance(value, int)), 0

    def __getattr__(self, name: str) -> Any:  # int or str, as the field is
        for known, value in self.values:
            if known == name:
                return value
        raise AttributeError(f"kernel {self.kernel} has no field {name!r}")


# Attributes of every case, which no field of one can be.
TAKEN: Final = frozenset(name for name in dir(Case) if not name.startswith("_"))


def case_of(kernel: str, fields: Sequence[Field], given: Mapping[str, object]) -> Case:
    """The case with these values. ValueError, which names the field, for values that it cannot have."""
    if unknown := [name for name in given if name not in {field.name for field in fields}]:
        raise ValueError(f"{unknown[0]}: kernel {kernel} has no such field; it has {_names(fields)}")
    values: list[tuple[str, Value]] = []
    parts = [kernel]
    for field in fields:
        value = given.get(field.name, field.default)
        if value is None:
            raise ValueError(f"{field.name}: is required")
        if wrong := field.fault(value):
            raise ValueError(f"{field.name}: {wrong}")
        assert isinstance(value, int | str)
        values.append((field.name, value))
        if value != field.default:
            parts.append(f"{field.name}-{value}" if field.choices else f"{field.name}{value}")
    return Case(kernel, "_".join(parts), tuple(values))


def parse_case(kernel: str, fields: Sequence[Field], name: str) -> Case:
    """The case of a name. ValueError, which says what is wrong, for what no case's `id` is."""
    whole = re.fullmatch(re.escape(kernel) + "".join(f"(?:{field.pattern})?" for field in fields), name)
    if whole is None:
        raise ValueError(f"it is not {kernel} and its fields, in this order: {_names(fields)}")
    found = zip(fields, whole.groups(), strict=True)
    given = {field.name: text if field.choices else int(text) for field, text in found if text is not None}
    case = case_of(kernel, fields, given)
    if case.id != name:
        raise ValueError(f"it is written {case.id}")
    return case


def _names(fields: Sequence[Field]) -> str:
    return ", ".join(field.name for field in fields)
