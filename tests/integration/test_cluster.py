"""Tasks of a cluster, real processes, without a scheduler; and what each word of one means for what a task left.

tests/remote/test_slurm.py has a real Slurm. It cannot be made to say everything, nor is it installed everywhere: here
its commands are stubs that say what a file says.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.config import Limits
from fmha.harness.contract.codec import write_job
from fmha.harness.contract.protocol import Event
from fmha.harness.errors import InfrastructureError
from fmha.harness.stages import cluster
from fmha.harness.stages.cluster import Cluster
from fmha.harness.supervisor import slurm
from fmha.harness.worker.pool import node
from tests.integration.test_worker_faults import PLENTY, make_job

SICK = "hd64_t65_sk128"
WISH = dict.fromkeys(("partition", "account", "qos", "gres", "time", "constraint", "exclude", "mem"), "") | {
    "tasks": 1,
    "cpus_per_task": None,
    "container_image": "",
    "container_mounts": [],
    "late_seconds": 0.5,
    "wait_seconds": 60,
}
# The first array is one task that began SICK and was ended; another one runs for real.
SBATCH = """#!{python}
import json, os, pathlib, subprocess, sys
here = pathlib.Path({here!r})
number = len(list(here.glob("array-*"))) + 1
(here / f"array-{{number}}").touch()
folder = pathlib.Path(next(word for word in sys.argv if word.startswith("--chdir=")).partition("=")[2])
script = sys.stdin.read()
if number == 1:
    own = folder / "tasks" / "1_0.0"
    own.mkdir()
    (own / "token").write_text("1_0.0")
    os.link(own / "token", folder / "claims" / "0")
    events = [{{"kind": "begin", "node": "n7", "gpus": []}}]
    events.append({{"kind": "event", "event": {{"event": "started", "config": {sick!r}}}}})
    (own / "events.jsonl").write_text("".join(json.dumps(event) + "\\n" for event in events))
    (here / "state").write_text((here / "end").read_text())
