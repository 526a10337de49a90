"""python collect.py CORE HEADER: the machine's one table of operations, of the rows that stand with their handlers.

Each `#define PTXM_OPS_BINDER(X)` of a source below CORE goes into HEADER as it stands, and PTXM_OPS is all of them, in
the order of the files' names. isa/handlers.hpp says what a row has. The compiler reads both: two rows of one
name are an error, and so is an operation that stands in no row.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ROWS = re.compile(r"^#define (PTXM_OPS_\w+)\(X\)(?:.*\\\n)*.*\n", re.MULTILINE)
_HEAD = "// Made by isa/collect.py of the sources that are named here: change a row there.\n#pragma once\n"


def collect(core: Path) -> str:
    """The header's text. Raises ValueError where two sources have a macro of one name."""
    places: dict[str, Path] = {}
    text = [_HEAD]
    for source in sorted(core.rglob("*.cpp")):
        for found in _ROWS.finditer(source.read_text(encoding="utf-8")):
            if (other := places.setdefault(found[1], source)) != source:
                raise ValueError(f"{found[1]} is defined in {other} and in {source}")
            text.append(f"\n// {source.relative_to(core).as_posix()}\n{found[0]}")
    return "".join([*text, "\n#define PTXM_OPS(X)", *(f" \\\n    {name}(X)" for name in places), "\n"])


def main(core: str, header: str) -> None:
    """Leaves a header that is current as it was: nothing is compiled again."""
    path, text = Path(header), collect(Path(core))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
