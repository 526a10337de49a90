"""Runs on a cluster: a real Slurm with six nodes on loopback, and what goes wrong there, for real."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import DEVICE, Client, setup_command, started
from tests.remote.devices import WORDS
from tests.remote.server import MARK, Server, client_config, serving
from tests.remote.slurm import MEGABYTES, NODES, PATH, URGENT, Slurm, cluster

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
SLOW = "hd64_t65_sk128"
SLURM = {"tasks": 2, "time": "5", "late_seconds": 4}
MANY = {"head_dim": [64], "t": [*range(64, 72)], "s_k": [128]}
ANSWER = ("status", "reasons", "failed_checks", "findings", "metrics", "drawn")  # of a configuration, wherever it runs


@pytest.fixture(scope="module")
def slurm(public_folder: Path) -> Iterator[Slurm]:
    with cluster(public_folder / "slurm") as running:
        yield running


@pytest.fixture(scope="module")
def accounted(public_folder: Path) -> Iterator[Slurm]:
    """One more, where every job belongs to an account. In `lab` we may use the QOS `patient`."""
    with cluster(public_folder / "accounted", accounting=True) as running:
        user = pwd.getpwuid(os.geteuid()).pw_name
        running.ask("sacctmgr", "--immediate", "add", "account", "lab")
        running.ask("sacctmgr", "--immediate", "add", "qos", "patient")
        running.ask("sacctmgr", "--immediate", "add", "user", user, "account=lab", "qos=normal,patient")
        yield running


@pytest.fixture
def login(client: Client, slurm: Slurm, public_folder: Path) -> Iterator[Client]:
    """A client on the login node of the cluster, which is this machine."""
    yield from logged_in(client, slurm, public_folder)


@pytest.fixture
def lab(client: Client, accounted: Slurm, public_folder: Path) -> Iterator[Client]:
    """The same of the cluster with accounts."""
    yield from logged_in(client, accounted, public_folder)


def logged_in(client: Client, slurm: Slurm, public_folder: Path) -> Iterator[Client]:
    client.home = public_folder / "login"
    client.server.wrap("squeue", str(shutil.which("squeue", path=PATH)), "--array")
    folder = client.home / "fmha"

    def change(matrix: dict) -> None:
        matrix["suites"]["many"] = {"axes": MANY}
        matrix["default_suite"] = "many"
        matrix["hosts"]["cluster"] = {
            "kind": "slurm",
            "device": DEVICE,
            "folder": str(folder),
            "python": client.server.python,
            "nvcc": matrix["hosts"]["gpu"]["nvcc"],
            "env": {
                "SLURM_CONF": str(slurm.config),
                MARK: str(client.server.folder),
                "PATH": f"{client.server.folder}/bin:{PATH}",
            },
            "environment": {"setup": setup_command(client.server, public_folder), "files": ["constraints.txt"]},
            "sync": "direct",
            "protected": [],
            "slurm": SLURM | {"login": "here"},
        }

    client.change_matrix(change)
    yield client
    assert not eventually_left(slurm)
    for node in NODES:
        if node not in slurm.daemons:
            slurm.start(node)
    assert eventually(slurm.ready), slurm.ask("sinfo", "--Node", "--long")


def eventually_left(slurm: Slurm) -> list[str]:
    eventually(lambda: not slurm.left_over())
    return [" ".join(process.cmdline()) for process in slurm.left_over()]


def numbers(record: dict) -> dict[str, str]:
    return {item["id"]: item["metrics"]["output_hash"] for item in record["configurations"]}


def answers(record: dict) -> dict[str, dict[str, object]]:
    return {item["id"]: {key: item[key] for key in ANSWER} for item in record["configurations"]}


def starts(run: Path) -> Counter[str]:
    """How often each configuration was started, as the tasks themselves have written it down."""
    lines = [line for path in run.glob("cluster/*/*/tasks/*/events.jsonl") for line in path.read_text().splitlines()]
    inner = [event["event"] for event in map(json.loads, lines) if event["kind"] == "event"]
    return Counter(event["config"] for event in inner if event["event"] == "started")


def notes(client: Client) -> str:
    return "\n".join(
        str(event["text"]) for run in client.runs() for event in client.events(run) if event["kind"] == "note"
    )


def node_of_the_slow(client: Client, slurm: Slurm) -> str:
    """The node that runs SLOW, which is held."""
    (run,) = client.runs()
    (path,) = [
        path
        for path in run.glob("cluster/*/*/tasks/*/events.jsonl")
        if f'"started","config":"{SLOW}"' in path.read_text()
    ]
    return str(json.loads(path.read_text().splitlines()[0])["node"])


def task_of(slurm: Slurm, node: str = "") -> str:
    """The one that runs, or runs there, as Slurm's commands take it."""
    where = [f"--nodelist={node}"] if node else []
    (task,) = slurm.ask("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%F_%K", *where).split()
    return task


