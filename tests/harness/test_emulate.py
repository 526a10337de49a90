"""`fmha emulate`: a launch file run against PTX, its outputs compared, its mistakes named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fmha.emulator import tensormap
from fmha.emulator.tensormap_rules import Im2col
from fmha.harness.cli import run

PTX = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry scale(.param .align 8 .b8 p[24])
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %d<8>;
    ld.param.u64 %d1, [p];
    ld.param.u64 %d2, [p+8];
    ld.param.f32 %f1, [p+16];
    ld.param.u32 %r1, [p+20];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    mul.wide.u32 %d3, %r5, 4;
    add.s64 %d4, %d1, %d3;
    add.s64 %d5, %d2, %d3;
    ld.global.f32 %f2, [%d4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%d5], %f3;
done:
    ret;
}
"""
LAUNCH = """grid: [2]
block: [64]
buffers:
  x: {dtype: f32, shape: [128], fill: arange}
  y: {dtype: f32, shape: [128], fill: poison}
args:
  - struct: [{buffer: x}, {buffer: y}, {f32: 2.0}, {u32: 128}]
outputs:
  y: {file: y.npy, expect: wanted.npy}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.ptx").write_text(PTX)
    np.save(tmp_path / "wanted.npy", 2 * np.arange(128, dtype=np.float32))
    return tmp_path


def emulate(folder: Path, launch: str, *options: str) -> int:
    (folder / "launch.yaml").write_text(launch)
    return run(["emulate", str(folder / "kernel.ptx"), "--launch", str(folder / "launch.yaml"), *options])


def test_a_right_kernel_passes_and_writes_its_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH) == 0
    assert "PASS: 0 findings, 0 of 1 compared outputs differ" in capsys.readouterr().out
    assert np.array_equal(np.load(folder / "y.npy"), np.load(folder / "wanted.npy"))


def test_a_buffer_by_its_multimem_address(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ptx = folder / "kernel.ptx"
    ptx.write_text(PTX.replace("st.global.f32 [%d5], %f3;", "multimem.st.f32 [%d5], %f3;"))
    assert emulate(folder, LAUNCH.replace("{buffer: y}", "{buffer: y, multimem: true}")) == 0
    assert emulate(folder, LAUNCH) == 1
    capsys.readouterr()
    assert emulate(folder, LAUNCH.replace("{u32: 128}", "{u32: 128, multimem: true}")) == 2
    assert "multimem: goes with a buffer" in capsys.readouterr().err


def test_unwritten_elements_fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH.replace("u32: 128", "u32: 100")) == 1
    assert "28 of 128 elements differ" in capsys.readouterr().out


def test_the_element_that_differs_most_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = 2 * np.arange(128, dtype=np.float32).reshape(4, 32)
    wanted[1, 3], wanted[2, 5], wanted[3, 7] = 0, -1000, 1e9  # off by 70, by 1138, and by what its tolerance allows
    np.save(folder / "wanted.npy", wanted)
    launch = LAUNCH.replace("y: {dtype: f32, shape: [128]", "y: {dtype: f32, shape: [4, 32]")
    assert emulate(folder, launch.replace("expect: wanted.npy", "expect: wanted.npy, rtol: 1.0")) == 1
    assert "y: 2 of 128 elements differ, [2, 5] is 138 instead of -1000" in capsys.readouterr().out
    assert emulate(folder, launch, "--json") == 1
    (compared,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert compared["worst"] == {"index": [3, 7], "got": 206.0, "wanted": 1e9}
    assert emulate(folder, launch.replace("expect: wanted.npy", "expect: wanted.npy, rtol: 9.0, atol: 1e9")) == 0


def test_nothing_compared_is_no_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH.replace(", expect: wanted.npy", "")) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == "NO HAZARD: 0 findings; no output was compared, none has expect"


@pytest.mark.parametrize(
    "shape", ["[1099511627776]", "[4294967296, 4294967296]", "[2097152, 2097152, 2097152]"], ids=["TiB", "2^64", "2^63"]
)
@pytest.mark.parametrize("fill", ["fill: zeros", "fill: poison", "value: 1.0", "seed: 0"])
def test_a_shape_beyond_memory(folder: Path, shape: str, fill: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Products that pass 2^63 were small or negative ones."""
    assert (
        emulate(
            folder,
            LAUNCH.replace("y: {dtype: f32, shape: [128], fill: poison}", f"y: {{dtype: f32, shape: {shape}, {fill}}}"),
        )
        == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert "buffers, y the largest: " in line
    assert "more than this machine has memory for; correct shape" in line


def test_a_grid_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH.replace("grid: [2]\n", "")) == 2
    assert "grid" in capsys.readouterr().err


