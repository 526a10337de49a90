"""All that is shown of the Hopper kernels on silicon, in one go: `python -m harness.bench.session FOLDER`.

FOLDER, a new one, gets a log of each step and session.json with their exit codes and seconds, and
records/         run records of `fmha run-matrix --host local`, one a suite: what `fmha compare` reads
bench.json       of `fmha bench`
sanitizer-*.log  compute-sanitizer's four tools over small problems of each head_dim
ncu-*.log        the profile of each head_dim's decode

With `--device emulator` the records alone, of the same PTX on the emulator. The checkout is copied and its copy is a
repository of one commit: a run needs one, and a machine that was lent for an hour may have the files only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.bench.shape_cases import CASES
from harness.bench.shapes import SHAPES
from harness.worker.process import run_group

ROOT = Path(__file__).parents[2]
ARCH = "sm_90a"
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
DECODE_SPLITS = {64: 8, 128: 8, 256: 8, 512: 4}
# Which way P goes is Blackwell's choice: the suite `paths` is left out, and of 1050 random cases some 500 remain.
SUITES = {name: ("--suite", name) for name in ("proven", "seed", "dsv4", "ragged", "extreme", "long")} | {
    "random": ("--suite", "random", "--cases", "1050", "--filter", "p=auto"),
    "shapes": tuple(word for item in CASES for word in ("--case", item.id)),
}


@dataclass(frozen=True)
class Step:
    """One command, and how it ended; `code` is None for one that was ended at its limit."""

    name: str
    code: int | None
    seconds: float


def run(name: str, command: Sequence[str], folder: Path, limit: float, cwd: Path = ROOT) -> Step:
    """Runs `command` for at most `limit` seconds, its words in FOLDER/NAME.log; prints the last of them."""
    start = time.monotonic()
    done = run_group(command, cwd=cwd, limit_seconds=limit)
    (folder / f"{name}.log").write_text(done.output)
    step = Step(name, None if done.timed_out else done.returncode, round(time.monotonic() - start, 1))
    last = done.output.strip().splitlines()[-1:]
    print(
        f"{step.seconds:6.1f} s  {name}: {'ended' if done.timed_out else done.returncode}  {' '.join(last)}", flush=True
    )
    return step


def project(root: Path, home: Path, device: str) -> None:
    """This checkout in `root`, as a repository of one commit whose host `local` is this machine's `device`."""
    ignored = shutil.ignore_patterns(".git", ".venv", ".fmha", "build", "results", "__pycache__")
    shutil.copytree(ROOT, root, ignore=ignored)
    settings: dict[str, Any] = yaml.safe_load((root / "matrix.yaml").read_text())
    settings["hosts"]["local"] = {
        "kind": "local", "device": device, "arch": ARCH, "folder": str(home), "python": sys.executable,
        "environment": {"setup": ""}, "gpus": {"locks": str(home / "locks")}, "sync": "direct",
    }  # fmt: skip
    (root / "matrix.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    git = ["git", "-c", "user.name=session", "-c", "user.email=session@example.invalid"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "The checkout as it was found"]):
        subprocess.run([*git, *words], cwd=root, check=True)


def matrix(folder: Path, device: str, suites: Sequence[str], limit: float) -> list[Step]:
    """Every suite through the command; FOLDER/records has a record of each that was judged."""
    python = [sys.executable, "-m", "harness"]
    start = [*python, "run-matrix", "--host", "local", "--quiet", "--results", str(folder / "records")]
    steps = []
    with tempfile.TemporaryDirectory(prefix="fmha-session-") as name:
        root, home = Path(name) / "project", Path(name) / "home"
        project(root, home, device)
        for suite in suites:
            steps.append(run(f"suite-{suite}", [*start, *SUITES[suite]], folder, limit, root))
            if steps[-1].code is None:  # the run goes on without its client
                newest = max(item.name for item in (home / "runs").iterdir())
                run(f"cancel-{suite}", [*python, "cancel", newest, "--host", "local"], folder, 60, root)
    return steps


def measurements(folder: Path) -> list[Step]:
    """Bench, sanitizers and profiles."""
    cubins = folder / "cubins"
    steps = [run("build", [sys.executable, "-m", "harness.bench.build", str(cubins)], folder, 120)]
    check = [sys.executable, "-m", "harness.bench.check", str(cubins), "--few"]
    jobs = [
        (f"sanitizer-{tool}-hd{head_dim}", ["compute-sanitizer", "--tool", tool, *check, f"hd{head_dim}"])
        for tool in SANITIZERS
        for head_dim in SHAPES
    ]
    with ThreadPoolExecutor(8) as pool:  # slow, and not on the GPU
        steps += pool.map(lambda job: run(job[0], job[1], folder, 120), jobs)
    bench = [sys.executable, "-m", "harness", "bench", "--output", str(folder / "bench.json")]
    steps.append(run("bench", bench, folder, 300))
    profile = ["ncu", "--set", "full", "--clock-control", "none", "--kernel-name", "regex:fmha_fwd"]
    profile += ["--launch-skip", "2", "--launch-count", "1", sys.executable, "-m", "harness.bench.profile"]
    for head_dim, splits in DECODE_SPLITS.items():
        command = [*profile, str(cubins), f"hd{head_dim}", "decode", str(splits), "1", "1"]
        steps.append(run(f"ncu-hd{head_dim}", command, folder, 60))
    shutil.rmtree(cubins, ignore_errors=True)
    return steps


def main() -> int:
    """0 when every step ended with 0."""
    parser = argparse.ArgumentParser(prog="python -m harness.bench.session", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--suites", nargs="*", default=list(SUITES), choices=list(SUITES))
    parser.add_argument("--suite-seconds", type=float, default=120.0, help="limit of one suite")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True)
    steps = matrix(folder, given.device, given.suites, given.suite_seconds)
    if given.device == "cuda":
        steps += measurements(folder)
    (folder / "session.json").write_text(json.dumps([asdict(step) for step in steps], indent=1) + "\n")
    return 0 if all(step.code == 0 for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
