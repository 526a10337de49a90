"""Where a kernel looks at the machine that runs it: at a clock or a counter, at which multiprocessor of how many it is
on and in which of its places, at what the driver tells it.

What it computes may depend on that, and no run on another machine shows it. A kernel that times itself has a reason.
"""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 20  # places of a variant
_BEGINNINGS: Final = (
    *(b"%clock", b"%globaltimer", b"%smid", b"%nsmid", b"%warpid", b"%nwarpid", b"%gridid", b"%envreg", b"%pm"),
)
_REGISTER = re.compile(
    rb"%(?:clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|n?(?:sm|warp)id|gridid|envreg\d+|pm\d(?:_64)?)\b(?!\$)"
)
_FILE = re.compile(rb'^[^\S\n]*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LINE = re.compile(rb"^\s*\.loc\s+(\d+)\s+(\d+)")


def special_registers(ptx: bytes) -> tuple[str, ...]:
    """The special registers that PTX reads, each with the line of the source where that is known: `%smid (a.cu:7)`."""
    if not any(word in ptx for word in _BEGINNINGS):  # the rule, and quick: a run has many megabytes of PTX
        return ()
    files = {number: name.decode(errors="replace") for number, name in _FILE.findall(ptx)}
    found: dict[str, None] = {}
    place = ""
    for line in ptx.splitlines():
        code = line.partition(b"//")[0]
        if at := _LINE.match(code):
            place = f" ({files[at[1]]}:{int(at[2])})" if at[1] in files else ""
        for register in _REGISTER.findall(code):
            found.setdefault(register.decode() + place)
    return tuple(found)[:MOST]
