"""A program under other schedules: the process runs again, and the schedule that fails is named with how to see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from tests.programs.program_rig import PTX_OF, Emulate, built

pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("programs")]

# One try_wait and no loop: under the realistic schedule it suspends until the phase is complete.
ONCE = r"""
#include <cstdint>
#include <cstdio>
__global__ void once(int* out) {
    __shared__ alignas(8) uint64_t barrier;
    __shared__ volatile int data;  // or its only value would be taken for it
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address) : "memory");
    __syncthreads();
    if (threadIdx.x == 32) {
        data = 7;
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address) : "memory");
    }
    if (threadIdx.x == 0) {
        uint32_t done;
        WAIT
        *out = data;
    }
}
int main() {
    int *device, host = 0;
    cudaMalloc(&device, sizeof(int));
    once<<<1, 64>>>(device);
    cudaMemcpy(&host, device, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", host);
    return RESULT;
}
"""
TRY = (
    r'asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"'
    r' : "=r"(done) : "r"(address) : "memory");'
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that tries once, one that tries until it is there, and one that fails by its own word when it is not."""
    texts = {
        "once": (TRY, "0"),
        "loop": (f"do {{ {TRY} }} while (!done);", "0"),
        "told": (f"{TRY} if (!done) data = 0;", "host != 7"),
    }
    folder = tmp_path_factory.mktemp("again")
    made = {}
    for name, (wait, result) in texts.items():
        source = folder / f"{name}.cu"
        source.write_text(ONCE.replace("WAIT", wait).replace("RESULT", result))
        made[name] = built(folder, source, PTX_OF.format("100a"))
    return made


def test_one_schedule_says_that_it_is_one(programs: dict[str, Path], emulate: Emulate) -> None:
    told = emulate(programs["once"])
    assert (told.code, told.out[0]) == (0, "7")
    assert told.out[-1].endswith(
        "(lenient rules, the schedule realistic; --profile strict and --search 30 look further)"
    )


@pytest.mark.parametrize("how", [("--schedules", "8"), ("--search", "60"), ("--search", "60", "--profile", "strict")])
def test_what_one_schedule_does_not_show_another_does(
    programs: dict[str, Path], emulate: Emulate, how: tuple[str, ...]
) -> None:
    told = emulate(programs["once"], options=how)
    assert told.code == ExitCode.GATE_FAILED
    assert told.out.count("7") == 1, "what the program prints is printed once"
    assert told.out[-1].startswith("FAIL under schedule ")
    (again,) = [line for line in told.out if line.startswith("again: ")]
    _, _, _, schedule, _, seed, *_ = again.removeprefix("again: ").split()
    assert emulate(programs["once"], options=("--schedule", schedule, "--seed", seed)).code == ExitCode.GATE_FAILED


def test_a_program_that_checks_itself_is_believed(programs: dict[str, Path], emulate: Emulate) -> None:
    told = emulate(programs["told"], options=("--schedules", "8"))
    assert told.code == ExitCode.GATE_FAILED
    assert "it ended with 1" in told.out


def test_what_is_right_stays_so(programs: dict[str, Path], emulate: Emulate) -> None:
    told = emulate(programs["loop"], options=("--schedules", "5"))
    assert told.code == 0
    assert told.out[-1].endswith("0 hazards (lenient rules, 5 schedules; --profile strict looks further)")


@pytest.mark.parametrize("other", [("--schedule", "early"), ("--json",), ("--timing", "whole")])
def test_options_of_one_run_are_refused_for_several(
    programs: dict[str, Path], emulate: Emulate, other: tuple[str, ...]
) -> None:
    told = emulate(programs["loop"], options=("--schedules", "2", *other))
    assert told.code == ExitCode.USAGE
    assert f"{other[0]} is of one run" in told.err
