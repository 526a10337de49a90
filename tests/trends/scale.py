"""What a site of many runs costs: `python -m tests.trends.scale RUN.json FOLDER [--runs 2000 --commits 500]`.

Makes below FOLDER a repository of so many commits with merges among them, and an archive of so many runs of them: the
first 72 configurations of RUN, under changing seeds, on the emulator and on five GPUs, with errors that vary as seeds
make them vary and with changes planted in them. Then it publishes again and again and prints what that took, and how
long a browser takes to the first paint of each kind of page, where there is one.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from selenium.webdriver.support.ui import WebDriverWait

from fmha.harness.archive.record_files import _checksum
from tests.report.browser import Browser, installed, started

CONFIGURATIONS = 72
LOADS = 7
NOISE = 0.15  # standard deviation of an error's logarithm
START = datetime(2026, 1, 1, tzinfo=UTC)
# Which share of the commits has passed when something is planted, and what.
PLANTED = {
    0.25: "P of head_dim 256 is summed in another order",
    0.40: "The order of sums as it was",
    0.60: "Wait for every stage of T = 128",
    0.70: "Four CTAs an SM",
    0.80: "Mask <script>alert(1)</script> & tail by a branch",
}
ODD = 4  # the GPU that is slower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=500)
    options = parser.parse_args()
    shas = history(options.folder / "repository", options.commits)
    results = options.folder / "repository" / "results"
    fill(results, json.loads(options.run.read_text()), shas, options.runs)
    size = sum(path.stat().st_size for path in results.iterdir())
    print(f"{options.runs} runs of {len(shas)} commits, {size / 1e6:.0f} MB of records", flush=True)
    for what in ("first", "nothing new"):
        print(f"fmha publish, {what}: {publish(options.folder)}", flush=True)
    fill(results, json.loads(options.run.read_text()), shas[-1:], 1, seed=99)
    print(f"fmha publish, one new run: {publish(options.folder)}")
    files = [path for path in (options.folder / "site").rglob("*") if path.is_file()]
    print(f"site: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    if installed():
        paint(options.folder, f"commit/{shas[-1]}.html")


def paint(folder: Path, commit: str) -> None:
    """First contentful paint from a file: the median of LOADS loads, the least and the largest, milliseconds."""
    with started(folder / "profile") as browser:
        for page in ("index.html", "trends.html", "trends.html#hd256_t1_sk128/lse_error", "commits.html", commit):
            for width in (1280, 390):
                took = sorted(first_paint(browser, folder / "site", page, width) for _ in range(LOADS))
                middle, least, most = took[len(took) // 2], took[0], took[-1]
                print(f"first paint at {width}, {page}: {middle:.0f} ms ({least:.0f} to {most:.0f})", flush=True)


def first_paint(browser: Browser, site: Path, page: str, width: int) -> float:
    driver = browser.open(site / "badge.json", width, 900)  # another page: the same one with another # is not loaded
    driver.get(f"{site.resolve().as_uri()}/{page}")
    painted = "return performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
    return float(WebDriverWait(driver, 60).until(lambda driver: driver.execute_script(painted))[0])


def publish(folder: Path) -> str:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fmha", "publish", str(folder / "site")]
    subprocess.run(command, check=True, cwd=folder / "repository")
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} s of processor time, {took:.1f} s"
    )


def history(root: Path, count: int) -> list[str]:
    """So many commits, ancestors first; every seventh is a merge, and every fiftieth has a tag."""
    root.mkdir(parents=True)
    subjects = dict.fromkeys(range(count), "")
    subjects |= {round(share * count): words for share, words in PLANTED.items()}
    lines = []
    for number in range(count):
        when = int((START + timedelta(hours=3 * number)).timestamp())
        subject = subjects[number] or f"Change {number} of the kernel"
        lines += ["commit refs/heads/main", f"mark :{number + 1}", f"committer Somebody <a@b.c> {when} +0000"]
        lines += [f"data {len(subject.encode())}", subject]
        lines += [f"from :{number}"] * (number > 0) + [f"merge :{number - 3}"] * (number > 6 and number % 7 == 0)
        lines += ["M 644 inline state", f"data {len(str(number))}", str(number)]
        if number % 50 == 49:
            lines += [f"reset refs/tags/v{number // 50}", f"from :{number + 1}"]
    run = {"cwd": root, "check": True, "env": os.environ | {"LC_ALL": "C"}}
    subprocess.run(["git", "init", "-q", "-b", "main"], **run)  # type: ignore[call-overload]
    subprocess.run(["git", "fast-import", "--quiet"], input="\n".join(lines).encode() + b"\n", **run)  # type: ignore[call-overload]
    said = subprocess.run(["git", "log", "--reverse", "--topo-order", "--format=%H"], capture_output=True, **run)  # type: ignore[call-overload]
    return said.stdout.decode().split()


def fill(folder: Path, run: Mapping[str, Any], shas: list[str], count: int, seed: int = 0) -> None:
    """Every commit has as many runs as any other: one on the emulator with seed 0, then others."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(seed)
    plain = dict(run) | {"acceptance": None, "regress": None, "configurations": run["configurations"][:CONFIGURATIONS]}
    plain["variants"] = [dict(item, cached=False) for item in plain["variants"]]
    verdict = {"word": "PASS", "exit_code": 0, "passed": CONFIGURATIONS, "total": CONFIGURATIONS}
    plain["verdict"] = verdict | {"counts": {"pass": CONFIGURATIONS}}
    plain["judge"] = dict(plain["judge"], files={})  # half of such a record, and nothing that a trend shows
    each = count // len(shas)
    for number in range(count):
        place, kind = divmod(number, each)
        share = place / len(shas) if len(shas) > 1 else 1.0
        made = varied(plain, share, kind, chance)
        began = START + timedelta(hours=3 * place, minutes=20 * kind + seed)
        made |= {"started": began.isoformat(), "finished": (began + timedelta(minutes=1)).isoformat()}
        made["commit"] = plain["commit"] | {"sha": shas[place], "dirty": False, "dirty_files": [], "dirty_count": 0}
        made["checksum"] = _checksum(made)
        name = f"{began:%Y%m%dT%H%M%SZ}-{shas[place][:12]}-{made['host']['name']}.json"
        (folder / name).write_text(json.dumps(made))


