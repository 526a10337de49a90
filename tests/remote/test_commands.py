"""hosts, ps, logs, cancel, clean, doctor, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, started
from tests.remote.server import free_port

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]


def test_hosts_says_who_answers(client: Client):
    client.config.write_text(client.config.read_text() + f"Host away\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    client.change_matrix(lambda matrix: matrix["hosts"].update(away={"kind": "ssh"}))
    done = client.run("hosts", "--json")
    assert done.returncode == 3
    answers = {answer["name"]: answer for answer in json.loads(done.stdout)["hosts"]}
    assert answers["gpu"]["problem"] == ""
    assert answers["gpu"]["means"] == f"{client.server.account}@127.0.0.1:{client.server.port}"
    assert "cannot reach" in answers["away"]["problem"]
    assert answers["emulator"]["kind"] == "emulator"


def test_a_host_of_ones_own_is_added_tried_and_used(client: Client, tmp_path: Path):
    """Into a file that is not there yet, and again into the one that is there then."""
    mine = tmp_path / "config" / "hosts.yaml"
    first = client.run("hosts", "add", "mine", "--alias", "gpu", "--json", FMHA_HOSTS=str(mine))
    findings = {finding["name"]: finding["good"] for finding in json.loads(first.stdout)["findings"]}
    assert findings["connection"], first.stdout + first.stderr
    mine.write_text(f"# by hand\n{mine.read_text()}    python: {client.server.python}\n")
    second = client.run("hosts", "add", "other", "--alias", "nobody-knows-it", FMHA_HOSTS=str(mine))
    assert second.returncode != 0
    assert f"{mine}: host other, alias nobody-knows-it" in second.stdout
    assert mine.read_text().startswith("# by hand\nhosts:\n")
    again = client.run("hosts", "add", "mine", FMHA_HOSTS=str(mine))
    assert again.returncode == 2
    assert "host 'mine' is there already" in again.stderr
    answers = {
        host["name"]: host for host in json.loads(client.run("hosts", "--json", FMHA_HOSTS=str(mine)).stdout)["hosts"]
    }
    assert answers["mine"]["problem"] == ""
    assert answers["other"]["problem"] != ""


def test_ps_logs_and_cancel(client: Client):
    with client.server.hold("t32"):
        run = client.detached()
        client.wait_for(started("hd64_t32_sk128"))
        listed = json.loads(client.run("ps", "--host", "gpu", "--json").stdout)["hosts"][0]["runs"]
        assert [(item["run"], item["state"], item["live"]) for item in listed] == [(run, "run", True)]
        logs = client.run("logs", run)
        assert logs.returncode == 0
        assert "==> workers/1/worker-001.stderr <==" in logs.stdout
        assert "hd64_t32_sk128: launching" in logs.stdout
        written = {log["name"]: log["text"] for log in json.loads(client.run("logs", run, "--json").stdout)["logs"]}
        assert "hd64_t32_sk128: launching" in written["workers/1/worker-001.stderr"]
        done = client.run("cancel", run)
        assert done.returncode == 0, done.stderr
        assert "cancelled" in done.stdout
        client.settle()
    again = client.run("cancel", run)
    assert "had ended before: cancelled" in again.stdout
    attached = client.run("attach", run)
    assert attached.returncode == 4
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "not-run"}
    everywhere = client.run("ps").stdout
    assert "cancelled" in everywhere
    assert everywhere.count(run) == 1  # though two hosts share the folder


def test_ps_without_a_host_that_keeps_runs_says_so(client: Client):
    client.change_matrix(lambda matrix: [matrix["hosts"].pop(name) for name in ("gpu", "real")])
    done = client.run("ps")
    assert done.returncode == 2
    assert "no host that keeps runs; docs/use/remote.md" in done.stderr


def test_a_queued_run_is_cancelled_too(client: Client):
    with client.server.hold("t1"):
        first = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        second = client.detached()
        queued = client.wait_for(lambda events: any(event["kind"] == "waiting" for event in events))
        assert queued.name == second
        assert client.run("cancel", second).returncode == 0
        assert "held by run" in str(client.events(queued))
    assert client.run("attach", first).returncode == 0


def test_clean_takes_what_is_old_and_never_what_is_live(client: Client):
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0
    old = client.runs()[0].name
    with client.server.hold("t1"):
        live = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        dry = client.run("clean", "--host", "gpu", "--days", "0", "--dry-run")
        assert f"run {old}" in dry.stdout
        assert len(client.runs()) == 2
        done = client.run("clean", "--host", "gpu", "--days", "0")
        assert done.returncode == 0, done.stderr
        assert [run.name for run in client.runs()] == [live]
    assert client.run("attach", live).returncode == 0
    rest = client.run("clean", "--host", "gpu", "--gigabytes", "0", "--json")
    assert rest.returncode == 0
    assert {item["kind"] for item in json.loads(rest.stdout)["removed"]} == {"run", "environment", "bytecode", "build"}
    assert "removed nothing" in client.run("clean", "--host", "gpu", "--gigabytes", "0").stdout
    assert client.runs() == []
    assert client.run("run-matrix", "--host", "gpu", "-q").returncode == 0


def test_doctor_names_what_is_wrong_and_what_to_do(client: Client):
    good = client.run("doctor", "--host", "gpu", "--json")
    findings = {finding["name"]: finding for finding in json.loads(good.stdout)["findings"]}
    for name in ("connection", "clock", "python", "git", "folder", "disk", "nvcc", "nvcc for sm_100a"):
        assert findings[name]["good"], findings[name]
    assert findings["verdict"]["seen"] == "not tried; fmha doctor --host gpu --run does"
    assert findings["isolation"]["good"] in (True, None)
    assert findings["isolation"]["seen"].startswith(("bubblewrap", "landlock", "not isolated: "))
    old = client.server.folder / "bin" / "old-nvcc"
    old.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.1'\n")
    old.chmod(0o755)
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"].update(nvcc=str(old), device="cuda"))
    bad = client.run("doctor", "--host", "gpu")
    assert bad.returncode == 3
    lines = bad.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if " nvcc  " in line]
    assert lines[at].startswith("RED")
    assert "install CUDA >= 12.9" in lines[at + 1]
    assert "nvidia-smi cannot be started" in bad.stdout


def test_doctor_goes_the_whole_way_to_a_verdict(client: Client):
    git(client.root, "commit", "-q", "--allow-empty", "-m", "not on the host yet")
    done = client.run("doctor", "--host", "real", "--run")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^ok   verdict +hd64_t32_sk256: PASS in [\d.]+ s \(.*run [\d.]+ s", done.stdout, re.MULTILINE)
    assert client.records() == []
    client.change_matrix(lambda matrix: matrix["hosts"]["real"]["environment"].update(setup="echo no space; exit 1"))
    done = client.run("doctor", "--host", "real", "--run")
    assert done.returncode == 3
    assert re.search(r"^RED  verdict .*no space", done.stdout, re.MULTILINE)
    (client.root / "stray").write_text("not committed")
    done = client.run("doctor", "--host", "real", "--run")
    assert "'stray'" in done.stdout
    assert "-> commit, or run with --snapshot" in done.stdout
    client.change_matrix(lambda matrix: matrix["hosts"]["real"].update(python="/nonexistent/python"))
    done = client.run("doctor", "--host", "real", "--run")
    assert "not tried, for what is red above" in done.stdout
    assert client.run("doctor", "--run").returncode == 2


def test_doctor_here(client: Client):
    done = client.run("doctor", "--json")
    findings = {finding["name"]: finding["good"] for finding in json.loads(done.stdout)["findings"]}
    isolation = findings.pop("isolation")
    assert isolation in (True, None), "what keeps a commit apart is said, and needed by nobody who does not ask for it"
    assert findings == {"git": True, "ssh": True, "nvcc": True, "torch": None}, "no run needs torch"


class Terminal:
    """A client on a terminal of its own."""

    def __init__(self, client: Client, *arguments: str) -> None:
        self._main, end = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fmha", *arguments],
            cwd=client.root,
            env=os.environ | {"FMHA_SSH_CONFIG": str(client.config), "TERM": "dumb"},
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
        )
        client.processes.append(self.process)
        os.close(end)
        self.said = ""

    def read_until(self, words: str) -> None:
        os.set_blocking(self._main, False)

        def heard() -> bool:
            try:
                self.said += os.read(self._main, 1 << 16).decode("utf-8", "replace")
            except (BlockingIOError, OSError):
                time.sleep(0)
            return words in self.said

        assert eventually(heard), self.said

    def type(self, words: str) -> None:
        os.write(self._main, words.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


def test_ctrl_c_asks_and_detaches(client: Client):
    with client.server.hold("t1"):
        terminal = Terminal(client, "run-matrix", "--host", "gpu")
        run = client.wait_for(started("hd64_t1_sk128"))
        terminal.interrupt()
        terminal.read_until("[d]etach")
        terminal.type("d\n")
        terminal.read_until(f"fmha attach {run.name}")
        assert terminal.process.wait(DEADLINE_SECONDS) == 4
    assert client.run("attach", run.name).returncode == 0


def test_ctrl_c_asks_and_stays(client: Client):
    with client.server.hold("t1"):
        terminal = Terminal(client, "run-matrix", "--host", "gpu")
        client.wait_for(started("hd64_t1_sk128"))
        terminal.interrupt()
        terminal.read_until("[s]tay")
        terminal.type("s\n")
    terminal.read_until("PASS 2 of 2")
    assert terminal.process.wait(DEADLINE_SECONDS) == 0


def test_ctrl_c_twice_cancels(client: Client):
    with client.server.hold("t32"):
        terminal = Terminal(client, "run-matrix", "--host", "gpu")
        client.wait_for(started("hd64_t32_sk128"))
        terminal.interrupt()
        terminal.read_until("[c]ancel")
        terminal.interrupt()
        terminal.read_until("INCOMPLETE 1 of 2")
        assert terminal.process.wait(DEADLINE_SECONDS) == 4
        client.settle()
    assert client.statuses() == {"hd64_t1_sk128": "pass", "hd64_t32_sk128": "not-run"}
