"""Faults on the host: each costs what it touches and nothing else, and leaves no process behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests.harness.support import git
from tests.integration.fault_devices import CHATTERS, DEAF, HANGS, KILLED, ORPHANS, SEGFAULT, STOPPED
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, in_state, started
from tests.remote.test_connection_faults import reached

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
GOOD = {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "pass"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems, which needs root")


def supervisor(run: Path) -> dict[str, int]:
    return json.loads((run / "supervisor.json").read_text())


def pids(client: Client) -> list[int]:
    return [int(line.split()[0]) for line in client.server.left_over()]


def limited(client: Client, **limits: float) -> None:
    client.change_matrix(lambda matrix: matrix["limits"].update(limits))


def test_configurations_that_crash_hang_or_leave_orphans_cost_themselves_alone(client: Client):
    faults = (KILLED, SEGFAULT, HANGS, DEAF, STOPPED, ORPHANS)

    def change(matrix: dict) -> None:
        matrix["limits"]["configuration_silence_seconds"] = 8
        matrix["suites"]["bad"] = {"axes": {"head_dim": [64], "t": [1, *faults, 32], "s_k": [128]}}

    client.change_matrix(change)
    done = client.run("run-matrix", "--host", "gpu", "--suite", "bad")
    assert done.returncode == 1, done.stderr
    crash, timeout = "crash", "timeout"
    assert client.statuses() == GOOD | {
        f"hd64_t{KILLED}_sk128": crash,
        f"hd64_t{SEGFAULT}_sk128": crash,
        f"hd64_t{HANGS}_sk128": timeout,
        f"hd64_t{DEAF}_sk128": timeout,
        f"hd64_t{STOPPED}_sk128": timeout,
        f"hd64_t{ORPHANS}_sk128": crash,
    }


def test_a_configuration_that_talks_for_ever_meets_its_total_limit(client: Client):
    def change(matrix: dict) -> None:
        matrix["limits"]["configuration_total_seconds"] = 10
        matrix["suites"]["loud"] = {"axes": {"head_dim": [64], "t": [1, CHATTERS, 32], "s_k": [128]}}

    client.change_matrix(change)
    assert client.run("run-matrix", "--host", "gpu", "--suite", "loud").returncode == 1
    assert client.statuses() == GOOD | {f"hd64_t{CHATTERS}_sk128": "timeout"}


def test_a_compiler_that_hangs_with_children_ends_with_them(client: Client):
    bare = f"600.{os.getpid()}"  # known by that: it has neither group, nor session, nor environment of the run's
    others = f"(trap '' TERM; setsid sleep 600) & (trap '' TERM; env -i setsid sleep {bare}) &"
    stubborn = f"(trap '' TERM; sleep 600) & {others} trap '' TERM; sleep 600"
    slow = client.server.wrap("slow-nvcc", str(find_nvcc().path), "-ptx", stubborn)
    path = client.root / "kernel" / "include" / "fmha_params.h"
    path.write_text(path.read_text() + "// built by nobody yet\n")

    def change(matrix: dict) -> None:
        matrix["hosts"]["gpu"]["nvcc"] = str(slow)
        matrix["limits"]["build_seconds"] = 2

    client.change_matrix(change)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 1, done.stderr
    assert set(client.statuses().values()) == {"build-error"}
    assert "nvcc exceeded 2 s, killed" in done.stdout
    client.settle()
    assert not [process.pid for process in psutil.process_iter(["cmdline"]) if bare in (process.info["cmdline"] or [])]


def test_the_supervisor_is_killed(client: Client):
    """What was measured stays, the rest is an infrastructure error, and the keeper clears up."""
    with client.server.hold("t32"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t32_sk128"))
        os.kill(supervisor(run)["pid"], signal.SIGKILL)
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 3, stderr
        client.settle()
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "infra-error"}
    assert "the supervisor ended with SIGKILL" in str(client.records())


def test_the_supervisor_is_killed_in_the_build(client: Client):
    client.fresh_kernel()
    reached(client, "nvcc")
    with client.server.hold("nvcc"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(in_state("build"))
        assert eventually(lambda: reached(client, "nvcc"))
        assert any("nvcc" in line for line in client.server.left_over())  # or `settle` would see nothing of it
        os.kill(supervisor(run)["pid"], signal.SIGKILL)
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        client.settle()
    assert process.returncode == 3
    assert "the supervisor ended with SIGKILL" in stderr
    assert client.records() == []


def impatient(client: Client) -> None:
    """A stopped supervisor is waited for three silences."""
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(silence_seconds=2))


@pytest.mark.parametrize("whom", ["supervisor", "supervisor and keeper", "keeper"])
def test_who_owns_the_run_is_stopped(client: Client, whom: str):
    """SIGSTOP: nothing dies, and nothing goes on. Nobody waits for that for ever, and nothing is left of the run."""
    impatient(client)
    with client.server.hold("t32"):
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t32_sk128"))
        owner = supervisor(run)
        for pid, name in ((owner["pid"], "supervisor"), (owner["keeper"], "keeper")):
            if name in whom:
                os.kill(pid, signal.SIGSTOP)
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 3, stderr
        client.settle()
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "infra-error"}
    assert "was stopped (SIGSTOP) for 6 s, and killed" in str(client.records())
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0


def test_a_stopped_supervisor_that_nobody_follows_is_ended_by_its_keeper(client: Client):
    impatient(client)
    with client.server.hold("t32"):
        run_name = client.detached()
        run = client.wait_for(started("hd64_t32_sk128"))
        os.kill(supervisor(run)["pid"], signal.SIGSTOP)
        client.settle()
        assert json.loads((run / "status.json").read_text())["state"] == "lost"
    assert client.run("attach", run_name).returncode == 3


def test_a_stopped_run_is_cancelled_at_once(client: Client):
    with client.server.hold("t32"):
        run_name = client.detached()
        run = client.wait_for(started("hd64_t32_sk128"))
        os.kill(supervisor(run)["pid"], signal.SIGSTOP)
        assert client.run("cancel", run_name).returncode == 0
        status = json.loads((run / "status.json").read_text())
        assert status["state"] == "cancelled"
        assert status["reason"] == "cancelled", "it was killed, which is done to one that does not obey for 30 s"
        client.settle()
    assert client.run("attach", run_name).returncode == 4


def test_the_host_goes_down_and_comes_back(client: Client):
    """Every process is gone at once, the run directory is kept."""
    with client.server.hold("t32"):
        process = client.start("run-matrix", "--host", "gpu")
        client.wait_for(started("hd64_t32_sk128"))
        client.server.down()
        while left := pids(client):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        client.server.start()
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 3, stderr
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "infra-error"}
    assert "the host went down" in str(client.records())
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0


def test_the_last_event_is_torn(client: Client):
    """As a crash of the host leaves it: whole lines count, half a line does not."""
    with client.server.hold("t32"):
        run_name = client.detached()
        run = client.wait_for(started("hd64_t32_sk128"))
        client.server.down()
        for pid in pids(client):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.truncate(run / "events.jsonl", (run / "events.jsonl").stat().st_size - 20)
        client.server.start()
    done = client.run("attach", run_name)
    assert done.returncode == 3, done.stderr
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "infra-error"}


def test_events_that_were_received_and_then_cut_off_count(client: Client):
    with client.server.hold("t32") as hold:
        process = client.start("run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t32_sk128"))
        hold.release()
        client.wait_for(lambda events: any(event["kind"] == "end" for event in events))
        process.wait(DEADLINE_SECONDS)
    with (run / "events.jsonl").open("r+") as file:
        file.truncate(200)
    again = client.run("attach", run.name)
    assert again.returncode == 3
    assert "the events were changed on the host" in again.stderr
    assert client.statuses() == GOOD


def test_a_worktree_that_changes_voids_the_run(client: Client):
    hold = client.server.folder / "hold" / "dirty-t32"
    hold.touch()
    try:
        done = client.run("run-matrix", "--host", "gpu")
    finally:
        hold.unlink()
    assert done.returncode == 3
    assert "'kernel/README.added'" in done.stderr
    assert client.records() == []


def test_a_setup_command_that_edits_the_tree_is_caught_before_the_build(client: Client):
    def change(matrix: dict) -> None:
        matrix["hosts"]["gpu"]["environment"]["setup"] += " && echo '//' >>kernel/include/fmha_params.h"

    client.change_matrix(change)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "'kernel/include/fmha_params.h'" in done.stderr
    (run,) = client.runs()
    assert not in_state("build")(client.events(run))


def test_a_setup_command_that_fails_says_so_and_leaves_no_environment(client: Client):
    def change(matrix: dict) -> None:
        matrix["hosts"]["gpu"]["environment"]["setup"] = "echo 'no such index' >&2; exit 7"

    client.change_matrix(change)
    before = sorted((client.server.home / "fmha" / "environments").glob("*/"))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "exit code 7" in done.stderr
    assert "no such index" in done.stderr
    assert sorted((client.server.home / "fmha" / "environments").glob("*/")) == before


def test_two_clients_race_for_one_gpu(client: Client):
    with client.server.hold("t1"):
        racers = [client.start("run-matrix", "--host", "gpu") for _ in range(2)]
        assert eventually(lambda: sum(in_state("run")(client.events(run)) for run in client.runs()) == 1)
        waiting = client.wait_for(lambda events: any(event["kind"] == "waiting" for event in events))
        (event,) = [event for event in client.events(waiting) if event["kind"] == "waiting"]
        assert event["position"] == 1
        assert "held by run" in event["reason"]
    assert [process.wait(DEADLINE_SECONDS) for process in racers] == [0, 0]
    times = []
    for run in client.runs():
        began = next(event["at"] for event in client.events(run) if event.get("state") == "run")
        times.append((began, json.loads((run / "status.json").read_text())["finished"]))
    (_, first_end), (second_start, _) = sorted(times)
    assert first_end <= second_start + 0.5
    assert len(client.records()) == 2


def test_clocks_that_disagree_do_no_harm_and_are_reported(client: Client):
    """The host's programs see a clock that is three hours behind."""
    folder = client.server.folder
    (folder / "skew.c").write_text(SKEW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "skew.so", folder / "skew.c", "-ldl"], check=True)
    python = folder / "bin" / "skewed-python"
    python.write_text(f'#!/bin/sh\nLD_PRELOAD={folder}/skew.so exec {client.server.python} "$@"\n')
    python.chmod(0o755)
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(python=str(python)))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    assert client.statuses() == GOOD
    doctor = client.run("doctor", "--host", "gpu")
    assert doctor.returncode == 3
    (line,) = [line for line in doctor.stdout.splitlines() if " clock " in line]
    assert line.startswith("RED")
    (seconds,) = re.findall(r"off by (\d+) s at least", line)  # less than the whole by what the answer took
    assert 10_000 < int(seconds) <= 10_800


