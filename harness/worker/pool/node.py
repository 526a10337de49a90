"""A task of a cluster: `python -m fmha.harness.worker.pool.node FOLDER`, started by the scheduler on a node.

Takes configurations of the job in FOLDER until none is left, or until there is a file `closed`. Tasks share nothing but
the folder. A configuration is taken by making its name in `claims/`, a hard link to a file of the task's own: over NFS
too, one task alone succeeds in that, and who has it can be read. All that a task has to say is in its event file,
which only grows; no scheduler is asked for it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from fmha.harness.contract.codec import encode, read_job
from fmha.harness.errors import FmhaError
from fmha.harness.worker.pool.supervise import Seat, run_worker
from fmha.harness.worker.pool.worker_shares import shares

BEAT_SECONDS: Final = 2.0
ROOM_SECONDS: Final = 60.0  # as long as the supervisor of a run waits
ROOM_LOOK_SECONDS: Final = 0.5
EVENTS: Final = "events.jsonl"
BEAT: Final = "beat"
CLOSED: Final = "closed"
CLAIMS: Final = "claims"
AGAIN: Final = "again"  # files PLACE.N: a place that may be taken once more, under that name
TASKS: Final = "tasks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when the job has no configuration left to take, 1 when this task can run none."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.worker.pool.node", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    own = _own(folder)
    threading.Thread(target=_beat, args=(own / BEAT,), daemon=True).start()
    with _Said(own / EVENTS) as say:
        say("begin", node=_node(), gpus=_gpus())
        try:
            _work(folder, own, say)
        except FmhaError as error:
            say("failed", reason=str(error))
            return 1
        say("end")
    return 0


class _Said:
    """The event file: a line is there whole or not at all. Room on a full disk is waited for, ROOM_SECONDS at most."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = 0

    def __enter__(self) -> _Said:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def __call__(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            try:
                whole = os.pwrite(self._descriptor, line, self._size) == len(line)
                os.fsync(self._descriptor)  # over NFS it is here that a full disk is told
                if whole:
                    self._size += len(line)
                    return
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the last room may take a part of a line
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                full = error
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            if time.monotonic() > deadline:
                raise full
            time.sleep(ROOM_LOOK_SECONDS)  # a full disk tells nobody when it has room again


def _work(folder: Path, own: Path, say: Any) -> None:
    job = read_job(folder / "job.json")
    limits = json.loads((folder / "limits.json").read_text(encoding="utf-8"))
    gpus = _gpus()
    node = _node()
    if gpus:
        seats = tuple(Seat({"CUDA_VISIBLE_DEVICES": gpu}, f"{node} {gpu}") for gpu in gpus)
    else:
        cores = int(os.environ.get("SLURM_CPUS_PER_TASK") or 1) if job.device.startswith("emulator") else 1
        seats = tuple(Seat(seat.env, node) for seat in shares(cores))
    judge = Path(__file__).resolve().parents[3]  # the tree that this module is of
    how = (limits["silence_seconds"], limits["total_seconds"], judge, seats)
    places = _claimed(folder, own, int(os.environ["SLURM_ARRAY_TASK_ID"]), len(job.configurations))
    with closing(run_worker(job, own / "workers", *how, places)) as events:
        for event in events:
            say("event", event=encode(event))


def _own(folder: Path) -> Path:
    """This task's folder: that of the first start, or of one more after it was requeued."""
    name = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    own = folder / TASKS / f"{name}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    own.mkdir(parents=True)
    (own / "token").write_text(own.name, encoding="utf-8")
    return own


def _claimed(folder: Path, own: Path, number: int, count: int) -> Iterator[int]:
    """Places in the job that are this task's, each taken when it is asked for.

    A task begins with the place of its own `number`, so that those of an array that start together do not all ask for
    the same ones; then it goes on from the first. What is taken is asked once for each place that it gets or misses, by
    one listing: a file server is slower the more it is asked.
    """
    ahead = list(map(str, dict.fromkeys([number % count, *range(count)])))
    tried: set[str] = set()  # asked for once: over NFS a listing may be older than a claim that it lacks
    while not (folder / CLOSED).exists():
        taken = tried.union(os.listdir(folder / CLAIMS))
        ahead = [name for name in ahead if name not in taken]
        if not ahead:
            ahead = sorted(set(os.listdir(folder / AGAIN)) - taken)
        if not ahead:
            return
        tried.add(name := ahead[0])
        if _is_own(folder, own, name):
            yield int(name.partition(".")[0])


def _is_own(folder: Path, own: Path, name: str) -> bool:
    claim = folder / CLAIMS / name
    with contextlib.suppress(FileExistsError):
        os.link(own / "token", claim)
    # NFS repeats a request whose answer was lost, and then says that the name is there: by whom is what counts.
    return os.path.samefile(own / "token", claim)


def _gpus() -> list[str]:
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _beat(path: Path) -> None:
    count = 0
    while True:
        count += 1
        with contextlib.suppress(OSError):
            path.write_text(str(count), encoding="ascii")
        threading.Event().wait(BEAT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
