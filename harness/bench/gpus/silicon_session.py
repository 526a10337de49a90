"""All that is shown of the Hopper kernels on silicon: `python -m fmha.harness.bench.gpus.silicon_session FOLDER`.

FOLDER, a new one, gets a log of each step and session.json with their exit codes and seconds, and
records/         run records of `fmha run-matrix --host local`, one a suite: what `fmha compare` reads
bench.json       of `fmha bench`
sanitizer-*.log  compute-sanitizer's four tools over a small configuration of each variant
ncu-*.log        the profile of each head_dim's decode

`--seconds` bounds all of it: what runs when they are over is ended, and nothing more begun. With `--device emulator`
the records alone, of the same PTX on the emulator. The checkout is copied and its copy is a repository of one commit: a
run needs one, and a machine that was lent for an hour may have the files only.
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
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from fmha.harness import account
from fmha.harness.bench.shapes.shape_cases import CASES
from fmha.harness.supervisor import build_cache
from fmha.harness.worker.processes.groups import run_group

ROOT = Path(__file__).resolve().parents[3]
ARCH = "sm_90a"
SANITIZER_PROCESSES = 8
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
DECODE_SPLITS = {64: 8, 128: 8, 256: 8, 512: 4}
# Which way P goes is Blackwell's choice: the suite `paths` is left out, and of 1050 random cases some 500 remain.
NAMED = ("proven", "seed", "cover-sm90", "dsv4", "ragged", "extreme", "long", "layouts", "paged")
SUITES = {name: ("--suite", name) for name in NAMED} | {
    "random": ("--suite", "random", "--cases", "1050", "--filter", "p=auto"),
    "shapes": tuple(word for item in CASES for word in ("--case", item.id)),
}


@dataclass(frozen=True)
class SessionStep:
    """One command, and how it ended; `code` is None for one that was ended at its limit or had no time left."""

    name: str
    code: int | None
    seconds: float


class SiliconSession:
    """Runs commands until `seconds` are over; their words go to `folder`."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.steps: list[SessionStep] = []
        self._end = time.monotonic() + seconds

    def run(self, name: str, command: Sequence[str], limit: float, cwd: Path = ROOT, late: bool = False) -> SessionStep:
        """Runs `command` for at most `limit` seconds, its words in NAME.log; prints the last of them. `late`: also once
        the session's time is over."""
        start = time.monotonic()
        limit = limit if late else min(limit, self._end - start)
        code, words = None, "no time was left"
        if limit > 0:
            done = run_group(command, cwd=cwd, limit_seconds=limit)
            code, words = None if done.timed_out else done.returncode, done.output
        (self.folder / f"{name}.log").write_text(words)
        step = SessionStep(name, code, round(time.monotonic() - start, 1))
        self.steps.append(step)
        ended = "ended" if code is None else code
        print(f"{step.seconds:6.1f} s  {name}: {ended}  {' '.join(words.strip().splitlines()[-1:])}", flush=True)
        return step


def project(root: Path, home: Path, device: str) -> None:
    """This checkout in `root`, as a repository of one commit whose host `local` is this machine's `device`."""
    ignored = shutil.ignore_patterns(".git", ".venv", ".fmha", "build", "results", "__pycache__")
    shutil.copytree(ROOT, root, ignore=ignored, symlinks=True)
    settings: dict[str, Any] = yaml.safe_load((root / "matrix.yaml").read_text())
    settings["hosts"]["local"] = {
        "kind": "local", "device": device, "arch": ARCH, "folder": str(home), "python": sys.executable,
        "environment": {"setup": ""}, "gpus": {"locks": str(home / "locks")}, "sync": "direct",
    }  # fmt: skip
    (root / "matrix.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    # What this account has built already takes minutes to build again.
    cache = home / build_cache.CACHE
    cache.mkdir(mode=0o700, parents=True)
    for made in account.folder("builds").glob("sm90_*"):
        (cache / made.name).symlink_to(made)
    git = ["git", "-c", "user.name=session", "-c", "user.email=session@example.invalid"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "The checkout as it was found"]):
        subprocess.run([*git, *words], cwd=root, check=True)


