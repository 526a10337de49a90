"""A program or a script under other schedules: the same command again, from its beginning, for each of them.

What a process does before and between its launches is its own, so no launch is repeated alone. A run whose numbers
check themselves fails with its exit code, one whose kernels race with what the machine finds.
"""

from __future__ import annotations

import itertools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fmha.emulator.device import Schedule
from fmha.emulator.explore import schedules_of

MOST = 100_000  # schedules of one exploration
_HEADLINE = 3  # findings of a run that are printed


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command. `words` are of the program's end where that failed; `findings` as --json has them."""

    schedule: Schedule
    seed: int
    passed: bool
    words: str
    findings: tuple[dict[str, Any], ...]

    def lines(self) -> Iterator[str]:
        """What failed, in words."""
        if self.words:
            yield self.words
        for told in self.findings[:_HEADLINE]:
            finding = told["finding"]
            place = finding.get("place") or {}
            lines = [place.get("source"), *place.get("callers", ())]
            where = f" ({lines[-1]})" if lines[-1] else ""
            yield f"{told['kernel']}: {finding['rule']}: {finding['message']}{where}"
        if len(self.findings) > _HEADLINE:
            yield f"and {len(self.findings) - _HEADLINE} more findings"


def others(count: int | None, seconds: float | None, seed: int) -> Iterator[tuple[Schedule, int]]:
    """Schedules beside `realistic`, which has run: `count` in all, or random ones until `seconds` have passed."""
    if count is not None:
        yield from ((schedule, number + seed if number else 0) for schedule, number in schedules_of(count)[1:])
        return
    end = time.monotonic() + (seconds or 0.0)
    fixed: list[tuple[Schedule, int]] = [("early", 0), ("late", 0)]
    drawn: Iterable[tuple[Schedule, int]] = (("random", number) for number in itertools.count(1 + seed))
    for place in itertools.chain(fixed, drawn):
        if time.monotonic() >= end:
            return
        yield place


def run(command: Sequence[str], schedule: Schedule, seed: int) -> Run:
    """`fmha emulate` with the words `command` under another schedule, in a process of its own. What the program prints
    has been printed once already, and is left out."""
    words = ["--schedule", schedule, "--seed", str(seed), "--json", *command]
    done = subprocess.run(
        [sys.executable, "-m", "fmha", "emulate", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Run(schedule, seed, False, f"it did not end with a report: {last}", ())
    failed = report["program"]["code"] if "program" in report else report["failed"]
    said = f"it ended with {failed}" if failed else ""
    return Run(schedule, seed, done.returncode == 0, said, tuple(report["findings"]))


def replay(command: Sequence[str], schedule: Schedule, seed: int) -> str:
    """The command that shows it again."""
    return shlex.join(["fmha", "emulate", "--schedule", schedule, "--seed", str(seed), *command])