SKEW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, t);
  if (id == CLOCK_REALTIME) t->tv_sec -= 10800;
  return result;
}
time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out) *out = t.tv_sec;
  return t.tv_sec;
}
"""


def on_the_host(client: Client, command: str) -> bytes:
    return subprocess.run(["ssh", "-F", client.config, "gpu", command], check=False, capture_output=True).stdout


@needs_root
def test_the_disk_of_the_host_is_full_for_a_while(client: Client):
    """Events wait for room; nothing is lost and nothing is written by halves."""
    small = client.server.folder / "small"
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=f"{small}/fmha"))
    with client.server.hold("t1") as hold:
        process = client.start("run-matrix", "--host", "gpu")
        runs = small / "fmha" / "runs"
        assert eventually(lambda: b'"started"' in b"".join(events(client, runs)))
        on_the_host(client, f"dd if=/dev/zero of={small}/fill bs=4k")
        hold.release()
        assert eventually(lambda: b"hd64_t1" in b"".join(events(client, runs)))
        on_the_host(client, f"rm {small}/fill")
        _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    assert client.statuses() == GOOD


@needs_root
@pytest.mark.parametrize("megabytes", [90, 42], ids=["as it comes", "as git takes it"])
def test_the_disk_of_the_host_has_no_room_for_the_commit(client: Client, megabytes: int):
    folder = f"{client.server.folder}/small/{megabytes}"
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(folder=folder))
    (client.root / "weights").write_bytes(random.Random(megabytes).randbytes(megabytes << 20))
    git(client.root, "config", "core.compression", "0")  # it would take long and gain nothing
    git(client.root, "add", "weights")
    git(client.root, "commit", "-q", "-m", "large")
    try:
        done = client.run("run-matrix", "--host", "gpu")
        assert done.returncode == 3
        assert re.search("No space left on device|the disk is full", done.stderr), done.stderr
        assert client.records() == []
        assert on_the_host(client, f"ls {folder}/incoming") == b""
        on_the_host(client, f"rm -f {folder}/repository.git/objects/pack/tmp_*")  # what git leaves
        git(client.root, "reset", "-q", "--hard", "HEAD~")
        done = client.run("run-matrix", "--host", "gpu")
        assert done.returncode == 0, done.stderr
    finally:
        on_the_host(client, f"rm -rf {folder}")


def events(client: Client, runs: Path) -> list[bytes]:
    """The event files on a disk that only the server's mount namespace has."""
    assert client.server.process is not None
    root = Path(f"/proc/{client.server.process.pid}/root")
    return [path.read_bytes() for path in root.joinpath(*runs.parts[1:]).glob("*/events.jsonl")]


@needs_root
def test_the_disk_here_is_full_when_the_record_is_written(client: Client, tmp_path: Path):
    results = tmp_path / "small"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", results], check=True)
    try:
        with client.server.hold("t1"):
            process = client.start("run-matrix", "--host", "gpu", "--results", str(results))
            run = client.wait_for(started("hd64_t1_sk128"))
            (results / "fill").write_bytes(bytes(32 << 10))
            with contextlib.suppress(OSError):
                while True:
                    with (results / "fill").open("ab") as file:
                        file.write(bytes(4096))
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 3
        assert "cannot archive: No space left on device" in stderr
        assert "PASS 2 of 2" in stdout
        (results / "fill").unlink()
        assert list(results.iterdir()) == []
        assert client.run("attach", run.name, "--results", str(results)).returncode == 0
        assert len(list(results.glob("*.json"))) == 1
    finally:
        subprocess.run(["umount", "-l", results], check=True)


def test_a_python_that_is_not_there(client: Client):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(python="/nonexistent/python3"))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "exit code 127" in done.stderr
    assert "trying again" not in done.stderr