def state_of(slurm: Slurm, task: str) -> str:
    """Empty when Slurm has forgotten it."""
    listed = slurm.ask("squeue", "--noheader", "--array", "--states=all", "--format=%F_%K %T")
    return dict(line.split() for line in listed.splitlines()).get(task, "")


def said(event: dict[str, object]) -> object:
    """What a task has said, in an event of the run."""
    inner = event.get("event")
    return inner.get("event") if isinstance(inner, dict) else None


def commands(slurm: Slurm, module: str) -> list[int]:
    """Who runs that module on the nodes."""
    found = []
    for process in slurm.left_over():
        with contextlib.suppress(psutil.Error):
            if module in process.cmdline():
                found.append(process.pid)
    return found


def reach(login: Client, node: Server, folder: Path) -> None:
    """From now on the login node is another machine, as whose account its jobs run here."""
    config = client_config(node, folder / "ssh-login", alias="login")
    login.config.write_text(login.config.read_text() + config.read_text())
    login.change_matrix(lambda matrix: matrix["hosts"]["cluster"].update(alias="login", slurm=SLURM | {"login": "ssh"}))


def named(slurm: Slurm) -> dict[str, str]:
    """The names of all tasks that Slurm knows."""
    listed = slurm.ask("squeue", "--noheader", "--array", "--states=all", "--format=%F_%K %j")
    return dict(line.split() for line in listed.splitlines())


def asked(client: Client) -> None:
    """Returns when the next question to Slurm has begun."""
    reached = client.server.folder / "reached" / "squeue"
    reached.unlink(missing_ok=True)
    assert eventually(reached.exists)


def begins_again(slurm: Slurm, task: str) -> None:
    """One that is on its way back into the queue, where Slurm would leave it for two minutes. slurmd starts none in the
    second in which it has ended it: `Job credential revoked`."""
    assert eventually(lambda: state_of(slurm, task) == "PENDING")
    assert eventually(lambda: not slurm.left_over())
    slurm.ask("scontrol", "update", f"JobId={task}", "StartTime=now+2")


def finished(client: Client, process: object, code: int = 0) -> dict:
    stdout, stderr = process.communicate(timeout=3 * DEADLINE_SECONDS)  # type: ignore[attr-defined]
    assert process.returncode == code, stdout + stderr  # type: ignore[attr-defined]
    (record,) = client.records()
    return record


def test_six_nodes_measure_what_one_machine_does(login: Client, slurm: Slurm):
    alone = login.run("run-matrix", "--host", "gpu", "--drawn", "5")
    assert alone.returncode == 0, alone.stderr
    (here,) = login.records()
    for path in (login.root / "results").glob("*.json"):
        path.unlink()
    held = MANY["t"][: len(NODES)]
    with contextlib.ExitStack() as stack:
        for t in held:
            stack.enter_context(login.server.hold(f"t{t}"))
        process = login.start("run-matrix", "--host", "cluster", "--drawn", "5", "--gpus", str(len(NODES)))
        login.wait_for(lambda events: all(started(f"hd64_t{t}_sk128")(events) for t in held))
    there = finished(login, process)
    assert numbers(there) == numbers(here)
    assert {item["place"] for item in there["configurations"]} == set(NODES)
    assert "Slurm job" in notes(login)


