"""The one at the other end who never comes to an end, or who says why it is none: real processes, real connections."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmha.harness.config.host_sections import HostSection
from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts import line as lines
from fmha.harness.hosts.carrier import LineError, ProcessCarrier
from fmha.harness.hosts.line import Line
from fmha.harness.stages import administration
from fmha.harness.stages.host_checkout import find_checkout
from tests.figures import limits
from tests.forked import Fork, fmha
from tests.harness.support import git
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.server import Server, client_config, serving

pytestmark = [pytest.mark.timeout(300)]
MATRIX = """\
default_suite: good
seed: 0
suites: {{good: {{axes: {{head_dim: [64], t: [1], s_k: [128]}}}}}}
gates:
  default: {limits}
guard: {{head_dim: 64, fallback: {{t: 1, s_k: 128}}}}
limits: {{build_seconds: 9, configuration_silence_seconds: 9, configuration_total_seconds: 9}}
hosts:
{hosts}
"""
RUN = f"20260101T000000Z-{'0' * 12}-{'0' * 8}"
GREETS = "import sys; sys.stdin.buffer.readline(); print('{\"fmha\":1}', flush=True)\n"
# Whatever it is sent is read: more than a pipe holds.
GREETS += "import threading; threading.Thread(target=sys.stdin.buffer.read, daemon=True).start()\n"
DRIPS = GREETS + "import time\nwhile True: sys.stdout.write(' '); sys.stdout.flush(); time.sleep(0.02)\n"
LOGS = GREETS + 'while True: print(\'{"log":"x","text":"%s"}\' % ("y" * 100_000), flush=True)\n'


@pytest.fixture(scope="module")
def server(public_folder: Path) -> Iterator[Server]:
    with serving(public_folder / "other-end") as running:
        yield running


def checkout(folder: Path, hosts: str) -> Path:
    root = folder / "project"
    root.mkdir()
    (root / "matrix.yaml").write_text(MATRIX.format(limits=limits(), hosts=hosts))
    git(root, "init", "-q", "-b", "main")
    return root


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def line_to(text: str) -> Line:
    return Line(ProcessCarrier([sys.executable, "-c", text], "here"), "here", 20.0)


def test_one_answer_has_one_limit_however_it_drips():
    with line_to(DRIPS) as line:
        line.open("/nonexistent", {"op": "list"})
        start = time.monotonic()
        with pytest.raises(LineError, match="has not come whole within"):
            line.answer(1.0)
        assert time.monotonic() - start < 20  # and not once more for each byte


def test_a_message_of_a_run_that_drips_is_a_lost_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "LINE_SECONDS", 0.5)
    with line_to(DRIPS) as line:
        line.open("/nonexistent", {"op": "follow"})
        with pytest.raises(LineError, match="has not come whole within"):
            line.receive()


def test_beats_alone_are_no_answer():
    beats = GREETS + "import time\nwhile True: print('{\"beat\":1}', flush=True); time.sleep(0.02)\n"
    with line_to(beats) as line:
        line.open("/nonexistent", {"op": "list"})
        with pytest.raises(LineError, match=r"no answer within|has not come whole"):
            line.answer(1.0)


def own(folder: Path, name: str, text: str) -> dict[str, str]:
    """The environment of somebody whose own file has a host on this machine, whose interpreter is `text`."""
    python = program(folder / "interpreter", text)
    (folder / "hosts.yaml").write_text(f"hosts: {{{name}: {{kind: local, python: {python}}}}}\n")
    return {**os.environ, "FMHA_HOSTS": str(folder / "hosts.yaml")}


def test_logs_that_never_stop_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = checkout(tmp_path, "  e: {kind: emulator}")
    monkeypatch.setattr(administration, "MOST_LOGS_BYTES", 3_000_000)
    monkeypatch.setenv("FMHA_HOSTS", own(tmp_path, "endless", LOGS)["FMHA_HOSTS"])
    place = find_checkout(root).named("endless")
    seen = 0
    with pytest.raises(InfrastructureError, match="do not come to an end"):  # noqa: PT012
        for _, text in administration.logs(place, RUN):
            seen += len(text)
    assert 2_000_000 < seen <= 3_000_000


@pytest.mark.parametrize(
    "command", [("ps",), ("hosts",), ("logs", RUN, "--host", "stuck"), ("doctor", "--host", "stuck")]
)
def test_any_command_ends_at_the_second_signal(command: tuple[str, ...], tmp_path: Path):
    """The agent greets, drips, and does not end when its line is closed."""
    root = checkout(tmp_path, "  e: {kind: emulator}")
    text = (
        "import signal\nfor n in (1, 2, 13, 15): signal.signal(n, signal.SIG_IGN)\n"
        + GREETS
        + f"""
import os, time
open({str(tmp_path / "there")!r}, "w").write(str(os.getpid()))
while True:
    try: os.write(1, b" ")
    except OSError: pass
    time.sleep(0.02)
