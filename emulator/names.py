"""Names of C++ as people read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from fmha.emulator import _core

MOST: Final = 100  # characters of a name in a sentence
_MANGLED: Final = re.compile(r"\b_Z\w+")
_SHARED: Final = re.compile(r"\b(shared |shared memory in \[)0x([0-9a-f]+)(?:, 0x[0-9a-f]+\))?")


@cache
def readable(symbol: str) -> str:
    """A symbol as C++ has it, a kernel's `void` left out; itself where it is no C++."""
    return _core.readable(symbol).removeprefix("void ") if symbol.startswith("_Z") else symbol


def brief(name: str, most: int = MOST) -> str:
    """A name of C++ without its parameters where it is longer than `most`, then without what its templates are made
    for, and cut if that is too long still."""
    if len(name) <= most:
        return name
    name = _without(name, "(", ")")
    if len(name) > most:
        name = _without(name, "<", ">")
    return name if len(name) <= most else name[: most - 3] + "..."


def in_text(ptx: str) -> str:
    """A line of PTX with the last word of each name of C++ in it: `[tile+16]`."""
    return _MANGLED.sub(lambda found: _last(readable(found[0])), ptx)


def with_variables(text: str, shared: Sequence[tuple[str, int, int]]) -> str:
    """A message with the variable in it that lies at each place in shared memory: `shared 0x408 ('bar' + 8)`."""
    if not shared:
        return text

    def named(found: re.Match[str]) -> str:
        at = int(found[2], 16)
        holds = next(((name, begin) for name, begin, end in shared if begin <= at < end), None)
        if holds is None:
            return found[0]
        beyond = f" + {at - holds[1]}" if at > holds[1] else ""
        return f"{found[0]} ('{_last(readable(holds[0]))}'{beyond})"

    return _SHARED.sub(named, text)


def _last(name: str) -> str:
    """`tile` of `kernel(float*)::tile`."""
    return _without(_without(name, "(", ")"), "<", ">").split("::")[-1].split(" ")[-1] or name


def _without(name: str, opening: str, closing: str) -> str:
    """What stands between the outermost of these left out, and they too."""
    depth, kept = 0, []
    for letter in name:
        if letter == opening:
            depth += 1
        elif letter == closing:
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept)