def test_seed_and_cover_have_the_numbers_of_one_host(login: Client, slurm: Slurm, repository: Path):
    """The emulator does the work, here in one process and on six nodes, under the gates of the repository. Of cover an
    eighth, from one end to the other."""
    own = yaml.safe_load((repository / "matrix.yaml").read_text())

    def change(matrix: dict) -> None:
        matrix |= {key: own[key] for key in ("gates", "guard", "limits", "seed")}
        matrix["suites"]["cover"] = {"cases": own["suites"]["cover"]["cases"][::8]}
        real, there = matrix["hosts"]["real"], matrix["hosts"]["cluster"]
        there |= {key: real[key] for key in ("device", "python", "environment")} | {"env": real["env"] | there["env"]}

    login.change_matrix(change)
    what = ("--suite", "seed,cover", "--drawn", "5", "-q")
    for where in (("emulator", "--workers", "1"), ("cluster", "--gpus", str(len(NODES)))):
        done = login.run("run-matrix", "--host", *where, *what)
        assert done.returncode == 0, done.stdout + done.stderr
    records = {record["host"]["name"]: record for record in login.records()}  # type: ignore[index]
    here, there = answers(records["emulator"]), answers(records["cluster"])
    assert {answer["status"] for answer in here.values()} == {"pass"}
    assert [name for name in here | there if here.get(name) != there.get(name)] == []
    (run,) = login.runs()
    assert starts(run) == dict.fromkeys(here, 1)
    places = Counter(item["place"] for item in records["cluster"]["configurations"])
    assert set(places) <= set(NODES)
    assert len(places) > 1, places


