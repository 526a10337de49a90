"""The one exception of this package."""

from __future__ import annotations


class PtxError(Exception):
    """PTX text that cannot be parsed, or that names something that does not exist.

    `line` counts from 1 (None: no line is to blame), `text` is that source line without surrounding blanks.
    """

    def __init__(self, message: str, line: int | None = None, text: str = "") -> None:
        self.message = message
        self.line = line
        self.text = text
        where = "" if line is None else f"line {line}: "
        quoted = f": `{text}`" if text else ""
        super().__init__(f"{where}{message}{quoted}")
