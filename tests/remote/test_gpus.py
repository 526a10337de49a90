"""GPUs of a host, by a stub nvidia-smi that says what a file says."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fault_devices import HANGS
from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client, in_state, started

pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
A, B = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-1111"
AXES = {"head_dim": [64], "t": [1, 32, *range(64, 82)], "s_k": [128]}
SMI = """#!/bin/sh
case "$1" in
*compute-apps*) cat {apps} ;;
*) printf '{a}, 0, Stub 1, 570.1, 10.0, Disabled, Default\\n{b}, 1, Stub 1, 570.1, 10.0, Disabled, Default\\n' ;;
esac
"""


@pytest.fixture
def apps(client: Client) -> Iterator[Path]:
    """Two GPUs; what is written into the file is on them."""
    path = client.server.folder / "apps"
    path.write_text("")
    path.chmod(0o666)
    smi = client.server.folder / "bin" / "nvidia-smi"
    smi.write_text(SMI.format(apps=shlex.quote(str(path)), a=A, b=B))
    smi.chmod(0o755)

    def change(matrix: dict) -> None:
        matrix["hosts"]["gpu"]["gpus"].update(nvidia_smi=str(smi), use=["1"])

    client.change_matrix(change)
    yield path
    smi.unlink()


def test_the_chosen_gpu_is_locked_and_the_only_one_seen(client: Client, apps: Path):
    with client.server.hold("t1"):
        run = client.detached()
        client.wait_for(started("hd64_t1_sk128"))
        (host,) = [host for host in json.loads(client.run("hosts", "--json").stdout)["hosts"] if host["name"] == "gpu"]
        assert [(row["gpu"], row["run"], row["position"]) for row in host["gpus"]] == [(B, run, 0)]
        workers = [line for line in client.server.left_over() if "fmha.harness.worker" in line]
        assert workers
        for line in workers:
            environment = Path(f"/proc/{line.split()[0]}/environ").read_bytes().split(b"\0")
            assert f"CUDA_VISIBLE_DEVICES={B}".encode() in environment
    assert client.run("attach", run).returncode == 0
    (record,) = client.records()
    assert record["host"]["gpu"]["name"] == "Stub 1"


def test_a_runner_that_dies_before_it_has_its_gpu_is_named(client: Client, apps: Path):
    """The supervisor writes to whoever is not there any more, and lives to say so."""
    path = client.server.folder / "bin" / "nvidia-smi"
    real = path.rename(path.with_name("nvidia-smi-itself"))
    client.server.wrap("nvidia-smi", str(real), "--format=csv,noheader")
    with client.server.hold("nvidia-smi"):
        process = client.start("run-matrix", "--host", "gpu")
        client.wait_for(in_state("queued"))
        (runner,) = [line for line in client.server.left_over() if "fmha.harness.stages.hosted" in line]
        os.kill(int(runner.split()[0]), signal.SIGKILL)
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 3, stderr
    assert "the runner ended early with SIGKILL" in stderr


def test_two_gpus_take_two_runs_at_once(client: Client, apps: Path):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(use=[]))
    with client.server.hold("t1"):
        runs = [client.detached(), client.detached()]
        assert eventually(lambda: sum(started("hd64_t1_sk128")(client.events(run)) for run in client.runs()) == 2)
    for run in runs:
        assert client.run("attach", run).returncode == 0


def test_a_run_of_two_gpus_has_a_worker_on_each(client: Client, apps: Path):
    """Their locks are its own until it ends; the record says which of them gave each number."""
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(use=[]))
    client.change_matrix(lambda matrix: matrix["suites"].update(many={"axes": AXES}))
    with client.server.hold("t65"), client.server.hold("t80"):
        run = client.detached("--suite", "many", "--gpus", "2")
        client.wait_for(lambda events: all(started(f"hd64_t{t}_sk128")(events) for t in (65, 80)))
        (host,) = [host for host in json.loads(client.run("hosts", "--json").stdout)["hosts"] if host["name"] == "gpu"]
        assert {(row["gpu"], row["run"]) for row in host["gpus"]} == {(A, run), (B, run)}
    assert client.run("attach", run).returncode == 0
    (record,) = client.records()
    assert [gpu["uuid"] for gpu in record["host"]["gpus"]] == [A, B]
    places = {item["id"]: item["place"] for item in record["configurations"]}
    assert {places["hd64_t65_sk128"], places["hd64_t80_sk128"]} == {A, B}


def test_a_run_takes_what_is_free_of_the_gpus_that_it_may_have(client: Client, apps: Path):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(use=[], count=2))
    apps.write_text(f"{A}, 77, elsewhere\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    (record,) = client.records()
    assert (record["host"]["gpu"]["uuid"], record["host"]["gpus"]) == (B, [])


def test_a_foreign_process_is_waited_for(client: Client, apps: Path):
    apps.write_text(f"{A}, 77, elsewhere\n{B}, 4242, python train.py\n")
    process = client.start("run-matrix", "--host", "gpu")
    waiting = client.wait_for(lambda events: any(event["kind"] == "waiting" for event in events))
    (event,) = [event for event in client.events(waiting) if event["kind"] == "waiting"]
    assert "4242 (python train.py)" in event["reason"]
    apps.write_text("")
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, stderr


def test_a_foreign_process_is_refused_where_that_is_set(client: Client, apps: Path):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(foreign="refuse"))
    apps.write_text(f"{B}, 4242, python train.py\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "4242 (python train.py), which is not ours" in done.stderr


def test_one_foreign_process_does_not_refuse_the_other_gpus(client: Client, apps: Path):
    """GPUs may be named by number, too."""
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(foreign="refuse", use=[0, 1]))
    apps.write_text(f"{A}, 4242, python train.py\n")
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 0, done.stderr
    (run,) = client.runs()
    (gpu,) = [event["gpu"] for event in client.events(run) if event.get("state") == "run"]
    assert gpu["uuid"] == B


def test_a_gpu_that_a_killed_worker_does_not_leave_is_quarantined_until_it_does(client: Client, apps: Path):
    def change(matrix: dict) -> None:
        matrix["limits"]["configuration_silence_seconds"] = 6
        matrix["suites"]["stuck"] = {"axes": {"head_dim": [64], "t": [HANGS, 32], "s_k": [128]}}

    client.change_matrix(change)
    process = client.start("run-matrix", "--host", "gpu", "--suite", "stuck")
    client.wait_for(started(f"hd64_t{HANGS}_sk128"))
    apps.write_text(f"{B}, 999999, worker that was killed\n")
    stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1, stderr
    assert client.statuses() == {f"hd64_t{HANGS}_sk128": "timeout", "hd64_t32_sk128": "infra-error"}
    assert f"{B} is quarantined: process 999999 was killed but is still on it" in stdout
    doctor = client.run("doctor", "--host", "gpu")
    assert doctor.returncode == 3
    assert "quarantined" in doctor.stdout
    process = client.start("run-matrix", "--host", "gpu")
    waiting = client.wait_for(lambda events: any(event["kind"] == "waiting" for event in events))
    assert "is quarantined" in str(client.events(waiting))
    apps.write_text("")
    _, stderr = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, stderr
    assert not (client.home / "fmha" / "quarantine" / f"{B}.json").exists()


def test_an_nvidia_smi_that_hangs_is_given_up(client: Client, apps: Path):
    smi = client.server.folder / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & wait\nsleep 600\n")
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(smi_seconds=1))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "nvidia-smi does not answer within 1 s" in done.stderr


def test_an_nvidia_smi_that_is_not_there_is_told_before_anything_is_made(client: Client):
    def change(matrix: dict) -> None:
        matrix["hosts"]["gpu"]["gpus"].update(nvidia_smi="/nowhere/nvidia-smi")
        matrix["hosts"]["gpu"]["environment"]["setup"] += "; : another"

    client.change_matrix(change)
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert "/nowhere/nvidia-smi cannot be started: No such file or directory" in done.stdout + done.stderr
    (run,) = client.runs()
    assert [event for event in client.events(run) if event["kind"] == "state"] == []


def test_a_gpu_that_is_not_there(client: Client, apps: Path):
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(use=["7"]))
    done = client.run("run-matrix", "--host", "gpu")
    assert done.returncode == 3
    assert f"it has 0 ({A}), 1 ({B})" in done.stdout
    assert set(client.statuses().values()) == {"infra-error"}


PARTS = ("MIG-11111111-aaaa", "MIG-22222222-bbbb")
# As the manual of nvidia-smi and the MIG user guide show it; no GPU that is divided was at hand.
MIG_SMI = f"""#!/bin/sh
case "$1" in
*compute-apps*) cat {{apps}} ;;
-L) cat <<'END'
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {A})
  MIG 3g.40gb     Device  0: (UUID: {PARTS[0]})
  MIG 1g.10gb     Device  1: (UUID: {PARTS[1]})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {B})
