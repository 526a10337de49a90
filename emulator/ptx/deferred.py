"""Large modules: the bodies of their entries are parsed when they are looked at, which is of few kernels mostly.

A library's module has hundreds of entries, of which a program launches one. Its text is parsed with the bodies left
blank, lines and all, and once more with one of them when that is asked for. What is wrong within a body is told then.
"""

from __future__ import annotations

import bisect
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from fmha.emulator.ptx.parsed_module import Function

LARGE: Final = 256 << 10  # characters of a module from which on it is worth it
_ENTRY: Final = re.compile(r"^[ \t]*(?:\.\w+[ \t]+)*\.entry\s+([\w$]+)", re.MULTILINE)
_BRACE: Final = re.compile(r'[{};]|//[^\n]*|/\*(?s:.*?)\*/|"(?:[^"\\\n]|\\.)*"')
_OF_BODY: Final = frozenset(
    ("body", "labels", "registers", "variables", "directives", "prototypes", "branch_targets", "call_targets")
)
_COMMENTS: Final = re.compile(r'//[^\n]*|/\*(?s:.*?)\*/|"(?:[^"\\\n]|\\.)*"')
_LOADING: Final = threading.RLock()  # a body that one thread parses is blank to no other
Span = tuple[int, int]


class DeferredFunction(Function):
    """An entry whose body is parsed at the first look at it."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_BODY:
            pending: list[Callable[[], Function]] = object.__getattribute__(self, "pending")
            if pending and name != "directives":
                with _LOADING:
                    if pending:
                        whole = pending[0]()  # what is wrong with it is told at each look
                        for field in _OF_BODY:
                            object.__setattr__(self, field, getattr(whole, field))
                        pending.clear()
        return object.__getattribute__(self, name)


def deferred(function: Function, load: Callable[[], Function]) -> Function:
    """`function`, parsed with a blank body, as one that `load` completes."""
    fields = {name: getattr(function, name) for name in function.__dataclass_fields__}
    return DeferredFunction(**fields | {"pending": [load]})


def entry_bodies(text: str) -> dict[str, Span]:
    """What lies between the outermost braces of each entry that is defined; {} where that cannot be told. An entry may
    be declared alone, as of another module."""
    bodies: dict[str, Span] = {}
    end = 0
    comments = [found.span() for found in _COMMENTS.finditer(text)]
    for entry in _ENTRY.finditer(text):
        at = bisect.bisect(comments, (entry.start(1),)) - 1
        if entry.start() < end or (at >= 0 and entry.start(1) < comments[at][1]):
            continue  # within a body or a comment
        span = _body(text, entry.end())
        if span == ():
            continue
        if not span or entry[1] in bodies:
            return {}
        bodies[entry[1]] = span
        end = span[1]
    return bodies


def blanked(text: str, spans: Iterable[Span]) -> str:
    """The text with these parts left out but for their line ends."""
    parts, done = [], 0
    for begin, end in sorted(spans):
        parts += [text[done:begin], "\n" * text.count("\n", begin, end)]
        done = end
    return "".join([*parts, text[done:]])


def _body(text: str, at: int) -> Span | tuple[()] | None:
    """() for an entry that is declared and not defined, None for one without an end."""
    depth, begin = 0, 0
    for found in _BRACE.finditer(text, at):
        brace = found[0]
        if brace == "{":
            depth += 1
            begin = begin or found.end()
        elif brace == ";" and not depth:
            return ()
        elif brace == "}":
            depth -= 1
            if depth <= 0:
                return (begin, found.start()) if depth == 0 else None
    return None