def test_a_node_that_dies_costs_no_configuration(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        dead = node_of_the_slow(login, slurm)
        slurm.kill(dead)
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
    assert slow["place"] in set(NODES) - {dead}
    assert f"on {dead} is over (REQUEUED): {SLOW} is run again" in notes(login)


def test_a_task_that_is_requeued_runs_again(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--workers", "1")
        login.wait_for(started(SLOW))
        task = task_of(slurm)
        slurm.ask("scontrol", "requeue", task)
        begins_again(slurm, task)
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")


def test_what_is_cancelled_from_outside_is_not_run_again(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--workers", "1")
        login.wait_for(started(SLOW))
        slurm.ask("scancel", *slurm.ask("squeue", "--noheader", "--format=%A").split())
        record = finished(login, process, 4)
    statuses = login.statuses()
    assert statuses[SLOW] == "not-run"
    assert set(statuses.values()) == {"pass", "not-run"}
    (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
    assert "cancelled from outside" in slow["reasons"][0]


def test_a_controller_that_is_restarted_is_waited_for(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        slurm.kill("slurmctld")
        assert eventually(lambda: "Slurm does not answer" in notes(login))
        slurm.start("slurmctld")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert eventually(slurm.ready)


def test_a_drained_cluster_is_waited_for_and_the_reason_told(login: Client, slurm: Slurm):
    slurm.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=DRAIN", "Reason=test")
    process = login.start("run-matrix", "--host", "cluster")
    assert eventually(lambda: "tasks wait: " in notes(login)), notes(login)
    slurm.ask("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME")
    finished(login, process)


def test_cancel_ends_the_array(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW)).name
        done = login.run("cancel", run, "--host", "cluster")
        assert done.returncode == 0, done.stderr
        assert not eventually_left(slurm)
        finished(login, process, 4)
    assert login.statuses()[SLOW] == "not-run"


def test_a_client_that_leaves_finds_everything(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW)).name
        process.kill()
        process.wait()
    assert login.run("attach", run, "--host", "cluster").returncode == 0
    assert set(login.statuses().values()) == {"pass"}


def test_the_array_ends_with_the_run_whose_supervisor_is_killed(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        run = login.wait_for(started(SLOW))
        os.kill(json.loads((run / "supervisor.json").read_text())["pid"], signal.SIGKILL)
        assert not eventually_left(slurm)
        finished(login, process, 3)
    assert login.statuses()[SLOW] == "infra-error"


def test_what_slurm_refuses_is_told_in_its_words(login: Client, slurm: Slurm, tmp_path: Path):
    """Who only looks takes no variables of a checkout: where Slurm's configuration is stands in one's own file."""
    own = tmp_path / "hosts.yaml"
    own.write_text(yaml.safe_dump({"hosts": {"cluster": {"env": {"SLURM_CONF": str(slurm.config), "PATH": PATH}}}}))

    def doctor() -> str:
        return login.run("doctor", "--host", "cluster", FMHA_HOSTS=str(own)).stdout

    (good,) = [line for line in doctor().splitlines() if line.split()[1:2] == ["slurm"]]
    assert "partitions main" in good
    login.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(partition="nobody"))
    assert "no partition is named nobody" in doctor()
    done = login.run("run-matrix", "--host", "cluster")
    assert done.returncode == 3
    assert "Slurm refuses the job" in done.stderr
    assert "invalid partition" in done.stderr.lower()


def test_a_task_on_a_node_that_is_drained_comes_to_its_end(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--gpus", "1")
        login.wait_for(started(SLOW))
        node = node_of_the_slow(login, slurm)
        slurm.ask("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    record = finished(login, process)
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    assert {item["place"] for item in record["configurations"]} == {node}
    assert "run again" not in notes(login)


def test_a_preempted_task_costs_no_configuration(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--gpus", "1")
        login.wait_for(started(SLOW))
        node = node_of_the_slow(login, slurm)
        task = task_of(slurm)
        slurm.ask("sbatch", f"--partition={URGENT}", f"--nodelist={node}", "--output=/dev/null", "--wrap", "true")
        begins_again(slurm, task)
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert f"{SLOW} is run again" in notes(login)


def test_a_task_at_its_time_limit_costs_no_configuration(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster", "--gpus", "1")
        login.wait_for(started(SLOW))
        task = task_of(slurm)
        slurm.ask("scontrol", "update", f"JobId={task}", "TimeLimit=0")  # which Slurm looks at every 30 s
        assert eventually(lambda: state_of(slurm, task) == "TIMEOUT")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert f"is over (TIMEOUT): {SLOW} is run again" in notes(login)


def test_a_worker_that_takes_more_than_the_tasks_memory_is_a_crash(login: Client, slurm: Slurm):
    if not slurm.limits_memory:
        pytest.skip("no node can be held to its memory: the cgroup controller of version 1 cannot be written")
    login.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(mem=str(MEGABYTES // 8)))
    with login.server.hold("greedy-t65"):
        done = login.run("run-matrix", "--host", "cluster", "--gpus", "1")
    assert done.returncode == 1, done.stderr
    statuses = login.statuses()
    assert statuses.pop(SLOW) == "crash"
    assert set(statuses.values()) == {"pass"}
    (record,) = login.records()
    (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
    assert "memory" in slow["reasons"][0]


def test_munge_is_stopped_for_a_while(login: Client, slurm: Slurm):
    """What tasks say is read meanwhile."""
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        slurm.kill("munged")
        asked(login)
    try:
        login.wait_for(lambda events: sum(said(event) == "result" for event in events) == len(MANY["t"]))
        assert "Slurm does not answer" not in notes(login)  # squeue is still at it
    finally:
        slurm.start("munged")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert "run again" not in notes(login)


def test_a_controller_that_is_away_when_tasks_are_submitted_is_waited_for(login: Client, slurm: Slurm):
    slurm.kill("slurmctld")
    try:
        process = login.start("run-matrix", "--host", "cluster")
        assert eventually(lambda: "Slurm does not answer, trying again" in notes(login))
    finally:
        slurm.start("slurmctld")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")


def test_an_array_whose_number_is_lost_is_not_submitted_again(login: Client, slurm: Slurm):
    sbatch, lost = login.server.folder / "bin" / "sbatch", login.server.folder / "lost"
    real = shutil.which("sbatch", path=PATH)
    sbatch.write_text(
        f"""#!/bin/sh
[ -e {lost} ] && exec {real} "$@"
{real} "$@" >{lost}
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1
"""
    )
    sbatch.chmod(0o755)
    try:
        record = finished(login, login.start("run-matrix", "--host", "cluster"))
    finally:
        sbatch.unlink()
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    arrays = [line for line in notes(login).splitlines() if line.startswith("Slurm job")]
    assert arrays == [f"Slurm job {lost.read_text().strip()}: 2 tasks for 8 configurations"]


def test_a_task_that_slurm_has_forgotten_runs_again(login: Client, slurm: Slurm):
    """It ended, and was purged, between two questions."""
    config = slurm.config.read_text()
    with login.server.hold("t65"), login.server.hold("squeue") as squeue:
        squeue.release()
        process = login.start("run-matrix", "--host", "cluster", "--gpus", "1")
        login.wait_for(started(SLOW))
        task = task_of(slurm)
        slurm.config.write_text(f"{config}MinJobAge=2\n")
        slurm.ask("scontrol", "reconfigure")
        try:
            with login.server.hold("squeue"):
                for victim in slurm.left_over():
                    victim.kill()
                assert eventually(lambda: state_of(slurm, task) == "")
        finally:
            slurm.config.write_text(config)
            slurm.ask("scontrol", "reconfigure")
    record = finished(login, process)
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert f"is over (forgotten by Slurm): {SLOW} is run again" in notes(login)


def test_one_task_of_an_array_is_cancelled(login: Client, slurm: Slurm):
    with login.server.hold("t65"):
        process = login.start("run-matrix", "--host", "cluster")
        login.wait_for(started(SLOW))
        slurm.ask("scancel", task_of(slurm, node_of_the_slow(login, slurm)))
        finished(login, process, 4)
    statuses = login.statuses()
    assert statuses.pop(SLOW) == "not-run"
    assert set(statuses.values()) == {"pass"}


def test_half_an_array_never_starts(login: Client, slurm: Slurm):
    rest = ",".join(NODES[1:])
    slurm.ask("scontrol", "update", f"NodeName={rest}", "State=DRAIN", "Reason=test")
    try:
        with login.server.hold("t65"):
            process = login.start("run-matrix", "--host", "cluster", "--gpus", "4")
            assert eventually(lambda: "3 tasks wait: " in notes(login))
        record = finished(login, process)
    finally:
        slurm.ask("scontrol", "update", f"NodeName={rest}", "State=RESUME")
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert {item["place"] for item in record["configurations"]} == {NODES[0]}


@needs_root
def test_the_shared_folder_is_full_for_a_while(login: Client, slurm: Slurm, public_folder: Path):
    """A long result waits for room, with the task that has it. A short one may fit into the last page of its file."""
    small = public_folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", small], check=True)
    try:
        login.home = small
        login.change_matrix(lambda matrix: matrix["hosts"]["cluster"].update(folder=f"{small}/fmha"))
        with login.server.hold("wordy-t65"):
            with login.server.hold("t65"):
                process = login.start("run-matrix", "--host", "cluster")
                login.wait_for(lambda events: sum(said(event) == "result" for event in events) == len(MANY["t"]) - 1)
                # The other task has had room for its last word.
                assert eventually(lambda: len(commands(slurm, "fmha.harness.worker.pool.node")) == 1)
                with contextlib.suppress(OSError), (small / "fill").open("wb", buffering=0) as fill:
                    while True:
                        fill.write(bytes(4096))
            # The task has the result, and has told its worker to end.
            assert eventually(lambda: not commands(slurm, "fmha.harness.worker"))
        assert len(commands(slurm, "fmha.harness.worker.pool.node")) == 1
        (small / "fill").unlink()
        record = finished(login, process)
        assert login.statuses() == dict.fromkeys(numbers(record), "pass")
        (slow,) = [item for item in record["configurations"] if item["id"] == SLOW]
        assert {finding["message"] for finding in slow["findings"]} == {WORDS}
        assert "run again" not in notes(login)
        login.settle()
        assert not eventually_left(slurm)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@needs_root
def test_the_shared_folder_shows_files_late(login: Client, slurm: Slurm, public_folder: Path):
    """The nodes' files are seen on the login node only after Slurm has said that all tasks are over."""
    shared, nodes = login.home / "fmha", public_folder / "nodes"
    for folder in (shared / "runs", nodes / "upper", nodes / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    overlay = f"lowerdir={shared},upperdir={nodes}/upper,workdir={nodes}/work"
    script = f'mount -t overlay none -o {overlay} {shared} && exec "$0" "$@"'
    within = ("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script)
    login.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(late_seconds=600))
    slurm.kill(NODES[0])
    slurm.start(NODES[0], *within)
    rest = ",".join(NODES[1:])
    slurm.ask("scontrol", "update", f"NodeName={rest}", "State=DRAIN", "Reason=test")
    try:
        process = login.start("run-matrix", "--host", "cluster", "--gpus", "1")
        assert eventually(lambda: "Slurm job" in notes(login))
        (run,) = login.runs()
        ours = lambda: [task for task, name in named(slurm).items() if name == f"fmha-{run.name}"]  # noqa: E731
        assert eventually(lambda: [state_of(slurm, task) for task in ours()] == ["COMPLETED"])
        for _ in range(2):  # the second one began after the first, and so after the end
            asked(login)
        assert not any(said(event) for event in login.events(run))
        (tasks,) = nodes.glob("upper/runs/*/cluster/*/*/tasks")
        shutil.copytree(tasks, shared / tasks.relative_to(nodes / "upper"), dirs_exist_ok=True)
        record = finished(login, process)
    finally:
        slurm.ask("scontrol", "update", f"NodeName={rest}", "State=RESUME")
        slurm.kill(NODES[0])
    assert login.statuses() == dict.fromkeys(numbers(record), "pass")
    assert "run again" not in notes(login)


def test_a_login_node_that_is_cut_off_finds_everything_when_it_is_back(
    login: Client, slurm: Slurm, tmp_path: Path
) -> None:
    """Over SSH: every session is killed and the server is away; then the client is killed, and another one comes."""
    with serving(tmp_path / "node") as node:
        reach(login, node, tmp_path)
        with login.server.hold("t65"):
            process = login.start("run-matrix", "--host", "cluster")
            run = login.wait_for(started(SLOW)).name
            node.down()
            assert eventually(lambda: process.stderr is not None and "trying again" in process.stderr.readline())
            node.start()
            assert eventually(node.sessions)
            process.kill()
            process.communicate()
            node.cut()
        assert login.run("attach", run, "--host", "cluster").returncode == 0
        assert set(login.statuses().values()) == {"pass"}
        assert "run again" not in notes(login)


def test_two_clients_at_once_do_not_touch_each_other(login: Client, slurm: Slurm):
    """Two runs, one of which is cancelled, and a second client that follows the other one."""
    with login.server.hold("t65"):
        processes = [login.start("run-matrix", "--host", "cluster", "--results", f"r{n}") for n in range(2)]
        assert eventually(lambda: [started(SLOW)(login.events(run)) for run in login.runs()] == [True, True])
        cancelled, other = (run.name for run in login.runs())
        assert login.run("cancel", cancelled, "--host", "cluster").returncode == 0
        attached = login.start("attach", other, "--host", "cluster", "--results", "r2")
        assert eventually(lambda: "fmha-" + cancelled not in slurm.ask("squeue", "--noheader", "--format=%j"))
        assert "fmha-" + other in slurm.ask("squeue", "--noheader", "--format=%j")
    codes = sorted(process.communicate() and process.returncode for process in processes)
    assert codes == [0, 4]
    attached.communicate()
    assert attached.returncode == 0
    records = [json.loads(path.read_text()) for path in sorted(login.root.glob("r?/*.json"))]
    passed = [record for record in records if record["verdict"]["exit_code"] == 0]
    assert len(records) == 3
    assert len(passed) == 2
    assert numbers(passed[0]) == numbers(passed[1])


def accounts(slurm: Slurm) -> set[str]:
    """What accounting has of the jobs: name, account, QOS, state. Nothing while it does not answer."""
    command = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobName%80,Account,QOS,State"]
    done = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, check=False)
    return set(done.stdout.split())


def test_a_run_is_accounted_to_whom_matrix_yaml_says(lab: Client, accounted: Slurm):
    lab.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(account="lab", qos="patient", tasks=1))
    done = lab.run("run-matrix", "--host", "cluster")
    assert done.returncode == 0, done.stderr
    (run,) = lab.runs()
    assert eventually(lambda: f"fmha-{run.name}|lab|patient|COMPLETED" in accounts(accounted)), accounts(accounted)


@pytest.mark.parametrize(("field", "value"), [("account", "nobody"), ("qos", "patient")])
def test_an_account_or_qos_that_is_not_ours_is_told_in_slurms_words(
    lab: Client, accounted: Slurm, field: str, value: str
):
    """Without an account the job is root's own, which may not use the QOS `patient`."""
    lab.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update({field: value}))
    done = lab.run("run-matrix", "--host", "cluster")
    assert done.returncode == 3
    assert "Slurm refuses the job" in done.stderr
    assert f"invalid {field}" in done.stderr.lower()


def test_accounting_that_is_away_costs_a_run_nothing(lab: Client, accounted: Slurm):
    lab.change_matrix(lambda matrix: matrix["hosts"]["cluster"]["slurm"].update(account="lab"))
    with lab.server.hold("t65"):
        process = lab.start("run-matrix", "--host", "cluster")
        lab.wait_for(started(SLOW))
        accounted.kill("slurmdbd")
    record = finished(lab, process)
    assert lab.statuses() == dict.fromkeys(numbers(record), "pass")
    accounted.start("slurmdbd")
    (run,) = lab.runs()
    ended = f"fmha-{run.name}|lab|normal|COMPLETED"
    assert eventually(lambda: ended in accounts(accounted)), accounts(accounted)


def test_a_commits_own_harness_is_outside_of_a_sandbox_and_that_is_said(login: Client, slurm: Slurm):
    """It asks the scheduler, over the network that no sandbox has. A host that requires one refuses it, and starts no
    task. What it builds serves nobody else here either, and it finds no module beside `fmha`."""
    harness = login.root / "harness" / "stages" / "runner.py"
    looks = "\n\ntry:\n    import beside\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit('it was found')\n"
    harness.write_text(harness.read_text() + looks)
    (login.root / "beside.py").write_text("")
    git(login.root, "checkout", "-q", "-b", "request")
    git(login.root, "add", ".")
    git(login.root, "commit", "-q", "-m", "Look beside the harness")
    folder = login.home / "fmha" / "cache"
    before = sorted(folder.glob("*-*-*"))
    own = ("run-matrix", "--host", "cluster", "--judge", "own", "--filter", "t=64")
    ran = login.run(*own)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = "PASS 1 of 1 (by the commit's own harness, which ran on cluster outside the sandbox)"
    assert ran.stdout.splitlines()[-1] == said
    assert "not isolated: its tasks are the scheduler's, which needs the network" in ran.stderr
    host = login.records()[-1]["host"]
    assert isinstance(host, dict)
    assert (host["own_harness_enclosed"], host["own_harness_outside"]) == (False, True)
    assert sorted(folder.glob("*-*-*")) == before
    tasks = len(list((login.runs()[-1] / "cluster").rglob("token")))
    assert tasks > 0
    refused = login.run(*own, "--isolation", "require")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "the host requires a sandbox for what a commit brings, and has none" in refused.stderr
    assert not list((login.runs()[-1] / "cluster").rglob("token"))
