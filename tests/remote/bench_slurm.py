"""What Slurm adds to a run: `python -m tests.remote.bench_slurm`, as root, with slurm-wlm and munge.

The same suite on the emulator of this machine, over the same sshd: once by a host of kind ssh with one worker, once
by a task of a Slurm on loopback. Caches are warm; the two take turns, and medians are printed. Moments are this
machine's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.harness.support import git
from tests.remote.conftest import make_template
from tests.remote.server import Server, client_config, serving
from tests.remote.slurm import cluster

REPOSITORY = Path(__file__).resolve().parents[2]
HOSTS = ("real", "cluster")


def main() -> None:
    options = _parser().parse_args()
    os.environ["FMHA_SLURM"] = "1"
    with tempfile.TemporaryDirectory(prefix="fmha-slurm-") as name:
        folder = Path(name)  # which others cannot enter: the server's account is then ours, as the cluster's is
        with serving(folder / "server") as server, cluster(folder / "slurm") as slurm:
            root = make_template(folder, REPOSITORY, server)
            _declare(root, server, slurm.config)
            config = client_config(server, folder / "ssh")
            for host in HOSTS:
                _command(root, config, host, options.suite)  # fills the caches
            rounds = [
                {host: _measure(root, config, server, host, options.suite) for host in HOSTS}
                for _ in range(options.rounds)
            ]
    print(f"{'seconds, medians of ' + str(options.rounds):44} {'ssh':>8} {'slurm':>8} {'more':>8}")
    for key in rounds[0]["real"]:
        by_ssh, by_slurm = (statistics.median(one[host][key] for one in rounds) for host in HOSTS)
        more = statistics.median(one["cluster"][key] - one["real"][key] for one in rounds)
        print(f"{key:44} {by_ssh:8.3f} {by_slurm:8.3f} {more:8.3f}")


def _declare(root: Path, server: Server, slurm_config: Path) -> None:
    matrix = yaml.safe_load((root / "matrix.yaml").read_text())
    real = matrix["hosts"]["real"] | {"workers": 1, "folder": str(server.home / "real")}
    more = {"login": "ssh", "tasks": 1, "late_seconds": 4}
    matrix["hosts"]["real"] = real
    matrix["hosts"]["cluster"] = {name: value for name, value in real.items() if name not in ("workers", "gpus")} | {
        "kind": "slurm",
        "folder": str(server.home / "cluster"),
        "env": real["env"] | {"SLURM_CONF": str(slurm_config)},
        "slurm": more,
    }
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False))
    git(root, "commit", "-q", "-a", "-m", "hosts")


def _measure(root: Path, config: Path, server: Server, host: str, suite: str) -> dict[str, float]:
    """Seconds of one run."""
    start = time.time()
    _command(root, config, host, suite)
    end = time.time()
    run = sorted((server.home / host / "runs").iterdir())[-1]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    at = {event["state"]: event["at"] for event in events if event["kind"] == "state"}
    told = [event for event in events if event["kind"] == "event"]
    ended = json.loads((run / "status.json").read_text())["finished"]
    jobs: dict[int, list[float]] = {}  # of each, guard and rest, when something was said
    for event in told:
        if event["event"]["event"] in ("started", "result", "error"):
            jobs.setdefault(event["job"], []).append(event["at"])
    done = {event["job"]: event["at"] for event in told if event["event"]["event"] == "done"}
    before = {number: (at["run"] if number == 1 else done[number - 1]) for number in jobs}
    return {
        "from the command to checkout": at["checkout"] - start,
        "checkout, environment, build": at["run"] - at["checkout"],
        "until a job's first configuration, the mean": statistics.mean(jobs[n][0] - before[n] for n in jobs),
        "from a job's first to its last, the sum": sum(times[-1] - times[0] for times in jobs.values()),
        "from a job's last event to its end, the mean": statistics.mean(done[n] - jobs[n][-1] for n in jobs),
        "final status, record, report": end - max(done.values()),
        "  of them until the final status": ended - max(done.values()),
        "jobs, guard and rest": len(jobs),
        "total": end - start,
    }


def _command(root: Path, config: Path, host: str, suite: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "fmha", "run-matrix", "--host", host, "--suite", suite, "-q"],
        cwd=root,
        env=os.environ | {"FMHA_SSH_CONFIG": str(config)},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.bench_slurm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="medians are over this many  [default: 7]")
    parser.add_argument("--suite", default="seed", help="[default: seed]")
    return parser


if __name__ == "__main__":
    main()
