"""Launches from the device, compiled by nvcc -rdc=true: docs/reference/modelled.md says what is promised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator.launch_report import Report
from tests.compiled import nvcc
from tests.probes import launches
from tests.probes.textures import compare

HERE = Path(__file__).parent
pytestmark = pytest.mark.nvcc

INVALID_VALUE, NO_MEMORY, INVALID_CONFIGURATION, INVALID_DEVICE = 1, 2, 9, 101
SCHEDULES = ["realistic", "late", "random"]


def compiled(folder: Path, source: Path, arch: str) -> emulator.Module:
    out = folder / f"{source.stem}-{arch}.ptx"
    return emulator.load_ptx(nvcc(out, source, f"-arch={arch}", "-ptx", "-rdc=true", "-fmad=false"))


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> emulator.Module:
    return compiled(tmp_path_factory.mktemp("ptx"), HERE / "device_launches.cu", request.param)


class Run:
    """One launch of a kernel whose first arguments are arrays of 32-bit integers."""

    def __init__(self, module: emulator.Module, schedule: str = "realistic", seed: int = 0, **settings: object) -> None:
        self.module = module
        self.device = emulator.Device(seed=seed, schedule=schedule, **settings)
        self.arrays: list[emulator.Buffer] = []

    def array(self, values: np.ndarray | list[int]) -> int:
        words = np.asarray(values)
        buffer = self.device.alloc(words.nbytes, f"array {len(self.arrays)}")
        self.device.write(buffer.address, words)
        self.arrays.append(buffer)
        return buffer.address

    def unwritten(self, words: int) -> int:
        self.arrays.append(self.device.alloc(4 * words, f"array {len(self.arrays)}"))
        return self.arrays[-1].address

    def launch(self, entry: str, grid: int, block: int, *arguments: int) -> Report:
        return self.device.launch(self.module, entry, grid, block, arguments)

    def words(self, n: int) -> list[int]:
        return self.device.read(self.arrays[n].address, self.arrays[n].nbytes).view(np.int32).tolist()


def rules(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


def ints(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_range_is_sorted_by_kernels_that_launch_themselves(module: emulator.Module, schedule: str) -> None:
    values = np.random.default_rng(3).integers(-1000, 1000, 600).astype(np.int32)
    run = Run(module, schedule)
    report = run.launch("sort_range", 1, 1, run.array(values), 0, values.size - 1, 0)
    assert not report.findings
    assert report.stats["grids"] > 100
    assert run.words(0) == sorted(values.tolist())


def test_what_a_grid_has_launched_runs_before_what_stands_behind_it(module: emulator.Module) -> None:
    printed = Run(module).launch("branch", 1, 1, 1, 2).printed
    assert b"".join(text for _, text in printed).split() == [b"1", b"11", b"111", b"112", b"12", b"121", b"122"]


def escapes(size: int) -> np.ndarray:
    """The image that the kernels divide, one pixel after the other, in float32."""
    y, x = np.mgrid[0:size, 0:size].astype(np.float32)
    re, im = (
        np.float32(3) * x / np.float32(size) - np.float32(2.25),
        np.float32(3) * y / np.float32(size) - np.float32(1.5),
    )
    a, b, out = np.zeros_like(re), np.zeros_like(re), np.full((size, size), 32)
    with np.errstate(all="ignore"):
        for n in range(32):
            a, b = a * a - b * b + re, 2 * a * b + im
            out[(out == 32) & (a * a + b * b > 4)] = n
    return out


def test_an_image_is_filled_by_squares_within_squares(module: emulator.Module) -> None:
    run = Run(module)
    report = run.launch("squares", 2, 128, run.unwritten(64 * 64), 64, 0, 0, 32)
    assert not report.findings
    half = np.array(run.words(0)[: 32 * 64]).reshape(32, 64)
    assert np.array_equal(half, escapes(64)[:32])


def test_arguments_and_dimensions_arrive(module: emulator.Module) -> None:
    run = Run(module)
    out = run.unwritten(32)
    assert not run.launch("give", 1, 1, out).findings
    got = run.device.read(out, 128).view(np.float64).tolist()
    assert got == [5, -3, 2.5, 7, -9, -6, 1, 4, 0.5, 1, 2, 3, 4, 32, 2, 100]


def test_launches_that_cannot_be_give_an_error_to_their_thread(module: emulator.Module) -> None:
    run = Run(module)
    report = run.launch("wrong_launches", 1, 9, run.unwritten(27), run.array(ints(1)), run.array(ints(1)))
    expected = [INVALID_CONFIGURATION] * 7 + [0, INVALID_VALUE]
    assert [run.words(0)[3 * t : 3 * t + 3] for t in range(9)] == [[code, code, 0] for code in expected]
    assert run.words(1) == [1]  # thread 7's
    assert rules(report) == {"device-launch"}
    assert report.ok  # a warning: the program may look at the error


def test_grids_nest_deeper_than_cuda_documents(module: emulator.Module) -> None:
    run = Run(module)
    report = run.launch("deep", 1, 1, run.array(ints(1)), run.array(ints(1)), 99)
    assert (run.words(0), run.words(1)) == ([100], [0])
    assert not report.findings


def test_a_limit_of_waiting_launches_is_told_and_holds_nothing_back(module: emulator.Module) -> None:
    run = Run(module)
    run.device.pending_launches = 32
    assert not run.launch("many", 1, 1, run.array(ints(1)), run.array(ints(1))).findings
    assert (run.words(0), run.words(1)) == ([40], [0])
    run.launch("facts", 1, 1, run.unwritten(17))
    assert run.words(2)[5] == 32


def test_launches_without_an_end_are_refused_by_the_machine(module: emulator.Module) -> None:
    (finding,) = Run(module).launch("without_end", 1, 32).findings
    assert finding.rule == "device-runtime"
    assert "65536 grids are launched and not complete" in finding.message


def test_a_recursion_without_an_end_is_refused_by_the_machine(module: emulator.Module) -> None:
    run = Run(module)
    (finding,) = run.launch("deep", 1, 1, run.array(ints(1)), run.array(ints(1)), -1).findings
    assert finding.rule == "device-runtime"
    assert "launch of deep: 1024 launches lead from the host's grid to this one" in finding.message
    assert run.words(0) == [1025]


@pytest.mark.parametrize(
    ("permitted", "size", "code"),
    [
        (None, 49152, 0),
        (None, 49156, INVALID_CONFIGURATION),
        (100000, 100000, 0),
        (100000, 100004, INVALID_CONFIGURATION),
    ],
)
def test_so_much_shared_memory_may_a_launch_have(
    module: emulator.Module, permitted: int | None, size: int, code: int
) -> None:
    run = Run(module)
    if permitted is not None:
        run.device.permit_dynamic_shared(module, "with_dynamic", permitted)
    run.launch("launch_dynamic", 1, 1, run.array(ints(1)), size, run.unwritten(1))
    assert (run.words(0), run.words(1)) == ([0 if code else size], [code])


def test_no_more_shared_memory_is_permitted_than_a_cta_has(module: emulator.Module) -> None:
    with pytest.raises(emulator.LaunchError, match="232449 bytes of shared memory; a CTA has 232448"):
        emulator.Device().permit_dynamic_shared(module, "with_dynamic", 232449)
    with pytest.raises(emulator.LaunchError, match="no entry 'dynamics'; the module has sort_range"):
        emulator.Device().permit_dynamic_shared(module, "dynamics", 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_clusters_are_launched(module: emulator.Module, schedule: str) -> None:
    run = Run(module, schedule)
    assert not run.launch("launch_pairs", 1, 1, run.unwritten(6), 6).findings
    assert run.words(0) == [10, 0, 30, 20, 50, 40]


def test_a_grid_that_clusters_do_not_divide_is_refused(module: emulator.Module) -> None:
    (finding,) = (run := Run(module)).launch("launch_pairs", 1, 1, run.unwritten(4), 3).findings
    assert finding.rule == "device-runtime"
    assert "launch of in_pairs: a grid of 3 x 1 x 1 CTAs is no multiple of its cluster's 2 x 1 x 1" in finding.message


@pytest.mark.parametrize("asked", [0, 1])
def test_a_kernel_that_is_not_modelled_is_refused_where_it_is_launched(module: emulator.Module, asked: int) -> None:
    report = (run := Run(module)).launch("launch_sixteens", 1, 1, run.array(ints(1)), asked)
    assert rules(report) == ({"device-runtime"} if asked else set())
    assert all("launch of in_sixteens: a cluster of 16 CTAs" in f.message for f in report.findings)


def test_an_h200_gave_the_same_answers() -> None:
    gpu = launches.read_h200()
    assert (len(gpu), sum(map(len, gpu.values()))) == (32, 447)
    assert list(map(str, compare(gpu, launches.run_here()))) == []


def test_a_loop_of_tail_launches(module: emulator.Module) -> None:
    values = np.arange(32, dtype=np.int32)
    run = Run(module)
    report = run.launch("again", 1, 32, run.array(values), run.array(ints(1)), 60)
    for _ in range(61):
        values = values.reshape(16, 2)[:, ::-1].ravel() * 3 + 1
    assert run.words(0) == values.tolist()
    assert run.words(1) == [61]  # each has launched another grid, below itself
    # Each thread reads its neighbour's word with no barrier before it writes its own.
    assert rules(report) <= {"race", "lane-race"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tail_launches_come_last_and_in_their_order(module: emulator.Module, schedule: str) -> None:
    run = Run(module, schedule, seed=5)
    report = run.launch("in_order", 1, 1, run.array(ints(12)))
    assert not report.findings
    assert run.words(0)[:11] == [10, 10, 20, 21, 22, 23, 30, 40, 41, 42, 50]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_event_orders_two_streams(module: emulator.Module, schedule: str) -> None:
    run = Run(module, schedule, seed=1)
    report = run.launch("by_event", 1, 1, run.array(ints(4)), 1)
    assert not report.findings
    assert run.words(0) == [3, 1, 2, 3]


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_implicit_stream_is_one_a_block(module: emulator.Module, blocks: int) -> None:
    run = Run(module, "random")
    report = run.launch("from_threads", blocks, 64, run.array(ints(10)))
    assert rules(report) == ({"grid-race"} if blocks == 2 else set())
    assert sorted(run.words(0)[1 : 1 + 4 * blocks]) == sorted([0, 16, 32, 48] * blocks)


def test_streams_that_no_event_orders_race(module: emulator.Module) -> None:
    seen = set()
    for seed in range(8):
        run = Run(module, "random", seed)
        assert rules(run.launch("by_event", 1, 1, run.array(ints(4)), 0)) == {"grid-race"}
        seen.add(tuple(run.words(0)))
    assert len(seen) > 1  # and may come in any order


@pytest.mark.parametrize(
    ("entry", "grid", "race"),
    [
        ("write_then_launch", 1, False),
        ("write_beside_launch", 1, True),
        ("write_after_launch", 1, True),
        ("read_after_launch", 1, True),
        ("write_before_tail", 1, False),
        ("two_blocks", 2, True),
    ],
)
@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_grid_knows_what_its_launcher_knew(
    module: emulator.Module, entry: str, grid: int, race: bool, profile: str
) -> None:
    run = Run(module, profile=profile)
    report = run.launch(entry, grid, 64 // grid, run.unwritten(64), run.array(ints(2)))
    assert rules(report) == ({"grid-race"} if race else set())
    for finding in report.findings:
        assert f"in sum, launched by {entry} with grid" in str(finding)
        assert finding.place is not None


def test_copies_and_fills_are_ordered_like_launches(module: emulator.Module) -> None:
    run = Run(module)
    source = np.arange(5000, dtype=np.uint8)
    to, origin = run.unwritten(1250), run.array(source)
    assert not run.launch("copies", 1, 1, to, origin, 5000).findings
    got = run.device.read(to, 5000)
    assert got.tolist() == [7, *source[:4998].tolist(), 7]


def test_the_device_says_what_it_is(module: emulator.Module) -> None:
    run = Run(module, multiprocessors=132)
    report = run.launch("facts", 1, 1, run.unwritten(17))
    major = 9 if module.target == "sm_90a" else 10
    assert run.words(0) == [
        *(0, 1, 132, major, INVALID_DEVICE, 2048, 13000),
        *(0, 12, 0, NO_MEMORY),
        *(INVALID_VALUE, INVALID_VALUE, INVALID_VALUE, 0, INVALID_VALUE, INVALID_VALUE),
    ]
    assert not report.findings


def test_errors_have_names_and_words(module: emulator.Module) -> None:
    report = Run(module).launch("words", 1, 1)
    assert report.printed == ((False, b"cudaErrorInvalidConfiguration: invalid configuration argument\n"),)


def test_a_fault_below_ends_the_launch(module: emulator.Module) -> None:
    run = Run(module)
    report = run.launch("fault_below", 1, 1, run.array(ints(1)))
    assert rules(report) == {"trap"}
    assert run.words(0) == [0]
    assert "in trap_below, launched by fault_below with grid [1, 1, 1]" in str(report.findings[0])


def test_a_loop_of_launches_without_an_end_is_ended(module: emulator.Module) -> None:
    run = Run(module, max_instructions=20_000)
    report = run.launch("again", 1, 32, run.array(ints(32)), run.array(ints(1)), 1 << 30)
    assert "instruction-limit" in rules(report)


def test_what_one_launch_leaves_another_does_not_see(module: emulator.Module) -> None:
    """The device's next launch is behind the whole tree."""
    run = Run(module)
    values, total = run.unwritten(64), run.array(ints(2))
    run.launch("write_then_launch", 1, 64, values, total)
    assert not run.launch("sum", 1, 1, values, total).findings
    assert run.words(1)[0] == 2016