def varied(run: Mapping[str, Any], share: float, kind: int, chance: random.Random) -> dict[str, Any]:
    """A run when that share of the commits has passed. Kinds 0 and 1 are on the emulator, the others on GPUs."""
    made = dict(run)
    gpu = chance.randrange(5) if kind > 1 else None
    made["selection"] = dict(run["selection"], seed=0 if kind != 1 else chance.randrange(1, 20))
    if gpu is not None:
        facts = {"name": "NVIDIA H200", "uuid": f"GPU-0000000{gpu}", "driver": "570.1"}
        made["host"] = dict(run["host"], name="h200-a" if gpu < 3 else "h200-b", kind="ssh", gpu=facts)
    made["configurations"] = [one(item, share, gpu, chance) for item in run["configurations"]]
    made["variants"] = copy.deepcopy(run["variants"])
    for variant in made["variants"]:
        variant["seconds"] = 1.2 * chance.lognormvariate(0, 0.1)
        if share >= 0.70 and variant["head_dim"] == 512:
            variant["resources"]["registers"] += 24
    return made


def one(item: Mapping[str, Any], share: float, gpu: int | None, chance: random.Random) -> dict[str, Any]:
    metrics, axes = dict(item["metrics"]), item["parameters"]
    for name in ("relative_l2", "max_error", "lse_error", "row_max_error", "row_sum_error"):
        metrics[name] *= chance.lognormvariate(0, NOISE)
    metrics["cosine"] = 1 - (1 - metrics["cosine"]) * chance.lognormvariate(0, NOISE)
    if 0.25 <= share < 0.40 and axes["head_dim"] == 256:
        metrics["lse_error"] = max(metrics["lse_error"], 1e-7) * 400
    stats = dict(item["stats"])
    if share >= 0.60 and axes["t"] == 128:
        stats["barrier_waits"] = stats["barrier_waits"] * 21 // 20
    timing = None
    if gpu is not None:
        seconds = 1e-5 * (1 + axes["s_k"] / 256) * (1.012 if gpu == ODD else 1.0)
        seconds *= 1.03 if share >= 0.80 and axes["mask"] == "causal" else 1.0
        stats = {}
        timing = {
            "seconds": [seconds * chance.lognormvariate(0, 0.004) for _ in range(5)],
            "clock_mhz": [], "bytes_moved": None, "operations": None, "bytes_per_second": None,
            "operations_per_second": None, "beside": None, "beside_seconds": [], "beside_clock_mhz": [],
        }  # fmt: skip
    return dict(item, metrics=metrics, stats=stats, timing=timing)


if __name__ == "__main__":
    main()
