"""How much faster two workers are than one: `chrt -r 5 python -m tests.remote.bench_workers --cases 500`.

The same random suite on the emulator, in turn with one worker on one core, with one worker that has both, where its
emulator uses the second one, and with two workers. Printed are the seconds of guard and matrix, which is what workers
share; what handing out alone would give, the longest first to whichever worker is free; and the processor time of all.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
WAYS = {"1 on 1 core": (1, 1), "1 on 2 cores": (1, 2), "2 on 2 cores": (2, 2)}  # workers, cores


def main() -> None:
    options = _parser().parse_args()
    rounds = [{way: _measure(*how, options.cases) for way, how in WAYS.items()} for _ in range(options.rounds)]
    print(f"{'seconds, medians of ' + str(options.rounds):40}" + "".join(f"{way:>14}" for way in WAYS))
    for key in rounds[0]["1 on 1 core"]:
        middle = [statistics.median(each[way][key] for each in rounds) for way in WAYS]
        print(f"{key:40}" + "".join(f"{value:14.2f}" for value in middle))


def _measure(workers: int, cores: int, cases: int) -> dict[str, float]:
    ours = sorted(os.sched_getaffinity(0))[:cores]
    with tempfile.TemporaryDirectory() as folder:
        command = ["taskset", "--cpu-list", ",".join(map(str, ours)), sys.executable, "-m", "fmha", "run-matrix"]
        command += ["--suite", "random", "--cases", str(cases), "--seed", "1", "--drawn", "2"]
        command += ["--workers", str(workers), "--results", folder, "-q"]
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        (path,) = Path(folder).glob("*.json")
        record: dict[str, Any] = json.loads(path.read_text())
    stages = record["durations"]
    seconds = [item["seconds"] for item in record["configurations"] if item.get("seconds")]
    return {
        "guard and matrix": stages["guard"] + stages["matrix"],
        "configurations, their sum": sum(seconds),
        "  dealt out to so many, until the end": _dealt(seconds, workers),
        "processor time of the run": used.ru_utime + used.ru_stime,
    }


def _dealt(seconds: list[float], workers: int) -> float:
    free = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.bench_workers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="medians are over this many  [default: 3]")
    parser.add_argument("--cases", type=int, default=500, metavar="N", help="[default: 500]")
    return parser


if __name__ == "__main__":
    main()