"""
    )
    with Fork(*command, cwd=root, env=own(tmp_path, "stuck", text)) as process:
        assert eventually((tmp_path / "there").exists)
        assert eventually(lambda: (tmp_path / "there").read_text())
        agent = int((tmp_path / "there").read_text())
        try:
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.2)  # two of one kind at once are one
            start = time.monotonic()
            _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
            assert time.monotonic() - start < 10
            assert process.wait() == 4
            assert "interrupted" in stderr
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)


LOOKING = [
    ("ps",), ("hosts",), ("logs", RUN), ("cancel", RUN), ("attach", RUN), ("doctor", "--host", "evil"),
    ("clean", "--host", "evil"), ("ps", "--host", "evil"), ("logs", RUN, "--host", "evil"),
]  # fmt: skip


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_starts_nothing_that_a_checkout_names(command: tuple[str, ...], tmp_path: Path):
    """Each program leaves a mark: the interpreter, the compiler, nvidia-smi, and what a variable would load."""
    root = checkout(tmp_path, "")
    for name in ("python", "nvcc", "smi", "squeue", "sinfo"):
        program(root / name, f"open({str(tmp_path / 'owned')!r}, 'a').write({name!r})\n")
    evil = (
        f"python: {root}/python, nvcc: {root}/nvcc, folder: {tmp_path}/folder, "
        f"env: {{PATH: {root}}}, gpus: {{nvidia_smi: {root}/smi}}"
    )
    hosts = f"  evil: {{kind: local, {evil}}}\n  slow: {{kind: slurm, slurm: {{login: here}}, {evil}}}"
    (root / "matrix.yaml").write_text(MATRIX.format(limits=limits(), hosts=hosts))
    done = fmha(*command, cwd=root, env={**os.environ, "FMHA_HOSTS": ""})
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "owned").exists(), (done.stdout, done.stderr)


def test_ones_own_file_may_name_them(tmp_path: Path):
    root = checkout(tmp_path, "  e: {kind: emulator}")
    mark = tmp_path / "mark"
    text = (
        f"import os, sys\nopen({str(mark)!r}, 'w').close()\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    done = fmha("ps", "--host", "mine", cwd=root, env=own(tmp_path, "mine", text))
    assert done.returncode == 0, done.stderr
    assert mark.exists()


def test_settings_of_another_machine_are_what_they_are():
    for kind in ("ssh", "slurm"):
        settings = HostSection(kind=kind, python="/opt/python", nvcc="/opt/nvcc").settings("x")
        assert settings.looked_at() == settings


LAST_WORDS = [
    ("echo 'This account is currently not available.'; exit 1", "This account is currently not available"),
    ("echo 'no logins until noon' >&2; exit 1", "no logins until noon"),
    ('read line; exec {python} "$@"', "must not read standard input"),
    ('ulimit -v 20000; exec {python} "$@"', r"exit code|SIG|error while loading|cannot allocate|MemoryError"),
    ('ulimit -f 0; exec {python} "$@"', r"File too large|SIGXFSZ|exit code"),
]


@pytest.mark.parametrize(("body", "says"), LAST_WORDS)
def test_the_last_words_of_a_host_are_shown(body: str, says: str, server: Server, tmp_path: Path):
    python = server.folder / "bin" / "last-words"
    python.write_text(f"#!/bin/sh\n{body.format(python=server.python)}\n")
    python.chmod(0o755)
    home = f"folder: ~/fresh-{abs(hash(body))}"
    root = checkout(tmp_path, f"  gpu: {{kind: ssh, python: {python}, {home}}}")
    env = {**os.environ, "FMHA_SSH_CONFIG": str(client_config(server, tmp_path / "ssh")), "FMHA_HOSTS": ""}
    done = fmha("ps", "--host", "gpu", cwd=root, env=env)
    assert done.returncode == 3, done.stderr
    assert re.search(says, done.stderr), done.stderr
    assert "Traceback" not in done.stderr.replace("says 'Traceback", "")


def test_a_pythonhome_of_the_login_is_not_the_agents(server: Server, tmp_path: Path):
    python = server.folder / "bin" / "homed"
    python.write_text(f'#!/bin/sh\nPYTHONHOME=/nonexistent PYTHONPATH=/nonexistent exec {server.python} "$@"\n')
    python.chmod(0o755)
    root = checkout(tmp_path, f"  gpu: {{kind: ssh, python: {python}}}")
    env = {**os.environ, "FMHA_SSH_CONFIG": str(client_config(server, tmp_path / "ssh")), "FMHA_HOSTS": ""}
    done = fmha("ps", "--host", "gpu", cwd=root, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "? ", '"]": ['])
def test_a_matrix_that_is_nested_without_end_is_told_as_that(text: str, tmp_path: Path):
    """In a process of its own: the composers end theirs with SIGSEGV."""
    root = checkout(tmp_path, "")
    (root / "matrix.yaml").write_text(text * 50_000)
    for command in (("ps",), ("ps", "--host", "gpu"), ("hosts",)):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fmha", *command], cwd=root, capture_output=True, text=True, check=False,
            env={**os.environ, "FMHA_HOSTS": ""},
        )  # fmt: skip
        assert done.returncode == 2, (command, done.returncode, done.stderr[-300:])
        assert "broken YAML" in done.stderr
        assert "Traceback" not in done.stderr
