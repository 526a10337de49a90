"""Process groups, with real processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fmha.harness.worker.processes.groups import (
    describe_exit,
    group_alive,
    group_members,
    run_group,
    spawn,
    terminate_group,
)

# Prints the pid of a child that ignores SIGTERM, in the same group, then of one that has left the group.
STUBBORN = """
trap '' TERM
sleep 600 & echo $!
python3 -c 'import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)' &
wait
"""


def eventually(condition, seconds=30.0):
    """Polls `condition` until it holds or the deadline passes; its last value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_ends_children_that_ignore_sigterm_or_left_the_group(tmp_path):
    with (tmp_path / "out").open("wb") as output:
        process = spawn(["bash", "-c", STUBBORN], cwd=tmp_path, stdout=output, stderr=output)
    assert eventually(lambda: len((tmp_path / "out").read_text().split()) == 2)
    children = [int(text) for text in (tmp_path / "out").read_text().split()]
    assert set(group_members(process.pid)) == {process.pid, *children}
    terminate_group(process, grace_seconds=0.1)
    assert not group_alive(process.pid)
    assert not any(running(pid) for pid in [process.pid, *children])


def test_a_group_that_has_ended_is_left_alone(tmp_path):
    process = spawn(["true"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    terminate_group(process)
    terminate_group(process)
    assert not group_alive(process.pid)


def test_run_group_returns_output_and_status(tmp_path):
    completed = run_group(["bash", "-c", "echo out; echo err >&2; exit 3"], cwd=tmp_path, limit_seconds=60)
    assert (completed.returncode, completed.output, completed.timed_out) == (3, "out\nerr\n", False)


def test_run_group_does_not_wait_for_left_over_children_and_ends_them(tmp_path):
    completed = run_group(["bash", "-c", "sleep 600 & echo $!"], cwd=tmp_path, limit_seconds=60)
    assert completed.returncode == 0
    assert not running(int(completed.output))


def test_run_group_ends_everybody_at_the_limit(tmp_path):
    completed = run_group(["bash", "-c", "sleep 600 & echo $!; wait"], cwd=tmp_path, limit_seconds=0.2)
    assert completed.timed_out
    assert not running(int(completed.output))


def test_run_group_ends_who_writes_without_end(tmp_path):
    done = run_group(["sh", "-c", "yes & yes"], cwd=tmp_path, limit_seconds=60, limit_bytes=1 << 20)
    assert (done.flooded, done.timed_out, len(done.output)) == (True, False, 1 << 20)
    done = run_group(["echo", "y"], cwd=tmp_path, limit_seconds=60, limit_bytes=1)
    assert (done.flooded, done.output) == (True, "y")
    assert not run_group(["echo", "y"], cwd=tmp_path, limit_seconds=60, limit_bytes=2).flooded


def test_run_group_reads_no_more_than_its_limit_of_a_file_that_is_made_long(tmp_path):
    """Without a byte written: the reader would hold 2 GiB of nothing."""
    heard = []
    command = [sys.executable, "-c", "import os; os.ftruncate(1, 1 << 33)"]
    done = run_group(
        command, cwd=tmp_path, limit_seconds=60, limit_bytes=1 << 20, heard=lambda data: heard.append(len(data))
    )
    assert done.flooded
    assert sum(heard) <= 2 << 20


def test_run_group_ends_everybody_when_it_is_cancelled(tmp_path):
    cancel = threading.Event()
    cancel.set()
    completed = run_group(["sleep", "600"], cwd=tmp_path, limit_seconds=600, cancel=cancel)
    assert completed.returncode != 0
    assert not completed.timed_out


def test_die_with_parent(repository, tmp_path):
    # The parent is killed with SIGKILL, which it cannot pass on.
    child = "import os, time; from fmha.harness.worker.processes.groups import die_with_parent; "
    child += "die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(600)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=repository, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    assert eventually(lambda: not running(pid))


@pytest.mark.parametrize(("returncode", "text"), [(3, "exit code 3"), (-9, "SIGKILL"), (-11, "SIGSEGV")])
def test_describe_exit(returncode, text):
    assert describe_exit(returncode) == text


GREEDY = """
import subprocess, sys
from fmha.harness.worker.processes.groups import memory_kills
before = memory_kills()
done = subprocess.run([sys.executable, "-c", "bytearray(b'x') * (400 << 20)"], check=False)
print(done.returncode, memory_kills() - before)
"""


def test_who_was_killed_for_memory_is_known(tmp_path: Path) -> None:
    """In a control group of 200 MiB that is real."""
    group = Path("/sys/fs/cgroup/memory") / f"fmha-{tmp_path.name}-{os.getpid()}"
    if not os.access(group.parent, os.W_OK):
        pytest.skip("no control group of version 1 can be made here")
    group.mkdir()
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            if (group / name).exists():
                (group / name).write_text(str(200 << 20))
        enter = f'echo $$ >{group}/cgroup.procs && exec "$0" -c "$1"'
        done = subprocess.run(
            ["/bin/sh", "-c", enter, sys.executable, GREEDY], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(-signal.SIGKILL), "1"]
    finally:
        assert eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
