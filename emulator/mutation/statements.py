"""PTX statements as text: found in the source, split into guard, mnemonic and operands, and put back.

Mutants are made from the text and not from the parsed model, whose names are made unique and so are not the source's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from fmha.emulator.ptx import Instruction

_PARTS = re.compile(r"(?P<guard>@!?\S+\s+)?(?P<mnemonic>\S+)\s*(?P<operands>.*)", re.DOTALL)
_OFFSET = re.compile(r"\+\s*(-?\d+)\s*\]$")
_BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction's text; str() is a statement again."""

    guard: str
    mnemonic: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.guard}{self.mnemonic} {', '.join(self.operands)}".rstrip() + ";"

    def with_mnemonic(self, mnemonic: str) -> Statement:
        """The same with another mnemonic, modifiers included."""
        return replace(self, mnemonic=mnemonic)

    def with_operand(self, index: int, text: str) -> Statement:
        """The same with another operand in that place."""
        return replace(self, operands=(*self.operands[:index], text, *self.operands[index + 1 :]))

    def stepped(self, index: int, operation: str, register: str = ".b32") -> str:
        """The statement with operand `index` replaced by a register that holds `operation` of it.

        `operation` is e.g. "add.s32 {new}, {old}, 1".
        """
        step = operation.format(new="%mutated", old=self.operands[index])
        return f"{{ .reg {register} %mutated; {step}; {self.with_operand(index, '%mutated')} }}"


def statement_of(text: str) -> Statement:
    """A statement taken apart. Its text has no semicolon."""
    parts = _PARTS.fullmatch(text.strip())
    assert parts is not None, text
    return Statement(parts["guard"] or "", parts["mnemonic"], split_operands(parts["operands"]))


def split_operands(text: str) -> tuple[str, ...]:
    """At the commas that no bracket holds."""
    operands: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            operands.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return (*operands, last) if last or operands else ()


def moved(address: str, nbytes: int) -> str:
    """The address operand `[base+offset]`, `nbytes` further."""
    found = _OFFSET.search(address)
    if found:
        return f"{address[: found.start()]}+{int(found[1]) + nbytes}]"
    return f"{address[:-1].rstrip()}+{nbytes}]"


class PtxSource:
    """PTX text in which statements are replaced without moving any line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def span(self, instruction: Instruction) -> tuple[int, int] | None:
        """Where the statement stands, its semicolon included; None when the text cannot be found on its line."""
        words = (re.escape(word) for word in instruction.text.split())
        pattern = re.compile(r"\s+".join(words) + r"\s*;")
        found = pattern.search(self.text, self._starts[instruction.line - 1])
        return found.span() if found else None

    def replaced(self, span: tuple[int, int], statement: str) -> str:
        """The text with the statement in place of the span. Lines behind it keep their numbers."""
        start, end = span
        return self.text[:start] + statement + "\n" * self.text.count("\n", start, end) + self.text[end:]
