"""Clean commits under many seeds: regress has nothing to say of any.

    python -m tests.evidence.clean_commits --commits 10 --seeds 10
    python -m tests.evidence.clean_commits --commits 100 --seeds 1

makes a repository of the kernels with so many commits that change the sources of those of head_dim 64, and nothing
that they compute (clean_edits.py); `fmha regress --seed N` holds each against the first, under every one of so many
seeds.
"""

from __future__ import annotations

import argparse
import copy
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmha.harness.config import load
from fmha.harness.judge.configuration import Configuration
from tests.evidence.clean_edits import clean
from tests.evidence.seeded_history import REPOSITORY, History, Planned

LEAST_SEEDS = 20  # of the baseline's noise, as `fmha baseline accept` has it


def configurations() -> list[Configuration]:
    """Those of the default suites that the kernels of one head_dim run, every kind of data among them."""
    matrix = load(REPOSITORY)
    found = matrix.configurations(matrix.default_suite, matrix.seed)
    return [item for item in found if item.head_dim == 64 and item.p_path in ("auto", "tmem")]


class Lanes:
    """Copies of a history, in each of which one thing happens at a time."""

    def __init__(self, history: History, folder: Path, count: int) -> None:
        self._free: queue.SimpleQueue[History] = queue.SimpleQueue()
        for number in range(count):
            lane = copy.copy(history)
            lane.root = folder / f"lane-{number}"
            shutil.copytree(history.root, lane.root, symlinks=True)
            self._free.put(lane)

    @contextmanager
    def one(self) -> Iterator[History]:
        lane = self._free.get()
        try:
            yield lane
        finally:
            self._free.put(lane)


def main() -> int:
    """0 when there was no alarm."""
    options = _parser().parse_args()
    commits = (Planned("Start", lambda root: None), *clean(REPOSITORY / "kernel", options.commits))
    chosen = configurations()
    data = ", ".join(sorted({item.data for item in chosen}))
    print(f"{options.commits} commits, {options.seeds} seeds, {len(chosen)} configurations, data {data}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        folder = Path(name)
        (folder / "history").mkdir()
        cases = {"cases": [item.id for item in chosen]}
        history = History(folder / "history", commits, cases, workers=options.jobs)
        history.accept(max(options.seeds, LEAST_SEEDS))
        print(f"the baseline after {time.monotonic() - start:.0f} s", flush=True)
        lanes = Lanes(history, folder, options.jobs)

        def held(place: int, seed: int) -> tuple[int, dict[str, Any]]:
            with lanes.one() as lane:
                return place, lane.regress(place, "--seed", str(seed), "--workers", "1")

        number, of = map(int, options.part.split("/"))
        places = range(number, len(commits), of)
        # Seeds after commits: a commit is built once, and its other seeds come when it has been.
        asked = [pool.submit(held, place, seed) for seed in range(options.seeds) for place in places]
        heard: dict[int, list[dict[str, Any]]] = {place: [] for place in places}
        for one in as_completed(asked):
            place, said = one.result()
            heard[place].append(said)
            if len(heard[place]) == options.seeds:
                red = sum(said["code"] != 0 for said in heard[place])
                told = [item["text"] for said in heard[place] for item in said["regressions"]]
                words = f"{commits[place].subject}: {red} alarms under {options.seeds} seeds"
                print(words, *told, sep="\n  ", flush=True)
    alarms = sum(said["code"] != 0 for own in heard.values() for said in own)
    print(f"{alarms} alarms of {len(asked)} runs in {time.monotonic() - start:.0f} s")
    return 1 if alarms else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--part", default="1/1", metavar="N/M", help="of M parts of the commits the Nth, from 1 on")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="so many at a time  [default: one a core]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
