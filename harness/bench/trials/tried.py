"""Times every build that is tried, beside the harness's own: `python -m fmha.harness.bench.trials.tried FOLDER`.

FOLDER, a new one, gets

tried.json   a row a trial of fmha.harness.bench.trials.trial: median and spread, checked against float64 before it is
             timed; the stamps of the builds with clocks; what ptxas said of each build
check-*.log  problems of every mask, branch and output through each new build, before anything is timed

With `--device emulator` each trial runs there at a small size instead, once: no times. Of trials of one launch shape at
several sizes, one is run. `--only WORD` keeps the trials whose description has the word.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fmha.harness.bench.shapes.tried_variants import ALL, REBUILT, RESHAPED
from fmha.harness.bench.trials.trial import Trial, clocked, every_trial

ROOT = Path(__file__).resolve().parents[3]
CHECK_SECONDS = 90
TRIAL_SECONDS = 60  # without an answer: a kernel hangs, and what was measured before is kept
Keep = Callable[[dict[str, Any]], None]
METHOD = (
    "Microseconds a call in a CUDA graph over rotated inputs, 400 MB in all (20 sets at most), 12 replays, 4 of "
    "prefill; direct: one launch with a flushed L2. Every row was checked against float64 before it was timed. Clocks: "
    "cycles of the SM from a CTA's entry to each stamp, [median, p10, p90] over the CTAs of the last of eight calls."
)


def row_of(trial: Trial, measured: dict[str, Any]) -> dict[str, Any]:
    """A measured trial as JSON."""
    p = trial.problem
    plan = {
        "shape": trial.shape,
        "splits": p.splits,
        "overlaps_grid_before": trial.overlaps,
    }
    return {"kind": trial.kind, "head_dim": p.head_dim, "shared_kv": p.shared_kv} | plan | measured


def on_emulator(trials: Sequence[Trial], keep: Keep) -> None:
    """Runs each launch that differs once on the emulator, and keeps what it says."""
    from fmha.harness.bench.trials.small_trials import attempt

    seen = set()
    for trial in trials:
        p = trial.problem
        launch = (trial.shape, p.splits, p.shared_kv, trial.long)
        if launch not in seen:
            seen.add(launch)
            keep(row_of(trial, attempt(trial)))


def check(folder: Path, cubins: Path) -> set[str]:
    """Every mask, branch and output through each new build, eight processes at a time. The builds that fail."""

    def one(name: str) -> bool:
        command = [sys.executable, "-m", "fmha.harness.bench.shapes.check", str(cubins), "--few", name]
        with (folder / f"check-{name}.log").open("w") as log:
            try:
                code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=CHECK_SECONDS).returncode
            except subprocess.TimeoutExpired:
                code = None
        if code != 0:
            print(f"{name}: its check ended with {code}, see check-{name}.log", flush=True)
        return code == 0

    with ThreadPoolExecutor(8) as pool:
        names = list(REBUILT | RESHAPED)
        return {name for name, good in zip(names, pool.map(one, names), strict=True) if not good}


def on_gpu(trials: Sequence[Trial], folder: Path, report: dict[str, Any], keep: Keep) -> bool:
    """Whether everything was right; what is wrong is not timed, and does not stop the rest."""
    import torch

    from fmha.harness.bench.peers.torch_calls import environment
    from fmha.harness.bench.shapes.build_shapes import build_candidates
    from fmha.harness.bench.shapes.launch_problem import BuiltKernel
    from fmha.harness.bench.trials import timed_trials
    from fmha.harness.worker.devices.cuda import CudaDevice

    start = time.monotonic()
    cubins = folder / "cubins"
    report["environment"] = environment()
    report["builds"] = build_candidates(cubins, ALL)
    print(f"{time.monotonic() - start:.0f} s: built", flush=True)
    wrong = check(folder, cubins)
    print(f"{time.monotonic() - start:.0f} s: checked", flush=True)
    torch.zeros(1, device="cuda")
    device = CudaDevice()
    kernels = {name: BuiltKernel(device.load(cubins / f"{name}.cubin"), shape) for name, shape in ALL.items()}
    faulthandler.dump_traceback_later(TRIAL_SECONDS, exit=True)
    for trial, measured in timed_trials.timed(device, [t for t in trials if t.shape not in wrong], kernels):
        faulthandler.dump_traceback_later(TRIAL_SECONDS, exit=True)
        if "wrong" in measured:
            wrong.add(trial.shape)
            print(f"WRONG {trial.kind} {trial.describe()}: relative error {measured['wrong']:.1e}", flush=True)
        else:
            keep(row_of(trial, measured))
    report["clocks"] = {trial.shape: timed_trials.stamped(device, trial, kernels[trial.shape]) for trial in clocked()}
    faulthandler.cancel_dump_traceback_later()
    print(f"{time.monotonic() - start:.0f} s: timed", flush=True)
    shutil.rmtree(cubins)
    return not wrong


def table(rows: Sequence[dict[str, Any]]) -> None:
    """A line a trial, the fastest of each problem first."""
    for kind, head_dim in dict.fromkeys((row["kind"], row["head_dim"]) for row in rows):
        group = [row for row in rows if (row["kind"], row["head_dim"]) == (kind, head_dim)]
        for row in sorted(group, key=lambda row: row.get("median_us", 0.0)):
            median, p90 = (row.get(name, float("nan")) for name in ("median_us", "p90_us"))
            words = f"{kind:10} hd{head_dim:<4} {median:8.2f} {p90:8.2f} us"
            direct = f", direct {row['direct_us']:.2f}" if "direct_us" in row else ""
            late = "" if row["overlaps_grid_before"] else ", no overlap"
            print(f"{words}  {row['shape']}, {row['splits']} splits{late}{direct}", flush=True)


def main() -> int:
    """0 when everything that was run was right."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.bench.trials.tried", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "emulator"))
    parser.add_argument("--only", default="", help="trials whose kind and build have this word")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True)
    trials = [trial for trial in every_trial() if given.only in f"{trial.kind} {trial.shape}"]
    report: dict[str, Any] = {"method": METHOD, "rows": []}

    def keep(row: dict[str, Any]) -> None:
        report["rows"].append(row)
        (folder / "tried.json").write_text(json.dumps(report, indent=1) + "\n")

    good = True
    if given.device == "emulator":
        on_emulator(trials, keep)
    else:
        good = on_gpu(trials, folder, report, keep)
        table(report["rows"])
    (folder / "tried.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{len(report['rows'])} trials, {'all right' if good else 'some wrong'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