def test_a_fault_fails_and_names_the_buffer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH.replace("grid: [2]", "grid: [3]").replace("u32: 128", "u32: 192"), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert [f["rule"] for f in report["findings"]] == ["global-out-of-bounds"]
    assert "'x' of 512 bytes" in report["findings"][0]["message"]


def test_a_waived_finding_is_shown_and_does_not_fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ptx = folder / "kernel.ptx"
    ptx.write_text(
        PTX.replace(
            "st.global.f32 [%d5], %f3;", "st.global.f32 [%d5], %f3; bar.warp.sync -1; st.global.f32 [%d2], %f3;"
        )
    )
    assert emulate(folder, LAUNCH) == 1
    assert "error: race" in capsys.readouterr().out
    waivers = "waivers:\n- {rule: race, reason: the last store wins, at: st.global}\n"
    assert emulate(folder, LAUNCH.replace(", expect: wanted.npy", "") + waivers) == 0
    shown = capsys.readouterr().out
    assert "waived: race" in shown
    assert "waived: the last store wins" in shown
    assert "NO HAZARD: 1 findings (1 waived); no output was compared" in shown
    elsewhere = waivers.replace("st.global", "ld.global")
    assert emulate(folder, LAUNCH.replace(", expect: wanted.npy", "") + elsewhere) == 1
    assert emulate(folder, LAUNCH + waivers.replace("race", "rice")) == 2
    assert "'rice', which is no rule" in capsys.readouterr().err


COPY_MAP = (
    """.version 9.0
.target sm_100a
.address_size 64
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 to)
{
    .reg .b64 %d<12>;
    ld.param.u64 %d0, [to];
"""
    + "".join(f"    ld.param.b64 %d1, [map+{8 * n}];\n    st.global.b64 [%d0+{8 * n}], %d1;\n" for n in range(8))
    + "    ret;\n}\n"
)
COPY_LAUNCH = """grid: [1]
block: [1]
buffers:
  x: {dtype: f32, shape: [2, 4, 4, 8]}
  y: {dtype: u8, shape: [64]}
tensor_maps:
  m: {buffer: x, dtype: f32, global_dim: [8, 4, 4, 2], global_strides: [32, 128, 512], BOX}
args: [{tensor_map: m}, {buffer: y}]
outputs:
  y: {file: y.npy}
"""
PIXELS = (
    "channels_per_pixel: 8, pixels_per_column: 16, pixel_box_lower_corner: [-1, -2], pixel_box_upper_corner: [0, 1]"
)


def test_tensor_maps_of_both_kinds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kernel.ptx").write_text(COPY_MAP)
    for box in ("box_dim: [8, 4, 1, 1]", PIXELS):
        assert emulate(folder, COPY_LAUNCH.replace("BOX", box)) == 0
        tensor = tensormap.decode(np.load(folder / "y.npy").tobytes().ljust(128, b"\0"))
        assert (tensor.im2col is None) == (box != PIXELS)
    assert tensor.im2col == Im2col((-1, -2), (0, 1), 8, 16)
    capsys.readouterr()
    for box in ("swizzle: 32B", "box_dim: [8, 4, 1, 1], " + PIXELS, "pixels_per_column: 16"):
        assert emulate(folder, COPY_LAUNCH.replace("BOX", box)) == 2
        assert "needs either box_dim or all of channels_per_pixel" in capsys.readouterr().err


