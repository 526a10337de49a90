"""Tables and JSON, the same way for every command. rich is imported where it is used: `fmha ps`
does without, and half of its time would be imports."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.harness.errors import UserError
from fmha.harness.judge.numbers import encode_numbers
from fmha.harness.text import cut, escaped_json, fitting, one_line, printable

if TYPE_CHECKING:
    from fmha.harness.cli.screen import Console


def print_json(kind: str, version: int, fields: Mapping[str, Any], indent: int | None = 1) -> None:
    """One object on standard output, which starts with its format, e.g. `fmha-compare/1`.

    A field keeps its name and meaning within a version; fields may be added. Numbers that JSON has no token for are
    the strings of the archive. Without an indent it is one line, and written at once.
    """
    sys.stdout.buffer.write(json_bytes(kind, version, fields, indent))
    if indent is None:
        sys.stdout.flush()


def json_bytes(kind: str, version: int, fields: Mapping[str, Any], indent: int | None = 1) -> bytes:
    """What `print_json` prints."""
    document = {"format": f"fmha-{kind}/{version}"} | encode_numbers(dict(fields))
    text = json.dumps(document, indent=indent, allow_nan=False, ensure_ascii=False)
    return f"{escaped_json(text)}\n".encode()


def write_file(path: Path, text: str) -> None:
    """UserError where it cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from error


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    console: Console,
    left: int = 1,
    whole: Collection[str] = (),
) -> None:
    """Aligned columns, the first `left` of them to the left; on a terminal as wide as that is, elsewhere all of them.
    Where that is too narrow, those that are `whole` are shown as they are, and the others give way."""
    if console.is_terminal:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
        natural = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        fixed = {at for at, name in enumerate(columns) if name in whole}
        widths = fitting(natural, console.width, 2, fixed)
        kept = [at for at, width in enumerate(widths) if width]
        for at in kept:
            table.add_column(cut(columns[at], widths[at]), justify="left" if at < left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cut(printable(row[at]), widths[at])) for at in kept))
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(one_line("  ".join(cells).rstrip()))


def say(text: str = "", style: str = "", console: Console | None = None) -> None:
    """One line as it is: no markup, no wrapping, no control characters."""
    from rich.text import Text

    from fmha.harness.cli.screen import Console

    (console or Console()).print(Text(one_line(text), style), soft_wrap=True)
