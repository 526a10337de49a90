"""GPUs that are divided (MIG), shared (MPS) or closed, by what nvidia-smi says of them.

Its words about MIG are those of its manual, for no GPU that is divided was at hand; those about MPS are an H100's,
driver 580.159.04.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from fmha.harness.supervisor import gpus
from fmha.harness.supervisor.rundir import HostError

A, B = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-1111"
PARTS = ("MIG-11111111-aaaa", "MIG-22222222-bbbb")
RUN = "20260202T000000Z-111111111111-11111111"
SMI = f"""#!/bin/sh
case "$1" in
*compute-apps*) cat {{folder}}/apps ;;
-L) cat <<'END'
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {A})
  MIG 3g.40gb     Device  0: (UUID: {PARTS[0]})
  MIG 1g.10gb     Device  1: (UUID: {PARTS[1]})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {B})
END
;;
*) echo '{A}, 0, NVIDIA H100 80GB HBM3, 580.159.04, 9.0, Enabled, Default'
   echo "{B}, 1, NVIDIA H100 80GB HBM3, 580.159.04, 9.0, Disabled, $(cat {{folder}}/mode)" ;;
esac
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "apps").write_text("")
    (tmp_path / "mode").write_text("Default")
    (tmp_path / "nvidia-smi").write_text(SMI.format(folder=tmp_path))
    (tmp_path / "nvidia-smi").chmod(0o755)
    return tmp_path


def rules(host: Path, *use: str, foreign: str = "wait") -> gpus.Rules:
    return gpus.Rules(secrets.token_hex(8), host, str(host / "nvidia-smi"), 60.0, use, 600.0, foreign)


def test_a_divided_gpu_is_its_mig_devices(host: Path):
    whole, part = gpus.choose(rules(host, "1"))[0], gpus.choose(rules(host, "0:1"))[0]
    assert (whole.uuid, whole.index) == (B, "1")
    assert (part.uuid, part.index, part.name) == (PARTS[1], "0:1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    assert [gpu.uuid for gpu in gpus.choose(rules(host, "0"))] == list(PARTS)
    assert [gpu.uuid for gpu in gpus.choose(rules(host, PARTS[0]))] == [PARTS[0]]
    assert [gpu.uuid for gpu in gpus.choose(rules(host))] == [*PARTS, B]
    with pytest.raises(HostError, match=f"it has 0:0 .{PARTS[0]}., 0:1 .{PARTS[1]}., 1 .{B}."):
        gpus.choose(rules(host, A))


def test_two_runs_have_a_mig_device_each(host: Path):
    rule = rules(host, "0")
    candidates = gpus.choose(rule)
    with (
        gpus.Wait(rule, candidates, RUN, lambda *_: None) as first,
        gpus.Wait(rule, candidates, RUN.replace("2026", "2027"), lambda *_: None) as second,
    ):
        leases = [first.lease(), second.lease()]
        assert {gpu.uuid for lease in leases for gpu in lease.gpus} == set(PARTS)
        assert {row["gpu"] for row in gpus.occupancy(rule) if not row["position"]} == set(PARTS)
    for lease in leases:
        lease.close()


def test_a_process_on_one_mig_device_keeps_nobody_off_the_other(host: Path):
    (host / "apps").write_text(f"{PARTS[0]}, 4242, python train.py\n")
    rule = rules(host, "0", foreign="refuse")
    with gpus.Wait(rule, gpus.choose(rule), RUN, lambda *_: None) as wait:
        lease = wait.lease()
    assert [gpu.uuid for gpu in lease.gpus] == [PARTS[1]]
    lease.close()


def test_mps_is_named_and_waited_for(host: Path):
    other = f"{PARTS[1]}, 4242, python train.py\n"
    (host / "apps").write_text(f"{B}, 423, python3\n{B}, 425, nvidia-cuda-mps-server\n{other}")
    rule, told = rules(host, B, "0:1"), []

    def tell(reason: str, position: int) -> None:
        told.append(reason)
        (host / "apps").write_text(other)

    with gpus.Wait(rule, gpus.choose(rule)[::-1], RUN, tell) as wait:
        wait.lease().close()
    assert told[0].startswith(f"{B} is shared by MPS (process 425, nvidia-cuda-mps-server")


def test_a_gpu_whose_compute_mode_is_prohibited_is_not_used(host: Path):
    (host / "mode").write_text("Prohibited")
    assert B not in [gpu.uuid for gpu in gpus.choose(rules(host))]
    with pytest.raises(HostError, match=rf"the compute mode of 1 \({B}\) is Prohibited"):
        gpus.choose(rules(host, "1"))


def test_a_run_of_several_gpus_has_them_at_once_and_what_is_taken_is_left_out(host: Path):
    """As many as its host's settings say; one foreign process keeps it off one GPU."""
    wish = {"locks": secrets.token_hex(8), "nvidia_smi": str(host / "nvidia-smi"), "smi_seconds": 60.0, "use": []}
    wish |= {"wait_seconds": 600.0, "foreign": "refuse", "count": 2}
    rule = gpus.Rules.of(wish, host)
    (host / "apps").write_text(f"{PARTS[0]}, 4242, python train.py\n")
    with gpus.Wait(rule, gpus.choose(rule), RUN, lambda *_: None) as wait:
        lease = wait.lease()
    assert {gpu.uuid for gpu in lease.gpus} == {PARTS[1], B}
    lease.close()
    assert gpus.Rules.of({**wish, "priority": "high"}, host).priority == "high"
