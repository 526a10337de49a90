"""What an archive of many runs costs: `python -m tests.evidence.archive_scale RUN.json [--runs 10000]`.

Copies the first 16 configurations of a run under other commits, times and seeds, with errors that vary, and prints CPU
seconds of every command over them, its start included.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from fmha.harness import archive
from fmha.harness.archive import RunRecord

COMMITS = 500
CONFIGURATIONS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, archive.read(options.run), options.runs)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{options.runs} runs, {size / 1e6:.0f} MB")
        measured = archive.read(options.run).configurations[0].id
        for words in (
            ("results", "ls"),
            ("results", "ls"),
            ("history", measured),
            ("results", "show", "latest"),
            ("results", "verify"),
            ("results", "prune", "--keep", str(options.runs // 2), "--dry-run"),
            ("results", "prune", "--keep", str(options.runs // 2)),
            ("results", "ls"),
        ):
            print(f"fmha {' '.join(words)}: {cost([*words, '--results', name]):.1f} s", flush=True)
        index = sum(path.stat().st_size for path in folder.glob(".index*"))
        print(f"index {index / 1e6:.0f} MB; {len(list(folder.glob('*.json')))} runs left")


def fill(folder: Path, run: RunRecord, count: int) -> None:
    generator = random.Random(0)
    for number in range(count):
        items = []
        for item in run.configurations[:CONFIGURATIONS]:
            assert item.metrics
            error = item.metrics.relative_l2 * generator.uniform(0.9, 1.1)
            items.append(item.model_copy(update={"metrics": replace(item.metrics, relative_l2=error)}))
        sha = f"{generator.randrange(COMMITS):012x}".ljust(40, "0")
        changes = {
            "started": run.started + timedelta(minutes=number),
            "finished": run.finished + timedelta(minutes=number),
            "commit": run.commit.model_copy(update={"sha": sha}),
            "selection": run.selection.model_copy(update={"seed": number % 20}),
            "configurations": items,
        }
        archive.write(run.model_copy(update=changes), folder)


def cost(arguments: list[str]) -> float:
    """CPU seconds of a command that must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "fmha", *arguments], check=True, stdout=subprocess.DEVNULL, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