@pytest.mark.parametrize("waits", [0, 1])
@pytest.mark.parametrize("first", ["fill_below", "fill_then_tail"])
def test_a_dependent_launch_waits_for_the_whole_tree(module: emulator.Module, first: str, waits: int) -> None:
    run = Run(module)
    values, total = run.unwritten(64), run.array(ints(1))
    run.launch(first, 1, 64, values, *([run.array(ints(1)), 1] if first == "fill_then_tail" else []))
    report = run.device.launch(module, "sum_dependent", 1, 1, [values, total, waits], programmatic=True)
    assert rules(report) == (set() if waits else {"launch-race"})
    assert run.words(1) == [2016]


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("first", ["fill_below", "fill_then_tail"])
def test_launches_in_another_stream_are_beside_the_whole_tree(
    module: emulator.Module, first: str, beside: bool
) -> None:
    run = Run(module)
    values, total = run.unwritten(64), run.array(ints(1))
    arguments = [values, *([run.array(ints(1)), 0] if first == "fill_then_tail" else [])]
    run.device.launch(module, first, 1, 64, arguments, beside=[])
    launches = run.device.launches
    report = run.device.launch(module, "sum", 1, 1, [values, total], beside=[launches] if beside else [])
    assert rules(report) == ({"stream-race"} if beside else set())
    # And the other way round: the tree is behind, or beside, what came before.
    report = run.device.launch(module, first, 1, 64, arguments, beside=[launches + 1] if beside else [])
    assert rules(report) == ({"stream-race"} if beside else set())


def test_threads_of_the_host_change_nothing(module: emulator.Module) -> None:
    run = Run(module, threads=2)
    report = run.launch("two_blocks", 2, 32, run.unwritten(64), run.array(ints(2)))
    assert rules(report) == {"grid-race"}
    assert report.stats["threads"] == 1


DEVICE_SYNCHRONIZE = """
.version 9.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 d) cudaDeviceSynchronize();
.visible .entry waits() {
    .param .b32 d;
    call (d), cudaDeviceSynchronize, ();
}
"""


def test_a_kernel_cannot_wait_for_its_launches() -> None:
    with pytest.raises(emulator.PtxError, match="CUDA 12 has taken cudaDeviceSynchronize from device code"):
        emulator.Device().launch(emulator.load_ptx(DEVICE_SYNCHRONIZE), "waits", 1, 1, [])


def test_time_is_not_modelled(module: emulator.Module) -> None:
    run = Run(module, timing="h200")
    with pytest.raises(emulator.LaunchError, match="launches kernels: how long that takes is not modelled"):
        run.launch("give", 1, 1, run.unwritten(32))
