"""The overhead of a run on a host elsewhere: `python -m tests.remote.bench`.

Loopback sshd, warm caches, a stub device. Everything is measured in one go, against `ssh host true` at the same time:
the time from the command to the start of the first configuration, the total beyond the worker's own time, and where
both go.
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

from tests.remote.conftest import make_template
from tests.remote.server import Server, client_config, serving

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> None:
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="fmha-remote-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with serving(folder / "server") as server:
            root = make_template(folder, REPOSITORY, server)
            config = client_config(server, folder / "ssh")
            _command(root, config, options.host)  # fills the caches
            rows = [_measure(root, config, server, options.host) for _ in range(options.rounds)]
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    plain = middle["ssh true"]
    for key, seconds in middle.items():
        print(f"{key:45} {seconds:7.3f} s  {seconds / plain:5.1f} x")


def _measure(root: Path, config: Path, server: Server, host: str) -> dict[str, float]:
    """Seconds of one round; moments are the host's clock, which is ours."""
    start = time.time()
    subprocess.run(["ssh", "-F", str(config), "gpu", "true"], check=True)
    plain = time.time() - start
    start = time.time()
    _command(root, config, host)
    end = time.time()
    run = sorted((server.home / "fmha" / "runs").iterdir())[-1]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    at = {event["state"]: event["at"] for event in events if event["kind"] == "state"}
    first = next(event["at"] for event in events if event["kind"] == "event")
    ended = json.loads((run / "status.json").read_text())["finished"]
    worker = sum(
        (folder / "worker-001.events").stat().st_mtime - (folder / "worker-001.json").stat().st_mtime
        for folder in (run / "workers").iterdir()
    )
    return {
        "ssh true": plain,
        "command to first configuration": first - start,
        "total": end - start,
        "the worker's own time": worker,
        "total beyond the worker's own time": end - start - worker,
        "  client start, connection, sync": at["checkout"] - start,
        "  checkout": at["environment"] - at["checkout"],
        "  environment": at["build"] - at["environment"],
        "  runner's start, build": at["queued"] - at["build"],
        "  lock": at["run"] - at["queued"],
        "  worker's start": first - at["run"],
        "  configurations": events[-1]["at"] - first,
        "  final status": ended - events[-1]["at"],
        "  record, report": end - ended,
    }


def _command(root: Path, config: Path, host: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "fmha", "run-matrix", "--host", host, "-q"],
        cwd=root,
        # Who forbids bytecode has every module compiled at each start.
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        | {"FMHA_SSH_CONFIG": str(config)},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="medians are over this many  [default: 5]")
    parser.add_argument("--host", default="gpu", help="`gpu` has a stub device, `real` the emulator  [default: gpu]")
    return parser


if __name__ == "__main__":
    main()