END
;;
*) printf '{A}, 0, NVIDIA H100 80GB HBM3, 570.1, 9.0, Enabled, Default\\n'
   printf '{B}, 1, NVIDIA H100 80GB HBM3, 570.1, 9.0, Disabled, {{mode}}\\n' ;;
esac
"""


def divided(client: Client, apps: Path, use: list[object], mode: str = "Default") -> None:
    text = MIG_SMI.format(apps=shlex.quote(str(apps)), mode=mode)
    (client.server.folder / "bin" / "nvidia-smi").write_text(text)
    client.change_matrix(lambda matrix: matrix["hosts"]["gpu"]["gpus"].update(use=use))


def test_a_divided_gpu_is_its_mig_devices(client: Client, apps: Path):
    divided(client, apps, [0])
    with client.server.hold("t1"):
        runs = [client.detached(), client.detached()]
        assert eventually(lambda: sum(started("hd64_t1_sk128")(client.events(run)) for run in client.runs()) == 2)
        (host,) = [host for host in json.loads(client.run("hosts", "--json").stdout)["hosts"] if host["name"] == "gpu"]
        assert {row["gpu"] for row in host["gpus"]} == set(PARTS)
        workers = [line for line in client.server.left_over() if "fmha.harness.worker" in line]  # which wait for us
        seen = [Path(f"/proc/{line.split()[0]}/environ").read_bytes() for line in workers]
        for part in PARTS:
            assert any(f"CUDA_VISIBLE_DEVICES={part}".encode() in environment.split(b"\0") for environment in seen)
        found = json.loads(client.run("doctor", "--host", "gpu", "--json").stdout)["findings"]
        named = {finding["name"]: finding["seen"] for finding in found}
        assert named["gpu 0:1"].startswith("NVIDIA H100 80GB HBM3 MIG 1g.10gb, compute capability 9.0, compute mode")
    for run in runs:
        assert client.run("attach", run, "-q").returncode == 0
    assert {record["host"]["gpu"]["name"] for record in client.records()} == {
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    }
