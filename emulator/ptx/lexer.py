"""PTX text -> tokens, with a cursor over them."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NoReturn

from fmha.emulator.ptx.ptx_error import PtxError

# Possessive throughout, so that no input makes it backtrack. An instruction's dotted name is one token; a directive is
# one token a component (".shared", ".b8"). No rule accepts the tokens of a stray character and of a comment or a string
# without an end. The end of the text is an empty token.
_TOKEN = re.compile(
    r"""
    (?: \s++ | //[^\n]*+ | /\*(?s:.*?)\*/ )*+
    (
        [A-Za-z_$%][\w$]*+ (?: \.\w++ (?: ::\w++ )*+ )*+
      | \.\w++ (?: ::\w++ )*+
      | /\*(?s:.*+)
      | << | >> | == | != | <= | >= | && | \|\|
      | [][{}(),;:@!|+\-*/<>=~&^?]
      | \d++ (?: \.\d*+ (?: [eE][+-]?\d++ )?+ | [eE][+-]?\d++ ) (?![\w$])
      | \d[\w$]*+
      | "(?: [^"\\\n] | \\. )*+"?+
      | \S
      | \Z
    )
    """,
    re.ASCII | re.VERBOSE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
END = ""  # the token after the last


class Tokens:
    """The tokens of a text and a position in them. Hot loops read `items` and move `at` themselves."""

    __slots__ = ("_newlines", "at", "items", "source", "starts")

    def __init__(self, source: str) -> None:
        self.source = source
        self.items: list[str] = []
        self.starts: list[int] = []
        add, add_start = self.items.append, self.starts.append
        for match in _TOKEN.finditer(source):
            token = match[1]
            add(token)
            if token == END:
                add_start(len(source.rstrip()))
                break
            add_start(match.start(1))
        self.at = 0
        self._newlines = [match.start() for match in re.finditer("\n", source)]

    def line(self, at: int | None = None) -> int:
        """The line of the token at index `at` (default: the current one)."""
        start = self.starts[self.at if at is None else at]
        return bisect_left(self._newlines, start) + 1

    def line_text(self, line: int) -> str:
        """A line of the source, without the spaces around it."""
        first = self._newlines[line - 2] + 1 if line > 1 else 0
        last = self._newlines[line - 1] if line <= len(self._newlines) else len(self.source)
        return self.source[first:last].strip()

    def error(self, message: str, at: int | None = None) -> PtxError:
        """The error for a token, by default the current one, with its line."""
        line = self.line(at)
        return PtxError(message, line, self.line_text(line))

    def error_at_line(self, message: str, line: int) -> PtxError:
        """The error for a line, with its text."""
        return PtxError(message, line, self.line_text(line))

    def unexpected(self, wanted: str) -> NoReturn:
        """Raise: the current token is not what the grammar wants here."""
        token = self.items[self.at]
        if token == END:
            raise self.error(f"the text ends where {wanted} was expected")
        if token.startswith("/*"):
            raise self.error("comment without an end")
        shown = token if len(token) <= 40 else token[:40] + "..."
        # A missing semicolon is to be blamed on the statement that lacks it, not on the next.
        at = self.at - (1 if "';'" in wanted and self.at else 0)
        raise self.error(f"expected {wanted}, found {shown!r}", at)

    def take(self) -> str:
        """The current token; moves past it, but never past the end."""
        token = self.items[self.at]
        if token != END:
            self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Whether the next token is this one, which is then taken."""
        if self.items[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Takes this token. PtxError for another."""
        if self.items[self.at] != token:
            self.unexpected(f"'{token}'")
        self.at += 1

    def identifier(self, wanted: str) -> str:
        """Takes a name. PtxError, which says what was wanted, for anything else."""
        token = self.items[self.at]
        if not is_identifier(token):
            self.unexpected(wanted)
        self.at += 1
        return token

    def text(self, first: int, last: int) -> str:
        """The source from token `first` up to, not including, token `last`, on one line."""
        text = self.source[self.starts[first] : self.starts[last]]
        if "/" in text:
            text = _COMMENT.sub("", text)
        return " ".join(text.split()) if "\n" in text or "\t" in text else text.rstrip()


_IDENTIFIER = re.compile(r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)\Z", re.ASCII)


def is_identifier(token: str) -> bool:
    """Whether PTX takes the token for a name."""
    return _IDENTIFIER.match(token) is not None


def unquote(token: str) -> str | None:
    """The contents of a string token; None if it is not one."""
    if len(token) < 2 or token[0] != '"' or token[-1] != '"':
        return None
    return token[1:-1]
