"""`fmha calibrate`: what the probes' numbers become, and the probes themselves, on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.emulator import programs
from fmha.emulator.timing.architecture import architecture
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.see import calibration, evaluated, probed
from tests.forked import fmha

B200 = architecture("b200")
GPUS = {"sm_90a": "h200", "sm_100a": "b200"}
SIMPLE = {  # probes that are a constant's own
    "ex2_chain": "mufu_latency",
    "ex2_apart": "mufu_interval",
    "fma_chain": "fma_latency",
    "alu_chain": "alu_latency",
    "alu_apart": "alu_interval",
    "pack_chain": "pack_latency",
    "pack_apart": "pack_interval",
    "convert_chain": "convert_latency",
    "convert_apart": "convert_interval",
    "shuffle_chain": "shuffle_latency",
    "shared_chain": "shared_latency",
    "global_chain": "l2_latency",
    "remote_chain": "cluster_latency",
    "meetings": "barrier_wake",
    "boxes": "tma_box",
    "rows_16": "tma_row",
}


def printed(**other: float) -> str:
    """What the probes would print on a GPU that is as the model has it, but for the `other` constants."""
    value = B200.values | other
    near = value["tma_box"] + value["tma_latency"] + value["mbarrier_wake"] + 512 / value["port_bytes"]
    alone, sms = near + value["hbm_latency"], B200.multiprocessors
    queued = alone + value["hbm_queue"] * 2 * 4096 * sms / value["hbm_bytes"]
    between = 64 + B200.values["matrix_issue"] + B200.values["mbarrier_wake"]  # of products of 128 columns
    each = {name: (512.0, value[constant]) for name, constant in SIMPLE.items()} | {
        "arrivals": (512, value["mbarrier_wake"] + value["mbarrier_arrive"]),
        "port": (1 << 25, 1 / value["port_bytes"]),
        "l2": (1 << 25, sms / value["l2_bytes"]),
        "hbm": (1 << 24, sms / value["hbm_bytes"]),
        "l2_latency": (1 << 19, near / 512),
        "hbm_latency": (1 << 19, alone / 512),
        "hbm_queue": (1 << 23, queued / (2 * 4096)),
        "rows_64": (1 << 18, max(value["tma_row"], 64 / value["port_bytes"])),
        "product_64": (8192, 48),
        "product_128": (8192, 64),
        "product_256": (8192, 128 * 4096 / value["matrix_rate"]),
        "product_registers": (8192, 64),
        "product_chain": (2048, between + value["matrix_latency_shared"]),
        "product_chain_registers": (2048, between + value["matrix_latency_registers"]),
        "columns": (4096, 32 * value["tmem_interval"]),
        "columns_chain": (4096, 32 * value["tmem_interval"] + value["tmem_latency"]),
        "calls": (500, 5 + other.get("launch_us", B200.launch_us.value)),
        "calls_double": (500, 10 + other.get("launch_us", B200.launch_us.value)),
        "calls_merged": (500, 5.2 + other.get("combine_us", B200.combine_us.value)),
        "load_products": (32768, 128),
    }
    each["memory_chain"] = (512, value["l2_latency"] + value["hbm_latency"])
    each["nothing"] = (1, 1e-9)
    lines = [f"{name},{size}" + 3 * f",{size * one!r}" for name, (size, one) in each.items()]
    clock, load = (other.get(f"{name}_mhz", getattr(B200, f"{name}_mhz").value) for name in ("clock", "power_clock"))
    more = [f"clock,0,{clock},1845,1845", f"load_clock,0,{load},{load},{load}"]
    watts = ["load_watts,0,990,995,990", "limit_watts,0,1000,1000,1000"]
    return "\n".join([*lines, *more, *watts]) + "\n"


def test_a_gpu_that_is_as_the_model_has_it_gives_the_models_constants() -> None:
    measured = evaluated.constants(probed.read(printed()), B200)
    assert measured
    for constant in measured:
        assert constant.value == pytest.approx(constant.was.value), constant.name
        assert constant.as_said


def test_products_and_rows_are_told_beside_what_the_model_would_say() -> None:
    told = evaluated.compared(probed.read(printed()), B200)
    assert [one.name for one in told][:2] == ["product of 128 x 64 x 16", "product of 128 x 128 x 16"]
    for one in told:
        assert one.modelled == pytest.approx(one.measured), one.name
    slow = evaluated.compared(probed.read(printed(matrix_rate=2048.0)), B200)
    assert slow[2].off == pytest.approx(-0.5)


def test_a_clock_that_power_does_not_hold_down_says_nothing_of_power() -> None:
    names = [c.name for c in evaluated.constants(probed.read(printed(power_clock_mhz=1845.0)), B200)]
    assert "clock_mhz" in names
    assert "power_clock_mhz" not in names


def test_power_is_told_where_the_driver_tells_it() -> None:
    assert evaluated.watts(probed.read(printed())) == (990, 1000)
    silent = "".join(line for line in printed().splitlines(keepends=True) if "watts" not in line)
    assert evaluated.watts(probed.read(silent)) is None


def measured_of(text: str) -> dict[str, evaluated.MeasuredConstant]:
    return {c.name: c for c in evaluated.constants(probed.read(text), B200)}


def repeated(name: str, *repeats: float) -> str:
    """What would be printed if a probe's repeats were these parts of its time."""
    lines = dict(line.split(",", 1) for line in printed().splitlines())
    size, took, *_ = lines[name].split(",")
    lines[name] = ",".join([size, *(repr(float(took) * repeat) for repeat in repeats)])
    return "".join(f"{key},{rest}\n" for key, rest in lines.items())


