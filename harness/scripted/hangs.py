"""Why a program hangs: it runs again, with somebody who looks on where the launch stands still."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Final

from fmha.emulator import programs
from fmha.emulator.debug.hang import NO_CIRCLE, HangWatch, explained

MOST_SECONDS: Final = 5.0  # of the launches that have run: to look on takes several times as long


def why_it_hangs(words: Sequence[str], options: programs.Options, ran: programs.Ran) -> list[str]:
    """The circle of waits and its likely cause, of the first launch that has a deadlock. Nothing where none has, or
    where another run would take long."""
    seconds = sum(made.stats["seconds"] for made in ran.seen.launches)
    if seconds > MOST_SECONDS or all(told.finding.rule != "deadlock" for told in ran.seen.hazards):
        return []
    print("the program runs a second time, to say why it hangs", file=sys.stderr, flush=True)
    watch = HangWatch()
    with open(os.devnull, "w") as nowhere, contextlib.suppress(programs.ProgramError):
        programs.run_program(words, dataclasses.replace(options, around=watch), lambda line: None, nowhere)
    lines = explained(watch.hangs[0]) if watch.hangs else []
    if lines[:1] == [NO_CIRCLE] and not any(line.startswith("likely cause") for line in lines):
        return []  # the report has said as much
    return [f"why it hangs: {line}" if n == 0 else line for n, line in enumerate(lines)]
