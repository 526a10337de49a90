"""`.file`, `.loc` and `.section`: where the code came from."""

from __future__ import annotations

from fmha.emulator.ptx.expressions import parse_integer
from fmha.emulator.ptx.lexer import END, Tokens, unquote
from fmha.emulator.ptx.parsed_module import Location

_DEEPEST = 64  # calls inlined into one another; beyond that the outermost are dropped


class DebugInfo:
    """The files and the strings of a module. Both may follow the code that refers to them, so they are read first."""

    def __init__(self, tokens: Tokens) -> None:
        self.files: dict[int, str] = {}
        self._strings: dict[str, int] = {}  # label in .debug_str -> offset in _bytes
        self._bytes = bytearray()
        self._seen: dict[tuple[int, int, int], tuple[Location, int]] = {}  # and how deeply it is inlined
        if ".file" in tokens.items or ".section" in tokens.items:
            self._collect(tokens)

    def _collect(self, tokens: Tokens) -> None:
        for at, token in enumerate(tokens.items):
            if token == ".file":
                tokens.at = at + 1
                index = parse_integer(tokens)
                name = unquote(tokens.items[tokens.at])
                if name is None:
                    tokens.unexpected("the name of a file")
                self.files[index] = name
            elif token == ".section" and tokens.items[at + 1] == ".debug_str":
                tokens.at = at + 2
                self._collect_strings(tokens)
        tokens.at = 0

    def _collect_strings(self, tokens: Tokens) -> None:
        tokens.expect("{")
        while not tokens.accept("}"):
            token = tokens.take()
            if token == END:
                tokens.unexpected("'}'")
            if tokens.items[tokens.at] == ":":
                self._strings[token] = len(self._bytes)
            elif token.isdigit() and len(token) <= 3:
                self._bytes.append(int(token) & 0xFF)

    def _string(self, label: str, offset: int) -> str:
        start = self._strings.get(label)
        if start is None or not 0 <= start + offset < len(self._bytes):
            return label
        end = self._bytes.find(0, start + offset)
        return self._bytes[start + offset : end if end >= 0 else None].decode("utf-8", "replace")

    def _place(self, tokens: Tokens) -> tuple[int, int, int]:
        return parse_integer(tokens), parse_integer(tokens), parse_integer(tokens)

    def parse_loc(self, tokens: Tokens) -> Location:
        """After `.loc`; a semicolon may follow (Triton's has none)."""
        place = self._place(tokens)
        function = inlined_at = None
        depth = 0
        while tokens.accept(","):
            attribute = tokens.take()
            if attribute == "function_name":
                label = tokens.identifier("the label of a function's name")
                function = self._string(label, parse_integer(tokens) if tokens.items[tokens.at] == "+" else 0)
            elif attribute == "inlined_at":
                outer = self._place(tokens)
                inlined_at, depth = self._seen.get(outer, (None, 0))
                if inlined_at is None or depth >= _DEEPEST:
                    inlined_at, depth = self._location(outer), 0
                depth += 1
            else:
                tokens.at -= attribute != END
                tokens.unexpected("function_name or inlined_at")
        tokens.accept(";")
        known = self._seen.get(place)
        if known is not None and known[0].function == function and known[0].inlined_at is inlined_at:
            return known[0]  # its depth is that of what it is inlined into
        location = self._location(place, function, inlined_at)
        self._seen[place] = (location, depth)
        return location

    def _location(
        self, place: tuple[int, int, int], function: str | None = None, inlined_at: Location | None = None
    ) -> Location:
        file, line, column = place
        return Location(self.files.get(file, f"<file {file}>"), line, column, function, inlined_at)


def skip_file(tokens: Tokens) -> None:
    """After `.file`: a number, a name, and perhaps a time stamp and a size."""
    parse_integer(tokens)
    if unquote(tokens.items[tokens.at]) is None:
        tokens.unexpected("the name of a file")
    tokens.at += 1
    while tokens.accept(","):
        parse_integer(tokens)
    tokens.accept(";")


def skip_section(tokens: Tokens) -> None:
    """After `.section`: a name and a block in braces."""
    if not tokens.items[tokens.at].startswith("."):
        tokens.unexpected("the name of a section")
    tokens.at += 1
    tokens.expect("{")
    depth, items, at = 1, tokens.items, tokens.at
    while depth:
        token = items[at]
        at += 1
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
        elif token == END:
            tokens.at = at - 1
            tokens.unexpected("the '}' of a section")
    tokens.at = at
