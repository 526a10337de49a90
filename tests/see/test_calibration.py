"""`fmha calibrate`: what the probes' numbers become, and the probes themselves, which no GPU has run yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.emulator import programs
from fmha.emulator.timing.architecture import architecture
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.see import calibration
from tests.forked import fmha

B200 = architecture("b200")


def printed(**other: float) -> str:
    """What the probes would print on a GPU that is as the model has it, but for the `other` constants."""
    value = B200.values | other
    near = value["tma_box"] + value["tma_latency"] + value["mbarrier_wake"]
    alone, sms = near + value["hbm_latency"], B200.multiprocessors
    queued = alone + value["hbm_queue"] * 4 * 8192 * sms / value["hbm_bytes"]
    each = {
        "ex2_chain": (512, value["mufu_latency"]),
        "ex2_apart": (4096, value["mufu_interval"]),
        "fma_chain": (512, value["fma_latency"]),
        "port": (1 << 25, 1 / value["port_bytes"]),
        "l2": (1 << 25, sms / value["l2_bytes"]),
        "hbm": (1 << 24, sms / value["hbm_bytes"]),
        "l2_latency": (1 << 19, near / 512),
        "hbm_latency": (1 << 19, alone / 512),
        "hbm_queue": (1 << 23, queued / (4 * 8192)),
    }
    lines = [f"{name},{size}" + 3 * f",{size * one!r}" for name, (size, one) in each.items()]
    return "\n".join([*lines, f"clock,0,{other.get('clock_mhz', B200.clock_mhz.value)},1845,1845"]) + "\n"


def test_a_gpu_that_is_as_the_model_has_it_gives_the_models_constants() -> None:
    measured = calibration.constants(calibration.read(printed()), B200)
    assert len(measured) == 10
    for constant in measured:
        assert constant.value == pytest.approx(constant.was.value), constant.name
        assert constant.as_said


def test_a_constant_that_is_another_is_told_and_how_far_the_model_was_off() -> None:
    off = {c.name: c for c in calibration.constants(calibration.read(printed(hbm_latency=1000.0)), B200)}
    assert off["hbm_latency"].value == pytest.approx(1000)
    assert off["hbm_latency"].off == pytest.approx(B200.values["hbm_latency"] / 1000 - 1)
    assert not off["hbm_latency"].as_said
    assert off["tma_latency"].as_said


def test_the_uncertainty_is_the_spread_of_the_repeats() -> None:
    probe = calibration.read("port,100,10,10,13\n")["port"]
    assert (probe.median, probe.spread) == (10, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port 12\n", "is no probe"),
        ("port,100\n", "has no time"),
        ("port,100,0\n", "has no time"),
        ("port,100,5\n", "no probe "),
    ],
)
def test_what_is_no_measurement_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        calibration.constants(calibration.read(text), B200)


def test_the_record_replaces_the_models_constants(tmp_path: Path) -> None:
    (tmp_path / "probes.csv").write_text(printed(hbm_latency=1000.0))
    done = fmha("calibrate", "--probes", "probes.csv", "--output", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line.split() for line in done.stdout.splitlines() if line.startswith("hbm_latency")]
    assert line == ["hbm_latency", "1000", "1%", "500", "-50%", "beyond", "its", "30%"]
    mine = architecture(str(tmp_path / "mine.yaml"))
    assert (mine.arch, mine.multiprocessors) == (B200.arch, B200.multiprocessors)
    assert mine.values["hbm_latency"] == 1000
    assert "measured by fmha calibrate" in mine.times["hbm_latency"].source
    assert mine.times["matrix_rate"] == B200.times["matrix_rate"]
    modelled = fmha("roofline", "--gpu", "none.yaml", "hd64_t1_sk128_out-bf16", cwd=tmp_path)
    assert modelled.returncode == ExitCode.USAGE


@pytest.mark.nvcc
def test_a_call_is_modelled_with_the_constants_of_a_record(tmp_path: Path) -> None:
    times = []
    for name, latency in (("as_is", 500.0), ("slow", 2000.0)):
        (tmp_path / "probes.csv").write_text(printed(hbm_latency=latency))
        assert fmha("calibrate", "--probes", "probes.csv", "--output", f"{name}.yaml", cwd=tmp_path).returncode == 0
        done = fmha("roofline", "--gpu", f"{name}.yaml", "hd64_t1_sk128_out-bf16", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        times.append(float(done.stdout.splitlines()[1].split()[2]))
    assert times[1] > times[0] + 0.4  # microseconds, of 1500 cycles


def test_without_a_gpu_it_is_said_where_to_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = fmha("calibrate", cwd=tmp_path)
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert "there is no GPU here; run it where one is, or give --probes" in done.stderr


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_probes_run_on_the_emulator(tmp_path: Path, arch: str, capfd: pytest.CaptureFixture[str]) -> None:
    program = calibration.build(tmp_path, arch, ("-cudart", "shared"))
    ran = programs.run_program((str(program), "small"), programs.Options(arch))
    assert (ran.code, ran.seen.hazards, dict(ran.seen.refused)) == (0, [], {})
    probes = calibration.read(capfd.readouterr().out)
    assert {c.name for c in calibration.constants(probes, B200)} >= {"fma_latency", "port_bytes", "clock_mhz"}