def matrix(session: SiliconSession, device: str, suites: Sequence[str], limit: float) -> None:
    """Every suite through the command; records/ has a record of each that was judged."""
    python = [sys.executable, "-m", "fmha"]
    start = [*python, "run-matrix", "--host", "local", "--quiet", "--results", str(session.folder / "records")]
    with tempfile.TemporaryDirectory(prefix="fmha-session-") as name:
        root, home = Path(name) / "project", Path(name) / "home"
        project(root, home, device)
        for suite in suites:
            step = session.run(f"suite-{suite}", [*start, *SUITES[suite]], limit, root)
            if step.code is None and (home / "runs").is_dir():  # the run goes on without its client
                newest = max(item.name for item in (home / "runs").iterdir())
                session.run(f"cancel-{suite}", [*python, "cancel", newest, "--host", "local"], 30, root, late=True)


def sanitize(session: SiliconSession) -> None:
    """Every tool over a small configuration of every variant, several at a time: slow, and not on the GPU."""
    check = [sys.executable, "-m", "fmha.harness.bench.gpus.each", "--part"]

    def one(job: tuple[str, int]) -> SessionStep:
        tool, part = job
        sanitizer = ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"]
        return session.run(f"sanitizer-{tool}-{part}", [*sanitizer, *check, f"{part}/{SANITIZER_PROCESSES}"], 120)

    with ThreadPoolExecutor(SANITIZER_PROCESSES) as pool:
        list(pool.map(one, product(SANITIZERS, range(SANITIZER_PROCESSES))))


def profile(session: SiliconSession, cubins: Path) -> None:
    """Decode of each head_dim under ncu."""
    ncu = ["ncu", "--set", "full", "--clock-control", "none", "--kernel-name", "regex:fmha_fwd"]
    ncu += ["--launch-skip", "2", "--launch-count", "1", sys.executable, "-m", "fmha.harness.bench.shapes.profile"]
    for head_dim, splits in DECODE_SPLITS.items():
        session.run(f"ncu-hd{head_dim}", [*ncu, str(cubins), f"hd{head_dim}_plain", "decode", str(splits)], 60)


def on_gpu(session: SiliconSession, suites: Sequence[str], limit: float) -> None:
    """All that is shown on a GPU: builds, the matrix, the bench, the sanitizer, the profile."""
    cubins = session.folder / "cubins"
    session.run("build", [sys.executable, "-m", "fmha.harness.bench.shapes.build_shapes", str(cubins)], 120)
    matrix(session, "cuda", suites, limit)
    bench = [sys.executable, "-m", "fmha", "bench", "--output", str(session.folder / "bench.json")]
    session.run("bench", bench, 300)
    sanitize(session)
    profile(session, cubins)
    shutil.rmtree(cubins, ignore_errors=True)


def main() -> int:
    """0 when every step ended with 0."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.bench.gpus.silicon_session", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--suites", nargs="*", default=list(SUITES), choices=list(SUITES))
    parser.add_argument("--records", action="store_true", help="run the suites alone")
    parser.add_argument("--suite-seconds", type=float, default=120.0, help="limit of one suite")
    parser.add_argument("--seconds", type=float, default=540.0, help="limit of the session")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True)
    session = SiliconSession(folder, given.seconds)
    if given.device == "cuda" and not given.records:
        on_gpu(session, given.suites, given.suite_seconds)
    else:
        matrix(session, given.device, given.suites, given.suite_seconds)
    (folder / "session.json").write_text(json.dumps([asdict(step) for step in session.steps], indent=1) + "\n")
    return 0 if all(step.code == 0 for step in session.steps) else 1


if __name__ == "__main__":
    sys.exit(main())
