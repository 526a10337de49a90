"""Programs on the emulator: what they find of CUDA, and how they end. cases.cu has the programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fmha.emulator.programs.program_device import OPERATIONS
from fmha.harness.errors import ExitCode
from tests.programs.program_rig import Emulate, Told

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("programs")]
CLEAN = "NO HAZARD"
IDLE = "NOTHING LAUNCHED"

# Of each case, what the program prints and the end of the report.
SAID = {
    "vector_add": ["0 wrong", CLEAN],
    "cooperative": [
        "20 after 20 rounds; 148 multiprocessors of 32 CTAs",
        "too many: cudaErrorCooperativeLaunchTooLarge, too many blocks in cooperative launch",
        CLEAN,
    ],
    "cluster": [
        "101 102 103 100 105 106 107 104 ; 1184 clusters at a time",
        "of no configuration: cudaErrorInvalidValue, invalid argument",
        "the largest of none: cudaErrorInvalidValue, invalid argument",
        "16 CTAs: cudaErrorInvalidClusterSize, a kernel launch error has occurred due to cluster misconfiguration",
        "16 CTAs, allowed: cudaSuccess, no error",
        CLEAN,
    ],
    "symbols": [
        "scale[2] 30 of 16 bytes, total 15, shared 23",
        "beyond its end: cudaErrorInvalidValue, invalid argument",
        CLEAN,
    ],
    "pointers": [
        "type 2, device 0, there not here; range 0: 4, 0 in; 0: kind 2, 0: managed 0, device 0",
        "type 2, device 0, there not here; range 0: 16, 4 in; 0: kind 2, 0: managed 0, device 0",
        "type 3, device 0, there here; range 0: 4, 0 in; 0: kind 2, 0: managed 1, device 0",
        "type 2, device 0, there not here; range 0: 8, 0 in; 0: kind 2, 0: managed 0, device 0",
        "type 1, device 0, there here; range 0: 16, 4 in; 0: kind 1, 0: managed 0, device 0",
        "type 0, device -2, not there here; range 500: 0, 0 in; 1: kind 9, 0: managed 0, device -2",
        CLEAN,
    ],
    "heap": [
        "set: cudaSuccess, no error",
        "8388608: 1 1 1 0",
        "set again: cudaErrorInvalidValue, invalid argument",
        "copied: cudaErrorInvalidValue, invalid argument",
        "freed: cudaErrorInvalidValue, invalid argument",
        "freed by a kernel: cudaSuccess, no error",
        "8388608",
        CLEAN,
    ],
    "streams": [
        "4 124, called 1, time passes",
        "times between events were the emulator's own, 1 of them: nothing was measured",
        CLEAN,
    ],
    "print": [
        "before the synchronisation",
        *(f"thread {thread} of block {block}, n 42" for block in (0, 1) for thread in (0, 1)),
        "behind it",
        CLEAN,
    ],
    "print_lost": ["25 bytes of printf were lost: the program ended without a synchronisation after them", CLEAN],
    "errors": [
        "2048 threads: cudaErrorInvalidValue, invalid argument",
        "no CTA: cudaErrorInvalidValue, invalid argument",
        "beyond its bounds: cudaErrorInvalidValue, invalid argument",
        "100000 bytes: cudaErrorInvalidValue, invalid argument",
        "asked for: cudaSuccess, no error",
        "228 KiB: cudaErrorInvalidValue, invalid argument",
        "peeked: cudaErrorInvalidValue, invalid argument",
        "taken: cudaErrorInvalidValue, invalid argument",
        "none left: cudaSuccess, no error",
        "a copy too long: cudaErrorInvalidValue, invalid argument",
        "the wrong way: cudaErrorInvalidValue, invalid argument",
        "freed twice: cudaErrorInvalidValue, invalid argument",
        "freed null: cudaSuccess, no error",
        "no symbol: cudaErrorInvalidSymbol, invalid device symbol",
        "device 1: cudaErrorInvalidDevice, invalid device ordinal",
        "an exabyte: cudaErrorMemoryAllocation, out of memory",
        "unrecognized error code",
        CLEAN,
    ],
    "copies": ["2D 0, 3D 0, on the device 3 25 29 3", IDLE],
    "shared_memory": ["102 101 100 3002, 3 -2996, 2 3 4 0, type 3 type 1 type 0 copied 100", CLEAN],
    "static_shared": [
        "50,000 static bytes: cudaSuccess, no error",
        "5; 50000 bytes shared, 0 dynamic",
        "16 dynamic ones more: cudaErrorInvalidValue, invalid argument",
        "the same, permitted: cudaSuccess, no error",
        CLEAN,
    ],
    "properties": [
        "1 device: NVIDIA B200 (emulated), sm_100, 148 multiprocessors, 232448 bytes shared, warps of 32, CUDA 13000",
        "neighbours: 4 bytes shared, 1024 threads, 49148 dynamic",
        "bounded: 64 threads; best 4736 of 64",
        IDLE,
    ],
    "tensor_map": ["strides of 60 bytes: 1, of 64: 0; 36 43 52 91", CLEAN],
    "textures": [
        "a surface of a plain array: cudaErrorInvalidValue, invalid argument",
        "memory that is not aligned: cudaErrorInvalidValue, invalid argument",
        "integers, filtered: cudaErrorInvalidFilterSetting, linear filtering not supported for non-float type",
        (
            "words as fractions: cudaErrorInvalidNormSetting, "
            "read as normalized float not supported for 32-bit non float type"
        ),
        "5 0 0 0, 30 -3 30 30, 65 -6 60 60, written 5 30 70",
        "at most 131072 by 65536, 2048 layers, 268435456 in a line; surfaces of 131072 by 65536",
        "32 bits, 4 by 4, flags 2",
        "beyond its rows: cudaErrorInvalidValue, invalid argument",
        "over the array: 1",
        "destroyed: cudaErrorInvalidValue, invalid argument",
        "freed twice: cudaErrorInvalidResourceHandle, invalid resource handle",
        CLEAN,
    ],
    "driver_textures": ["3 layers of 4 channels; 80 to 95; fractions 1, integers filtered 1", IDLE],
    "driver_api": ["bump 0, none 500, 42 by a variable of 4 bytes", CLEAN],
    "pools": [
        "512 of 512, 0 of 256, supported 1, back to the default one 1",
        "the default one: cudaErrorInvalidValue, invalid argument",
        CLEAN,
    ],
    "captured1": ["ended: cudaSuccess, no error", "9090909 before, 2 1 after", CLEAN],
    "nodes": [
        "2341, 9341, 2341, 7 nodes",
        "kind 4; another topology: cudaErrorGraphExecUpdateFailure, 2",
        "a circle: cudaErrorInvalidValue, invalid argument",
        CLEAN,
    ],
    "forked": [
        "in the child: cudaErrorInitializationError, initialization error",
        "in the parent: cudaSuccess, no error",
        IDLE,
    ],
    "orphan": ["0 wrong", CLEAN],
    "nothing": ["nothing", "no CUDA call was made", IDLE],
}


@pytest.mark.parametrize("case", SAID)
def test_a_program_finds_cuda(cases: Path, emulate: Emulate, case: str) -> None:
    told = emulate(cases, case)
    *said, verdict = told.out
    assert said == SAID[case][:-1]
    assert verdict.startswith(SAID[case][-1])
    rules = " (lenient rules, the schedule realistic; --profile strict and --search 30 look further)"
    assert verdict.endswith(f" 0 hazards{rules if SAID[case][-1] == CLEAN else ''}")
    assert told.code == (0 if SAID[case][-1] == CLEAN else ExitCode.INCOMPLETE)


@pytest.mark.parametrize(
    ("case", "own", "code", "end"),
    [
        ("exit", ["0 wrong"], 5, "; the program ended with 5"),
        ("abort", [], 134, "; the program was ended by SIGABRT"),
        ("crash", [], 139, "; the program was ended by SIGSEGV"),
    ],
)
def test_the_exit_code_is_the_programs_own(
    cases: Path, emulate: Emulate, case: str, own: list[str], code: int, end: str
) -> None:
    told = emulate(cases, case)
    assert told.code == code
    *said, verdict = told.out
    assert said == own
    assert verdict.startswith("FAIL: 1 launches")
    assert verdict.endswith(" 0 hazards" + end)


@pytest.mark.parametrize(
    ("case", "rule", "error"),
    [
        ("trap", "trap", "cudaErrorLaunchFailure, unspecified launch failure"),
        ("misaligned", "misaligned", "cudaErrorMisalignedAddress, misaligned address"),
        ("illegal", "global-out-of-bounds", "cudaErrorIllegalAddress, an illegal memory access was encountered"),
        ("endless", "livelock", "cudaErrorLaunchTimeout, the launch timed out and was terminated"),
    ],
)
@pytest.mark.slow
def test_a_fault_is_an_error_of_cuda_at_the_next_synchronisation(
    cases: Path, emulate: Emulate, case: str, rule: str, error: str
) -> None:
    told = emulate(cases, case)
    assert told.out[:2] == ["launch: cudaSuccess, no error", f"synchronise: {error}"]
    assert f"launch 1, stumble(int, int*)\nerror: {rule}: " in told.err
    assert told.out[2].endswith("1 hazards; the program ended with 3")
    assert told.code == 1


def test_a_failed_assertion_stands_until_the_device_is_reset(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "assertion")
    error = "cudaErrorAssert, device-side assert triggered"
    assert told.out[:-1] == [
        "launch: cudaSuccess, no error",
        *(f"{what}: {error}" for what in ("synchronise", "and then", "last")),
        "last: cudaSuccess, no error",
        "reset: cudaSuccess, no error",
        "0 wrong",
    ]
    source = Path(__file__).parent / "cases.cu"
    line = next(n for n, text in enumerate(source.read_text().splitlines(), 1) if "assert(n < 5)" in text)
    for thread in (0, 1):
        where = f"{source}:{line}: void insist(int): block: [0,0,0], thread: [{thread},0,0]"
        assert f"{where} Assertion `n < 5` failed.\n" in told.err
    assert told.code == 1


def test_a_hazard_is_told_at_its_cuda_line(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "hazard")
    source = Path(__file__).parent / "cases.cu"
    line = next(n for n, text in enumerate(source.read_text().splitlines(), 1) if "data[0] = 1;" in text)
    assert "launch 1, race(int*)\nerror: race: warp 0 writes 'cudaMalloc 1' at byte 0" in told.err
    assert f"({source}:{line}): st.global" in told.err
    assert "error: uninitialised-global" in told.err  # nobody has written what the other warp reads
    assert told.code == 1


@pytest.mark.parametrize(
    ("how", "races"),
    [
        (0, True),  # nothing between them
        (1, False),  # an event
        (2, False),  # the host waits for the first stream
        (3, True),  # an event of the second stream itself
        (4, False),  # a launch in the default stream
        (5, True),  # the same, and the first stream does not wait for it
        (6, True),  # the host waits for the second stream
        (7, 2),  # a copy behind the first launch, and with each of the two
        (8, False),  # a copy to memory that is not pinned: the host waits for it
        (9, False),  # one stream
    ],
)
def test_launches_of_two_streams_race_unless_something_orders_them(
    how: int, races: int, cases: Path, emulate: Emulate
) -> None:
    told = emulate(cases, f"beside{how}")
    assert told.code == bool(races)
    assert told.err.count("error: ") == races
    if races:
        number = 2 if how != 5 else 3
        assert re.search(
            rf"launch {number}, fill_with\(int\*, int\) in [\w ]+\nerror: stream-race: warp 0 writes 'cudaMalloc 1'",
            told.err,
        )
        first = "a copy of 256 bytes on the device" if how == 7 else "launch 1, fill_with(int*, int)"
        does = "reads" if how == 7 else "writes"
        assert re.search(
            rf"which {re.escape(first)} in [\w ]+ {does}: no event and no synchronisation orders", told.err
        )
        assert told.err.count("PTX line") == 2 + (how == 7), "the place of the other launch too; a copy has none"


@pytest.mark.parametrize(
    ("how", "found"),
    [
        (0, " reads 'cudaMalloc 1' at byte 0, which launch 1, fill_with(int*, int) in"),
        (1, ""),  # an event
        (2, " reads 'cudaMalloc 1' at byte 0, which launch 1, fill_with(int*, int) in"),
        (3, ""),  # the host waits for the launch
        (4, "frees 'cudaMalloc 1' at byte 0, which launch 1, fill_with(int*, int) in stream 1 "),
        (5, ""),  # in the launch's own stream
        (6, "warp 0 writes 'cudaMalloc 1' at byte 0, which a cudaMemset of 256 bytes in the default stream writes"),
        (7, ""),  # the host waits for the default stream
        (
            8,
            " reads 'cudaMalloc 2' at byte 128, which launch 2, fill_with(int*, int)",
        ),
        (9, ""),  # in the launch's own stream
    ],
)
def test_copies_of_other_streams_race_with_launches(how: int, found: str, cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, f"copied{how}")
    assert found in told.err
    assert told.code == bool(found)
    assert told.err.count("error: stream-race") == told.err.count("error: ") == bool(found)


@pytest.mark.parametrize(("case", "hazards"), [("captured0", 1), ("nodes_beside", 1)])
def test_nodes_of_a_graph_that_no_edge_orders_race(cases: Path, emulate: Emulate, case: str, hazards: int) -> None:
    """Their clean twins, captured1 and nodes, are above. Of three launches the first has the finding."""
    told = emulate(cases, case)
    assert told.code == 1
    assert told.err.count("error: stream-race: ") == told.err.count("error: ") == hazards
    assert "launch 2, " in told.err
    assert re.search(r" in (a branch of a graph|the default stream|stream \d+) (writes|reads): no event", told.err)


def test_what_a_capture_does_not_allow_ends_it(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "uncapturable")
    *said, refused, verdict = told.out
    assert [line.split(",")[0] for line in said] == [
        "the default stream: cudaErrorStreamCaptureUnsupported",
        "none begun: cudaErrorIllegalState",
        "allocated: cudaErrorStreamCaptureUnsupported",
        "  state 2",
        "allocated",
        "  state 1",
        "waited for: cudaErrorStreamCaptureUnsupported",
        "  state 2",
        "the legacy stream: cudaErrorStreamCaptureImplicit",
        "  state 2",
        "an event from outside: cudaErrorStreamCaptureIsolation",
        "  state 2",
        "its event: cudaErrorCapturedEvent",
        "  state 2",
        "an allocation in it: cudaErrorNotSupported",
        "  state 2",
    ]
    assert all(line.endswith("ended 901") for line in said if line.startswith("  state 2"))
    assert refused == "refused: cudaMallocAsync in a stream that is captured"
    assert verdict.startswith("INCOMPLETE")
    assert (
        emulate(cases, "captured2").out[0]
        == "ended: cudaErrorStreamCaptureUnjoined, capturing stream has unjoined work"
    )


def test_a_process_that_forks_first_has_a_device_of_its_own(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "forked_first")
    assert told.out[0] == "0 wrong"
    assert "error: race" in told.err
    assert told.out[1].startswith("FAIL: 2 launches")
    assert told.code == 1


def test_what_is_not_modelled_is_refused_by_name(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "refused")
    assert told.err.count("fmha: refused: cudaMallocMipmappedArray\n") == 1
    twice = ["array: cudaErrorNotSupported, operation not supported"] * 2
    assert told.out[:-1] == [*twice, "refused: cudaMallocMipmappedArray, 2 times"]
    assert told.out[-1].startswith("INCOMPLETE: 0 launches")
    assert told.code == 4


def test_a_program_that_ends_within_a_launch(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "killed_in_a_launch")
    assert "error: race" in told.err
    assert "instruction-limit" not in told.err
    assert told.out[0] == "stumble(int, int*): was running when the program ended, and was stopped"
    assert told.out[1].endswith("1 hazards; the program ended with 6")


def test_the_report_as_json_is_alone_on_standard_output(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "hazard", options=("--json", "--arch", "sm_90a", "--profile", "strict"))
    report = json.loads("\n".join(told.out))
    assert report["passed"] is False
    assert [launch["kernel"] for launch in report["launches"]] == ["race(int*)"]
    assert {found["finding"]["rule"] for found in report["findings"]} == {"lane-race", "race", "uninitialised-global"}
    assert report["program"] == {"code": 0, "signal": "", "cut": []}


def test_the_gpu_is_chosen(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "properties", options=("--arch", "sm_90a"))
    assert told.out[0].startswith("1 device: NVIDIA H200 (emulated), sm_90, 132 multiprocessors")


def test_a_script_may_start_the_program(cases: Path, emulate: Emulate, tmp_path: Path) -> None:
    script = tmp_path / "twice.sh"
    script.write_text('#!/bin/sh\n"$1" vector_add && "$1" print\n')
    script.chmod(0o755)
    told = emulate(script, str(cases))
    assert told.out[0] == "0 wrong"
    assert told.out[-1].startswith("NO HAZARD: 2 launches")


def test_without_an_emulator_the_library_says_so(cases: Path) -> None:
    from fmha.emulator.programs.program_run import library

    folder = library().parent
    environment = {k: v for k, v in os.environ.items() if k != "FMHA_PROGRAM"}
    link = cases.parent / "libcudart.so.13"
    link.symlink_to(folder / library().name)
    done = subprocess.run(
        [cases, "vector_add"],
        env=environment | {"LD_LIBRARY_PATH": str(cases.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "run it by: fmha emulate -- PROGRAM" in done.stderr
    assert "cudaErrorInitializationError" in done.stdout
    assert done.returncode == 9


def test_an_error_of_the_machine_itself_is_no_verdict(
    cases: Path, emulate: Emulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program makes of the answers that it has not got is no result: it may end with 0."""

    def broken(machine: object, fields: object) -> object:
        raise RuntimeError("as if the machine were wrong")

    monkeypatch.setitem(OPERATIONS, "launch", broken)
    told = emulate(cases, "vector_add")
    assert told.code == ExitCode.INFRASTRUCTURE
    assert "as if the machine were wrong" in told.err
    assert not any(line.startswith(CLEAN) for line in told.out)