def test_a_rule_that_is_broken_all_over_is_told_a_few_times(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every warp stores to the same seven words."""
    stores = "".join(f"st.global.f32 [%d2+{4 * n}], %f3; " for n in range(7))
    (folder / "kernel.ptx").write_text(PTX.replace("st.global.f32 [%d5], %f3;", stores))
    launch = LAUNCH.replace(", expect: wanted.npy", "")
    assert emulate(folder, launch, "--json") == 1
    found = len(json.loads(capsys.readouterr().out)["findings"])
    assert found > 4
    assert emulate(folder, launch) == 1
    shown = capsys.readouterr().out
    assert shown.count("error: race") == 4
    assert shown.count("what to do: Put a bar.sync") == 1
    assert f"race: at {found - 4} more pairs of places" in shown
    assert f"FAIL: {found} findings" in shown


def test_files_that_are_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emulate", str(folder / "none.ptx")]) == 2
    assert "none.ptx: cannot be read: No such file or directory" in capsys.readouterr().err
    (folder / "kernel.ptx").write_bytes(b"\xff\xfe")
    assert run(["emulate", str(folder / "kernel.ptx")]) == 2
    assert "no UTF-8 text" in capsys.readouterr().err


def test_without_a_launch_file_the_kernels_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ptx = folder / "kernel.ptx"
    head, body = PTX.split("{", 1)
    ptx.write_text(head + ".reqntid 64\n.reqnctapercluster 2\n{" + body)
    assert run(["emulate", str(ptx)]) == 0
    assert capsys.readouterr().out == "scale (block [64, 1, 1], cluster [2, 1, 1])\n  p: 24 bytes at 0, aligned to 8\n"
    assert run(["emulate", str(ptx), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["params"] == [{"name": "p", "nbytes": 24, "align": 8, "offset": 0}]
    assert run(["emulate", str(ptx), "--schedules", "3"]) == 2
    assert "nothing to run; give --launch" in capsys.readouterr().err
    # The kernel's own cluster is taken where the file names none; a part of the name will do.
    assert emulate(folder, LAUNCH + "entry: cal\n") == 0


def test_schedules_are_explored_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two warps add to what they have read: the sum depends on the schedule, the race does not."""
    racy = PTX.replace("ld.global.f32 %f2, [%d4];", "ld.global.f32 %f2, [%d2];").replace("[%d5]", "[%d2]")
    racy = racy.replace("mul.f32 %f3, %f2, %f1", "add.f32 %f3, %f2, %f1")
    (folder / "kernel.ptx").write_text(racy)
    launch = LAUNCH.replace(", expect: wanted.npy", "").replace("fill: poison", "fill: zeros")
    assert emulate(folder, launch, "--schedules", "5") == 1
    shown = capsys.readouterr().out
    assert "reproduced by schedule realistic" in shown
    assert "under 5 schedules" in shown
    (folder / "kernel.ptx").write_text(PTX)
    assert emulate(folder, LAUNCH.replace("u32: 128", "u32: 100"), "--schedules", "4") == 1
    shown = capsys.readouterr().out
    assert (
        "28 of 128 elements differ, [100] is nan instead of 200, largest difference nan under schedule random, seed 1"
        in shown
    )
    assert "4 of 4 compared outputs differ" in shown


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("block: [64]", "block: []", "launch.yaml:2: block: must not be empty"),
        ("block: [64]\n", "", "launch.yaml:1: block: is required"),
        ("{buffer: y}", "{buffer: z}", "launch.yaml:7: args[0].struct[1].buffer: nothing is named 'z'; there are x, y"),
        ("{f32: 2.0}", "{f32: 2.0, u32: 1}", "needs exactly one of"),
        ("fill: arange", "fill: arange, value: 1.0", "contradicts fill"),
        ("  y: {file", "  q: {file", "outputs.q: nothing is named 'q'"),
        ("expect: wanted.npy", "expect: missing.npy", "missing.npy: cannot be read"),
        ("block: [64]", "block: [2048]", "block.x is 2048"),
        ("block: [64]", "block: [64]\nentry: scaled", "has no entry 'scaled'; there are scale"),
        ("{u32: 128}", "{u32: -1}", "-1 is no u32"),
    ],
)
def test_a_mistake_in_the_launch_file_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, complaint: str
) -> None:
    assert old in LAUNCH
    assert emulate(folder, LAUNCH.replace(old, new)) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert "Traceback" not in captured.err


def test_broken_ptx_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kernel.ptx").write_text(PTX.replace("mul.f32", "mul.f33"))
    assert emulate(folder, LAUNCH) == 2
    assert "line 24" in capsys.readouterr().err