@pytest.mark.parametrize(("us", "as_said"), [(0.19, True), (0.21, False)])
def test_a_constant_that_is_nothing_is_off_in_its_own_unit(us: float, as_said: bool) -> None:
    assert B200.combine_us.within == "0.2 us"
    assert measured_of(printed(combine_us=us))["combine_us"].as_said is as_said


def test_repeats_that_differ_make_a_constant_less_certain_and_nothing_else() -> None:
    still, moved = measured_of(printed()), measured_of(repeated("l2", 0.9, 1, 1.2))
    for name, constant in moved.items():
        assert constant.uncertainty >= still[name].uncertainty
        assert (constant.uncertainty > still[name].uncertainty) == (name == "l2_bytes"), name
    assert moved["l2_bytes"].uncertainty == pytest.approx(still["l2_bytes"].uncertainty + B200.values["l2_bytes"] / 6)


def test_a_small_difference_of_large_times_is_as_uncertain_as_they_are() -> None:
    moved, near = measured_of(repeated("hbm_latency", 0.95, 1, 1.05))["hbm_latency"], measured_of(printed())
    alone = near["hbm_latency"].value + near["tma_latency"].value + 64 + 78 + 512 / 96
    assert moved.uncertainty == pytest.approx(near["hbm_latency"].uncertainty + 0.05 * alone)


def test_what_is_subtracted_is_uncertain_as_its_source_says() -> None:
    wake = measured_of(printed())["mbarrier_wake"]
    assert wake.uncertainty >= B200.times["mbarrier_arrive"].room == 5


def test_readings_of_the_clock_and_turns_of_a_loop_count() -> None:
    """An fma's chain of 512 has eight turns, of a branch each, and two readings of the clock."""
    slow = printed().replace("nothing,1,1e-09", "nothing,1,40").replace(",1e-09", ",40")
    assert measured_of(slow)["fma_latency"].uncertainty == pytest.approx((40 + 8 * 12) / 512)


def test_copies_that_only_wait_for_their_own_bytes_say_that_there_is_no_queue() -> None:
    queue = measured_of(printed(hbm_queue=0.45))["hbm_queue"]
    assert (queue.value, queue.uncertainty > 0.45) == (0, True)
    assert measured_of(printed(hbm_queue=0.7))["hbm_queue"].value == pytest.approx(0.7)


def test_a_constant_that_is_another_is_told_and_how_far_the_model_was_off() -> None:
    off = {c.name: c for c in evaluated.constants(probed.read(printed(hbm_latency=1000.0)), B200)}
    assert off["hbm_latency"].value == pytest.approx(1000)
    assert off["hbm_latency"].off == pytest.approx(B200.values["hbm_latency"] / 1000 - 1)
    assert not off["hbm_latency"].as_said
    assert off["tma_latency"].as_said


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
        evaluated.constants(probed.read(text), B200)


def test_the_record_replaces_the_models_constants(tmp_path: Path) -> None:
    (tmp_path / "probes.csv").write_text(printed(hbm_latency=1000.0))
    done = fmha("calibrate", "--probes", "probes.csv", "--output", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line.split() for line in done.stdout.splitlines() if line.startswith("hbm_latency")]
    assert line[:2] + line[3:] == ["hbm_latency", "1000", "500", "30%", "-50%", "beyond", "both"]
    mine = architecture(str(tmp_path / "mine.yaml"))
    assert (mine.arch, mine.multiprocessors) == (B200.arch, B200.multiprocessors)
    assert mine.values["hbm_latency"] == 1000
    assert "measured by fmha calibrate" in mine.times["hbm_latency"].source
    assert mine.times["matrix_issue"] == B200.times["matrix_issue"]
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
    probes = probed.read(capfd.readouterr().out)
    assert {c.name for c in evaluated.constants(probes, architecture(GPUS[arch]))} >= {"fma_latency", "matrix_rate"}
    assert ("columns" in probes) == (arch == "sm_100a")