def modelled(told: Told) -> list[tuple[str, float]]:
    return [(made["kernel"], made["modelled"]["cycles"]) for made in json.loads("\n".join(told.out))["launches"]]


def test_the_time_of_launches_is_modelled(cases: Path, emulate: Emulate) -> None:
    whole = emulate(cases, "vector_add", options=("--timing", "whole"))
    assert whole.out[0] == "0 wrong"
    assert whole.out[1] == "modelled, on b200:"
    assert whole.out[3].endswith("latency  add(float const*, float const*, float*, int), 4x1x1 CTAs")
    assert whole.out[4].startswith(CLEAN)
    on_each = {
        arch: modelled(emulate(cases, "vector_add", options=("--json", "--timing", "whole", "--arch", arch)))
        for arch in ("sm_90a", "sm_100a")
    }
    assert on_each["sm_90a"] != on_each["sm_100a"]


def test_a_sampled_launch_is_modelled_and_not_checked(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "hazard", options=("--timing", "sampled"))
    assert told.err == ""
    assert told.out[-1].startswith("MODELLED, NOT CHECKED: 1 launches")
    whole, sampled = (emulate(cases, "many", options=("--json", "--timing", how)) for how in ("whole", "sampled"))
    assert modelled(whole) == modelled(sampled)
    executed = [json.loads("\n".join(t.out))["launches"][0]["stats"]["warp_instructions"] for t in (whole, sampled)]
    assert executed[0] / 40 == executed[1] / 6  # five along x, and the second


def test_how_times_are_kept_is_one_of_two_words(cases: Path, emulate: Emulate) -> None:
    told = emulate(cases, "vector_add", options=("--timing", "partly"))
    assert told.err == "fmha: --timing: 'partly' is not one of whole, sampled\n"
    assert told.code == ExitCode.USAGE
