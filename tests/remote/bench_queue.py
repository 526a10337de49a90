"""What a queue costs: `python -m tests.remote.bench_queue`, as root.

Loopback sshd, two accounts, pretended GPUs that one account has taken, and runs of both that wait for them. Measured
are a waiter's memory, the load of all while nothing happens, and in which order accounts get the GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import yaml

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS
from tests.remote.conftest import make_template
from tests.remote.server import ACCOUNT, OTHER, OTHER_UID, Server, client_config, serving

REPOSITORY = Path(__file__).resolve().parents[2]
SMI = """#!/bin/sh
case "$1" in
*compute-apps*) ;;
*) for n in {numbers}; do echo "GPU-0000000$n-0000-0000-0000-000000000000, $n, Pretended, 570, 10.0, Disabled, Default"
   done ;;
esac
"""


def main() -> None:
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="fmha-remote-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with serving(folder / "server") as server:
            root = make_template(folder, REPOSITORY, server)
            _pretend(root, server, options.gpus)
            _measure(root, server, folder, options)


def _measure(root: Path, server: Server, folder: Path, options: argparse.Namespace) -> None:
    assert server.other_home is not None
    users = {ACCOUNT: server.home, OTHER: server.other_home}
    configs = {user: client_config(server, folder / user, extra={"User": user}) for user in users}
    _start(root, configs[ACCOUNT], "run-matrix", "--host", "gpu", "-q")  # fills the caches
    shutil.copytree(server.home / "fmha" / "cache", server.other_home / "fmha" / "cache")
    subprocess.run(["chown", "-R", f"{OTHER_UID}:{OTHER_UID}", server.other_home / "fmha"], check=True)
    queue = [ACCOUNT] * (options.waiters * 4 // 5) + [OTHER] * (options.waiters - options.waiters * 4 // 5)
    with server.hold("t1"):
        owners = {}
        for number, user in enumerate([ACCOUNT] * options.gpus + queue):
            run = _start(root, configs[user], "run-matrix", "--host", "gpu", "-q", "--detach").strip()
            owners[run] = user
            wanted = "run" if number < options.gpus else "waiting"
            _until(lambda run=run, wanted=wanted: wanted in _states(users[owners[run]], run))
        waiting = list(owners)[options.gpus :]
        processes = _processes({run: users[user] for run, user in owners.items()}, waiting)
        _report(f"processes of {len(waiting)} waiters", len(processes), "")
        _report("  memory a waiter (PSS)", sum(map(_pss, processes)) / len(waiting) / 1024, "MiB")
        before, start = _seconds(processes), time.monotonic()
        time.sleep(options.seconds)
        load = (_seconds(processes) - before) / (time.monotonic() - start)
        _report("  load of all of them", 100 * load, "% of a core")
        _report("  who sees them: fmha hosts lists", _start(root, configs[OTHER], "hosts").count("waits at"), "places")
    ended = time.monotonic() + 60 * DEADLINE_SECONDS
    _until(lambda: all(_status(users[user], run) for run, user in owners.items()), ended)
    began = {run: _states(users[owners[run]], run)["run"] for run in waiting}
    order = "".join("A" if owners[run] == ACCOUNT else "B" for run in sorted(began, key=began.__getitem__))
    print(
        f"  order in which the GPUs were given, A having queued {queue.count(ACCOUNT)} before B {queue.count(OTHER)}:"
    )
    print(f"    {order}")
    states = [_status(users[user], run)["state"] for run, user in owners.items()]
    _report("  runs that were carried out", states.count("done"), f"of {len(states)}")


def _pretend(root: Path, server: Server, count: int) -> None:
    smi = server.folder / "bin" / "nvidia-smi"
    smi.write_text(SMI.format(numbers=" ".join(map(str, range(count)))))
    smi.chmod(0o755)
    path = root / "matrix.yaml"
    matrix = yaml.safe_load(path.read_text())
    matrix["hosts"]["gpu"]["gpus"]["nvidia_smi"] = str(smi)
    matrix["limits"].update(configuration_silence_seconds=1800, configuration_total_seconds=1800)  # for those who hold
    path.write_text(yaml.safe_dump(matrix, sort_keys=False))
    git(root, "commit", "-q", "-a", "-m", "pretended GPUs")


def _start(root: Path, config: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fmha", *arguments],
        cwd=root, env=os.environ | {"FMHA_SSH_CONFIG": str(config)}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 4):
        raise SystemExit(f"{shlex.join(arguments)} ended with {done.returncode}")
    return done.stdout


def _states(home: Path, run: str) -> dict[str, float]:
    """When a run came into each of its states; `waiting` is when it was first told its place."""
    try:
        lines = (home / "fmha" / "runs" / run / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {event.get("state", event["kind"]): event["at"] for event in map(json.loads, lines)}


def _status(home: Path, run: str) -> dict[str, object]:
    try:
        status: dict[str, object] = json.loads((home / "fmha" / "runs" / run / "status.json").read_text())
    except FileNotFoundError:
        return {}
    return status


def _processes(owners: dict[str, Path], runs: list[str]) -> list[psutil.Process]:
    """Keeper and supervisor of each run, and whatever they have started: only that has the run in its environment."""
    found = []
    for run in runs:
        owner = json.loads((owners[run] / "fmha" / "runs" / run / "supervisor.json").read_text())
        found += [psutil.Process(owner[who]) for who in ("pid", "keeper")]
    marks = set(runs)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("FMHA_RUN") in marks:
                found.append(process)
    return found


def _pss(process: psutil.Process) -> float:
    """KiB."""
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))


def _seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _until(condition: Callable[[], object], deadline: float = float("inf")) -> None:
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the runs do not end")
        time.sleep(0.2)


def _report(what: str, value: float, unit: str) -> None:
    print(f"{what:45} {value:8.1f} {unit}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.bench_queue", description=__doc__)
    parser.add_argument("--waiters", type=int, default=50, metavar="N", help="runs in the queue  [default: 50]")
    parser.add_argument("--gpus", type=int, default=8, metavar="N", help="pretended GPUs, at most 10  [default: 8]")
    parser.add_argument("--seconds", type=float, default=30.0, help="over which the load is taken  [default: 30]")
    return parser


if __name__ == "__main__":
    main()