def test_the_sums_of_mmas_are_chosen_in_the_file_or_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sums(launch: str, *options: str) -> str:
        assert emulate(folder, launch, "--json", *options) == 0
        return str(json.loads(capsys.readouterr().out)["mma_sums"])

    assert sums(LAUNCH) == "fast"
    assert sums(LAUNCH + "mma_sums: silicon\n") == "silicon"
    assert sums(LAUNCH + "mma_sums: silicon\n", "--mma-sums", "fast") == "fast"
    assert emulate(folder, LAUNCH, "--mma-sums", "exact") == 2
    assert "--mma-sums: 'exact' is not one of fast, silicon" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("shape: [128], fill: arange", "shape: [1000000000000], fill: arange", "buffers, x the largest"),
        ("shape: [128], fill: poison", "shape: [999999999999999999, 1000]", "more than this machine has memory for"),
        ("shape: [128], fill: poison", f"shape: {[1] * 70}", "buffers.y.shape"),
        ("grid: [2]", "grid: [2]\nthreads: 99999999999", "threads: must be at most"),
        ("{u32: 128}", "{hex: zz}", "'zz' is no row of bytes"),
        ("{u32: 128}", "{hex: abc}", "'abc' is no row of bytes"),
        ("{f32: 2.0}", "{f32: 1.0e+300}", "is no f32"),
        ("{u32: 128}]", "{u32: 128}]\n    align: 99999999999", "align: must be at most"),
        ("file: y.npy", "file: nowhere/y.npy", "y.npy: cannot be written: No such file"),
        ("file: y.npy", r'file: "a\0b"', "cannot be written"),
        ("wanted.npy", "text.npy", "elements of type <U1; numbers are wanted"),
        ("wanted.npy", "complex.npy", "elements of type complex128"),
        ("wanted.npy", "empty.npy", "cannot be read as .npy"),
        ("wanted.npy", "huge.npy", "cannot be read as .npy"),
        ("grid: [2]", 'grid: [2]\nwaivers: [{rule: race, reason: x, at: "a{99999999999}"}]', "waivers: "),
    ],
)
def test_mistakes_are_named(
    folder: Path, before: str, after: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each was an internal error."""
    np.save(folder / "text.npy", np.array(["a"] * 128))
    np.save(folder / "complex.npy", np.zeros(128, complex))
    (folder / "empty.npy").write_bytes(b"")
    header = (folder / "wanted.npy").read_bytes()[:128]
    (folder / "huge.npy").write_bytes(header.replace(b"(128,), }            ", b"(999999999999999,), }"))
    assert before in LAUNCH
    assert emulate(folder, LAUNCH.replace(before, after)) == 2
    assert said in capsys.readouterr().err


def test_a_cooperative_launch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH + "cooperative: true\n") == 0
    assert emulate(folder, LAUNCH.replace("grid: [2]", "grid: [5000]") + "cooperative: true\n") == 2
    assert "a cooperative launch of 5000 CTAs; the device holds 4736" in capsys.readouterr().err


def test_a_search_says_what_it_tried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH, "--search", "0.2") == 0
    shown = capsys.readouterr().out
    assert re.search(r"\d+ runs?, 1 distinct interleavings of up to \d+ steps", shown)
    assert emulate(folder, LAUNCH, "--search", "0", "--json") == 0
    assert "distinct" in json.loads(capsys.readouterr().out)["searched"]


def test_a_search_ends_with_what_fails_and_says_how_to_see_it_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    racing = LAUNCH.replace("grid: [2]", "grid: [3]").replace("u32: 128", "u32: 192")
    assert emulate(folder, racing, "--search", "60") == 1
    shown = capsys.readouterr().out
    found = re.search(r"reproduced by schedule pct, seed (\d+), depth (\d+), steps (\d+)", shown)
    assert found
    seed, depth, steps = found.groups()
    again = f"{racing}\nschedule: pct\nseed: {seed}\ndepth: {depth}\nsteps: {steps}\n"
    assert emulate(folder, again) == 1


def test_a_search_is_no_list_of_schedules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(folder, LAUNCH, "--search", "1", "--schedules", "3") == 2
    assert "--search" in capsys.readouterr().err
