"""The matrix on a GPU whose machine has no more than python, numpy and cuda.bindings, in three steps:

python -m harness.bench.suites prepare FOLDER             here: builds for sm_90a, writes FOLDER/job.json
python -m harness.worker FOLDER/job.json > events.jsonl   there, in the checkout's copy, FOLDER beside it
python -m harness.bench.suites judge events.jsonl [JSON]  here: gates, and one line a suite
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

from harness.config import Matrix, load
from harness.stages.gate import judge
from harness.status import Status
from harness.worker.build import build_variants
from harness.worker.codec import event_from_line, write_job
from harness.worker.configuration import Configuration
from harness.worker.protocol import Job
from harness.worker.variants import VARIANTS, variant_for

ROOT = Path(__file__).parents[2]
ARCH = "sm_90a"
RANDOM_CASES = 500


def suites(matrix: Matrix) -> dict[str, tuple[Configuration, ...]]:
    """Every suite's configurations that an sm_90a kernel takes. Which way P goes is Blackwell's choice: `paths` is left
    out, and of random cases that ask for one the rest is kept."""
    found = {}
    for name in matrix.suite_names:
        cases = RANDOM_CASES if name in matrix.random_suites else None
        all_of_it = matrix.configurations(name, matrix.seed, cases)
        if name in matrix.random_suites:
            all_of_it = tuple(dict.fromkeys(dataclasses.replace(item, p_path="auto") for item in all_of_it))
        found[name] = tuple(item for item in all_of_it if not isinstance(variant_for(item, ARCH), str))
    return {name: items for name, items in found.items() if items}


def prepare(folder: Path, device: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    matrix = load(ROOT)
    variants = [variant for variant in VARIANTS if variant.arch == ARCH]
    builds = []
    for build in build_variants(ROOT, variants, ROOT / ".fmha" / "cache", 300.0, os.cpu_count() or 1, print):
        if build.error is not None:
            raise SystemExit(f"{build.variant.name}: {build.error}")
        ptx, cubin = (f"{folder.name}/{Path(shutil.copy(path, folder)).name}" for path in (build.ptx, build.cubin))
        builds.append(dataclasses.replace(build, ptx=ptx, cubin=cubin))
    once = {item.id: item for items in suites(matrix).values() for item in items}
    write_job(Job(device, tuple(builds), tuple(once.values()), matrix.seed), folder / "job.json")
    print(f"{len(once)} configurations")


def report(events: Path, archive: Path | None) -> int:
    """Prints a line a suite and every configuration that does not pass; 0 when all do. `archive`: JSON of the same."""
    matrix = load(ROOT)
    seen = {event.config: event for event in map(event_from_line, events.read_bytes().splitlines())
            if event.event in ("result", "error")}  # fmt: skip
    worst = 0
    tallies: dict[str, dict[str, float]] = {}
    for name, items in suites(matrix).items():
        tally: Counter[str] = Counter()
        cosine, lse = 1.0, 0.0
        for item in items:
            event = seen.get(item.id)
            if event is None or event.measurement is None:
                status = "not-run" if event is None else event.status
                print(f"  {item.id}: {status} {event.message if event else ''}")
            else:
                judgement = judge(event.measurement, event.findings, matrix.thresholds_for(item))
                status = judgement.status.value
                cosine, lse = min(cosine, event.measurement.cosine), max(lse, event.measurement.lse_error)
                if judgement.status is not Status.PASS:
                    print(f"  {item.id}: {status} {judgement.failed_checks}")
            tally[status] += 1
        worst |= tally["pass"] != len(items)
        print(f"{name}: {json.dumps(tally)}, cosine >= {cosine:.7f}, lse error <= {lse:.1e}")
        tallies[name] = {**tally, "cosine": cosine, "lse_error": lse}
    if archive is not None:
        measurements = {name: dataclasses.asdict(e.measurement) for name, e in seen.items() if e.measurement}
        kept = {"arch": ARCH, "suites": tallies, "measurements": measurements}
        archive.write_text(json.dumps(kept, indent=1) + "\n")
    return worst


def main() -> int:
    command, folder, *rest = sys.argv[1:]
    if command == "prepare":
        prepare(Path(folder), rest[0] if rest else "cuda")
        return 0
    return report(Path(folder), Path(rest[0]) if rest else None)


if __name__ == "__main__":
    sys.exit(main())
