"""Reading an instruction's modifiers: each is taken once, and what is left over is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn, TypeVar

from fmha.emulator._core import TYPES
from fmha.emulator.ptx import Instruction, PtxError

T = TypeVar("T")


class Modifiers:
    """The modifiers of an instruction, taken one by one; what is left at the end is refused."""

    def __init__(self, instruction: Instruction) -> None:
        self._instruction = instruction
        self._left = list(instruction.modifiers)

    @property
    def left(self) -> int:
        """How many nobody has taken."""
        return len(self._left)

    def take(self, *names: str) -> bool:
        """Takes the first of `names` that is present."""
        for name in names:
            if name in self._left:
                self._left.remove(name)
                return True
        return False

    def has(self, name: str) -> bool:
        """Whether it is there and has not been taken."""
        return name in self._left

    def those(self, *names: str) -> list[str]:
        """Which of `names` are left, in the order in which they are written."""
        return [name for name in self._left if name in names]

    def need(self, *names: str) -> None:
        """Takes these. PtxError for one that is missing."""
        for name in names:
            if not self.take(name):
                self._fail(f"modifier .{name} is missing")

    def choose(self, table: Mapping[str, T], default: T | None = None) -> T:
        """Takes the one modifier that is a key of `table`."""
        for name in self._left:
            if name in table:
                self._left.remove(name)
                return table[name]
        if default is None:
            self._fail(f"one of .{', .'.join(table)} is missing")
        return default

    def type(self, allowed: Iterable[str] | None = None) -> str:
        """Takes the first type modifier."""
        for name in self._left:
            if name in TYPES and name != "none":
                if allowed is not None and name not in allowed:
                    self._fail(f"type .{name} is not modelled here")
                self._left.remove(name)
                return name
        rest = f": none of .{', .'.join(self._left)} is one that is modelled" if self._left else ""
        self._fail(f"a type modifier is missing{rest}")

    def vector(self) -> int:
        """Takes .v2, .v4 or .v8; 1 without."""
        return self.choose({"v2": 2, "v4": 4, "v8": 8}, 1)

    def done(self) -> None:
        """PtxError where a modifier is left."""
        if self._left:
            self._fail(f"modifier .{self._left[0]} is unknown or not modelled")

    def _fail(self, message: str) -> NoReturn:
        raise PtxError(f"{message} in {self._instruction.mnemonic}", self._instruction.line, self._instruction.text)
