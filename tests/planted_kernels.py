"""Mistakes in the kernels, and whether the tests of kernels that `make test` runs still see them.

    python -m tests.planted_kernels --sample 24 --seed 45 --jobs 16 --within 150

A sample of the library of mistakes (docs/reference/mutants.md), each put into a copy of the tree. Of tests/kernel those
tests that make test runs are run until one fails, and where none does, those of the night. `make run` knows nothing of
this, and kills nearly all of the library by itself: what is told here is what its tests add.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.planted import ROOT, first_red, lay_out
from tools.mutants import library
from tools.mutants.library import Mutant, place_of

KERNEL = "tests/kernel"
TESTS = {
    "sm_100a": (f"{KERNEL}/test_forward.py", f"{KERNEL}/test_prefill.py"),
    "sm_90a": tuple(f"{KERNEL}/test_sm90{of}.py" for of in ("", "_launch", "_packed")),
}


@dataclass(frozen=True, slots=True)
class Noticed:
    """By which test, in how many seconds; of the day, of the night, by none, or nothing in the time that there was."""

    test: str
    when: str
    seconds: float


def drawn(count: int, seed: int) -> list[Mutant]:
    """Of those that change kernels alone and are not argued equivalent anywhere."""
    ours = [m for m in library.load() if not m.of_kernel_side and not m.equivalent and not library.refused([m], ROOT)]
    return random.Random(seed).sample(ours, min(count, len(ours)))


def noticed_by(mutant: Mutant, within: float) -> Noticed:
    """By the first test that fails; `within` seconds for those of the day, and again for those of the night."""
    tests = [test for arch in mutant.arches for test in TESTS[arch]]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        tree = Path(name) / "tree"
        lay_out(tree)
        for edit in mutant.edits:
            place = tree / place_of(edit.file)
            place.write_text(edit.applied(place.read_text(encoding="utf-8")), encoding="utf-8")
        for when in ("day", "night"):
            try:
                found = first_red(tree, tests, night=when == "night", seconds=within)
            except subprocess.TimeoutExpired:
                return Noticed("", f"open by {when}", time.monotonic() - start)
            if found:
                return Noticed(re.sub("@.*", "", found), when, time.monotonic() - start)
    return Noticed("", "nothing", time.monotonic() - start)


def main() -> int:
    """0 where the tests of the day notice all that they had the time for, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--sample", type=int, default=24, metavar="N", help="mistakes  [default: %(default)s]")
    add("--seed", type=int, default=45, help="of the sample  [default: %(default)s]")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once  [default: the cores]")
    add("--within", type=float, default=600.0, metavar="SECONDS", help="for a mistake  [default: %(default)g]")
    options = parser.parse_args()

    def tell(mutant: Mutant) -> str:
        noticed = noticed_by(mutant, options.within)
        said = f"`{noticed.test}`" if noticed.test else f"**{noticed.when}**"
        words = ", **at night**" if noticed.when == "night" else ""
        print(f"| {mutant.name} | {', '.join(mutant.arches)} | {said}{words} | {noticed.seconds:.0f} s |", flush=True)
        return noticed.when

    with ThreadPoolExecutor(options.jobs) as pool:
        ends = list(pool.map(tell, drawn(options.sample, options.seed)))
    return 1 if {"night", "nothing"} & set(ends) else 0


if __name__ == "__main__":
    sys.exit(main())
