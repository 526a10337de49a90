"""Hosts in matrix.yaml: defaults, and what is refused with its line."""

from __future__ import annotations

import pytest

from fmha.harness.config import interpret
from fmha.harness.config.host_sections import OF_KINDS, PROTECTED
from fmha.harness.config.settings import SUPERVISED, either
from fmha.harness.errors import ConfigError
from tests.harness.support import MATRIX


def host(text: str):
    """The settings of a host that is written so."""
    return interpret(f"{MATRIX}  b200: {{{text}}}\n", "matrix.yaml", "0" * 64).hosts["b200"]


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        host(text)
    return caught.value.problems


def test_defaults_are_safe():
    settings = host("kind: ssh").remote
    assert settings.alias == "b200"
    assert settings.device == "cuda"
    assert settings.protected == PROTECTED
    assert settings.sync == "auto"
    assert settings.gpu["query"] is True
    assert settings.gpu["nvidia_smi"] == "nvidia-smi"


def test_a_device_without_gpus_asks_no_nvidia_smi():
    assert host("kind: ssh, device: emulator").remote.gpu["query"] is False
    assert host("kind: ssh, device: emulator, gpus: {nvidia_smi: /bin/smi}").remote.gpu["query"] is True


def test_the_emulator_has_no_supervisor():
    assert host("kind: emulator").remote is None


def test_how_many_run_at_once():
    assert host("kind: emulator").workers == 0
    assert host("kind: emulator, workers: 3").workers == 3
    assert host("kind: ssh, device: emulator, workers: 3").remote.workers == 3
    assert host("kind: ssh").remote.gpu["count"] == 1
    assert host("kind: ssh, gpus: {count: 4}").remote.gpu["count"] == 4


def test_the_emulator_s_sums_are_chosen():
    assert host("kind: emulator").mma_sums == "fast"
    assert host("kind: emulator, mma_sums: silicon").mma_sums == "silicon"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: emulator, folder: x", f"hosts.b200.folder: is for hosts of kind {either(SUPERVISED)}"),
        ("kind: ssh, slurm: {tasks: 2}", "hosts.b200.slurm: is for hosts of kind slurm"),
        ("kind: slurm, slurm: {tasks: 0}", "hosts.b200.slurm.tasks: must be at least 1"),
        ("kind: slurm, slurm: {nodes: 2}", "hosts.b200.slurm.nodes: "),
        ("kind: emulator, mma_sums: exact", "hosts.b200.mma_sums: must be 'fast' or 'silicon'"),
        ("kind: local, mma_sums: fast", "hosts.b200.mma_sums: is for hosts of kind emulator"),
        ("kind: local, alias: x", f"hosts.b200.alias: is for hosts of kind {either(OF_KINDS['alias'])}"),
        ("kind: ssh, device: tpu", "hosts.b200.device: must be cuda, emulator or module:attribute"),
        ("kind: ssh, env: {'A B': x}", "hosts.b200.env.'A B': is no name of a variable"),
        ('kind: ssh, python: "a\\nb"', "hosts.b200.python: has characters that do not print"),
        ("kind: ssh, sync: never", "hosts.b200.sync: must be 'auto', 'remote' or 'direct'"),
        ("kind: ssh, workers: 2", "hosts.b200.workers: is for the emulator; gpus.count says how many GPUs"),
        ("kind: emulator, workers: 0", "hosts.b200.workers: must be at least 1"),
        ("kind: ssh, gpus: {count: 0}", "hosts.b200.gpus.count: must be at least 1"),
        ("kind: ssh, gpus: {wait_seconds: 0}", "hosts.b200.gpus.wait_seconds: must be more than 0"),
    ],
)
def test_mistakes(text: str, problem: str):
    (said,) = problems(text)
    assert problem in said
    assert said.startswith("matrix.yaml:")


@pytest.mark.parametrize(
    ("setup", "word"),
    [
        ("sudo make install", "sudo"),
        ("python3 -m venv x && /usr/bin/apt-get install gcc", "apt-get"),
        ("true;reboot", "reboot"),
        ("echo $(nvidia-smi -pm 1)", "nvidia-smi"),
        ("true\nmodprobe nvidia", "modprobe"),
        ("echo `systemctl stop x`", "systemctl"),
        ("sh -c 'sudo true'", "sudo"),
    ],
)
def test_setup_commands_that_touch_the_system_are_refused(setup: str, word: str):
    (said,) = problems(f"kind: ssh, environment: {{setup: {setup!r}}}".replace("\\n", "\n\n"))
    assert f"'{word}' is forbidden" in said


def test_setup_commands_that_do_not_are_taken():
    setup = "python3 -m venv $FMHA_ENVIRONMENT && pip install -r sudoku.txt"
    assert host(f"kind: ssh, environment: {{setup: '{setup}'}}").remote.setup == setup
