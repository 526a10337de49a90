"""Text that somebody else wrote, as it may be shown: a host, a compiler, a file name.

A terminal obeys what stands between its lines (ANSI sequences, OSC 52 that fills the clipboard, characters that turn
the direction of writing), and a CI system obeys whole lines. Both are shown text, never given an order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

# A runner of GitHub or Gitea carries out a line that begins with `::`, and `##[` wherever it stands.
_COMMAND = re.compile(r"^(\s*)(::)|##\[")


def printable(text: str) -> str:
    """One line without characters that do not print: controls, changes of direction, line ends of every kind."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)


def one_line(text: str) -> str:
    """`printable`, and no command to the CI system that reads the line: a backslash stands before what would be one."""
    return _COMMAND.sub(lambda found: rf"{found[1]}\::" if found[2] else r"#\#[", printable(text))


def lines(text: str) -> list[str]:
    """Each line of a text as `one_line` shows it; tabs stay."""
    return ["\t".join(map(one_line, line.removesuffix("\r").split("\t"))) for line in text.split("\n")]


def shown(value: object) -> object:
    """What a page shows of a value: of a text its lines as `printable` has them, tabs too; of anything else itself."""
    if type(value) is not str or value.isprintable():
        return value
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in value.split("\n"))


def escaped_json(document: str) -> str:
    r"""JSON text that says the same and can be shown: what does not print, and `##[`, become \u sequences.

    Such characters stand in a document's strings only, so that the document stays what it was.
    """
    kept = "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in document)
    return kept.replace("##[", r"#\u0023[")


def fitting(widths: Sequence[int], room: int, gap: int, whole: Collection[int], least: int = 8) -> list[int]:
    """The widths at which columns fit into `room` with a gap between them; 0 for one that is left out.

    Those that are not `whole` give way: the widest first, down to `least`, then all of the last ones. At the end the
    first is cut as far as it has to be.
    """
    found = list(widths)

    def excess() -> int:
        there = [width for width in found if width]
        return sum(there) + gap * (len(there) - 1) - room

    soft = [at for at in range(len(found)) if at not in whole]
    while excess() > 0 and any(found[at] > least for at in soft):
        found[max(soft, key=lambda at: found[at])] -= 1
    for at in reversed(soft):
        if excess() > 0 and at:
            found[at] = 0
    for at in soft:  # what one that is left out has freed
        found[at] += min(max(0, -excess()), widths[at] - found[at]) if found[at] else 0
    if excess() > 0 and found:
        found[0] = max(1, found[0] - excess())
    return found


def cut(text: str, width: int) -> str:
    """A cell at most so wide, its middle left out where it is longer: names differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) - (width - 1) // 2
    return text[:head] + "\u2026" + text[len(text) - (width - 1) // 2 :] if width > 1 else "\u2026"[:width]


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