else:
    (here / "state").write_text(f"{{number}}|{{number}}|0|RUNNING|n8|None\\n")
    env = os.environ | {{"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": "0", "SLURMD_NODENAME": "n8"}}
    log = (folder / "task.log").open("wb")
    subprocess.Popen(["/bin/sh", "-c", script], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
print(number)
"""


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Stubs on PATH; `squeue` says of the first array what is given."""

    def make(state: str) -> Path:
        here = tmp_path / "stubs"
        here.mkdir()
        (here / "end").write_text(f"1|1|0|{state}|n7|None\n" if state else "")
        stubs = {
            "sbatch": SBATCH.format(python=sys.executable, here=str(here), sick=SICK),
            "squeue": f"#!/bin/sh\ncat {here}/state 2>/dev/null || :\n",
            "scancel": f"#!/bin/sh\n: >{here}/state\n",
        }
        for name, text in stubs.items():
            (here / name).write_text(text)
            (here / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{here}:{os.environ['PATH']}")
        monkeypatch.setattr(cluster, "KILLED_SECONDS", 0.1)
        monkeypatch.setattr(cluster, "FIRST_POLL_SECONDS", 0.1)
        return here

    return make


def followed(tmp_path: Path, ts: tuple[int, ...]) -> tuple[dict[str, Event], list[str]]:
    """The last event of each configuration, and the notes."""
    said: list[str] = []
    made = Cluster("run", tmp_path / "cluster", WISH, lambda event: said.append(str(event.get("text"))))
    events = list(made.run(make_job(tmp_path, *ts), Limits(60, PLENTY, PLENTY)))
    assert events.pop().event == "done"
    ends = [event for event in events if event.event in ("result", "error")]
    assert len(ends) == len(ts)
    return {event.config: event for event in ends}, said


@pytest.mark.parametrize("state", ["TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "COMPLETED", ""])
def test_what_may_run_again_does(tmp_path: Path, scheduler: Callable[[str], Path], state: str) -> None:
    scheduler(state)
    ends, said = followed(tmp_path, (65, 66))
    assert {event.event for event in ends.values()} == {"result"}
    assert {event.place for event in ends.values()} == {"n8"}
    words = state or "forgotten by Slurm"
    assert f"task 1_0 on n7 is over ({words}): {SICK} is run again" in said
    assert f"{SICK} is run again, by n8: an earlier task ended before it" in said


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ("OUT_OF_MEMORY", "crash", "task 1_0 on n7: out of memory"),
        ("CANCELLED", "not-run", "task 1_0 on n7: it was cancelled from outside"),
    ],
)
def test_what_must_not_run_again_does_not(
    tmp_path: Path, scheduler: Callable[[str], Path], state: str, status: str, reason: str
) -> None:
    scheduler(state)
    ends, _ = followed(tmp_path, (65, 66))
    assert (ends[SICK].status, ends[SICK].message) == (status, reason)
    assert ends["hd64_t66_sk128"].event == ("result" if state == "OUT_OF_MEMORY" else "error")


def test_tasks_that_fail_end_the_run_in_their_words(tmp_path: Path, scheduler: Callable[[str], Path]) -> None:
    scheduler("FAILED")
    with pytest.raises(InfrastructureError, match="Slurm job 1 runs nothing: FAILED: they printed nothing"):
        followed(tmp_path, (65, 66))


def test_two_tasks_take_every_configuration_once(tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "round"
    for name in ("claims", "tasks", "again"):
        (folder / name).mkdir(parents=True)
    job = make_job(tmp_path, *range(64, 84))
    write_job(job, folder / "job.json")
    (folder / "limits.json").write_text(json.dumps({"silence_seconds": PLENTY, "total_seconds": PLENTY}))
    base = os.environ | {"PYTHONPATH": str(repository), "SLURM_ARRAY_JOB_ID": "9"}
    command = [sys.executable, "-m", "fmha.harness.worker.pool.node", str(folder)]
    tasks = [
        subprocess.Popen(command, env=base | {"SLURM_ARRAY_TASK_ID": str(n), "SLURMD_NODENAME": f"n{n}"}, cwd=tmp_path)
        for n in range(2)
    ]
    assert [task.wait() for task in tasks] == [0, 0]
    lines = [json.loads(line) for path in folder.glob("tasks/*/events.jsonl") for line in path.read_text().splitlines()]
    results = Counter(
        said["event"]["config"] for said in lines if said["kind"] == "event" and said["event"]["event"] == "result"
    )
    assert results == Counter(item.id for item in job.configurations)
    assert sum(said["kind"] == "end" for said in lines) == 2
    (folder / "closed").touch()
    again = subprocess.run(
        command, env=base | {"SLURM_ARRAY_TASK_ID": "0", "SLURM_RESTART_COUNT": "1"}, cwd=tmp_path, check=False
    )
    assert again.returncode == 0
    assert not (folder / "tasks" / "9_0.1" / "workers").exists() or not list(
        (folder / "tasks" / "9_0.1").glob("workers/*")
    )


def test_a_container_is_started_by_pyxis() -> None:
    wish = {**WISH, "container_image": "/shared/a b.sqsh", "container_mounts": ["/shared:/shared", "/scratch:/scratch"]}
    *_, line = slurm.script(wish, ["python3", "-m", "x"]).splitlines()
    mounts = "--container-mounts=/shared:/shared,/scratch:/scratch"
    assert line == f"exec srun '--container-image=/shared/a b.sqsh' {mounts} python3 -m x"
    assert slurm.script(WISH, ["python3"]).splitlines()[-1] == "exec python3"


@pytest.mark.parametrize("room", [0, 7])
def test_what_a_task_says_waits_for_room_and_is_never_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """On a disk that takes `room` bytes of the second line at first, and later all of it."""
    path, write, left = tmp_path / "events.jsonl", os.pwrite, [room]

    def small(descriptor: int, data: bytes, offset: int) -> int:
        if offset and left:
            if size := left.pop():
                return write(descriptor, data[:size], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", small)
    monkeypatch.setattr(node, "ROOM_LOOK_SECONDS", 0)
    with node._Said(path) as say:
        say("begin", node="n1")
        say("end")
    assert not left
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["begin", "end"]
