"""Hazards of wgmma: for each rule the least PTX that breaks it, and the same with the missing step put back."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.device import SCHEDULES, Profile, Schedule
from tests.emulator import matrix_rig as rig
from tests.emulator import wgmma_rig as wg

FENCE = "wgmma.fence.sync.aligned;\n"
COMMIT = "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
D = wg.accumulators(4)
SS = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {D}, %rd1, %rd2, PRED, 1, 1, 0, 0;\n"
FIRST, CHAINED = SS.replace("PRED", "0"), SS.replace("PRED", "1")
RS = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {D}, {{%a0, %a1, %a2, %a3}}, %rd2, 0, 1, 1, 0;\n"
SET_A = "mov.b32 %a0, %tid0; mov.b32 %a1, %tid0; mov.b32 %a2, %tid0; mov.b32 %a3, %tid0;\n"
SET_D = "".join(f"add.u32 %d{k}, %tid0, {k};\n" for k in range(4))
STORE = "mad.wide.u32 %rd5, %tid0, 4, %p_out;\nst.global.b32 [%rd5], %d0;\n"
# A takes 8 KiB, B the KiB behind it.
HEAD = wg.fill(9216) + wg.descriptor("%rd1", 0, 1 << 16 | 64 << 32 | 1 << 62)
HEAD += wg.descriptor("%rd2", 8192, 1 << 16 | 64 << 32 | 1 << 62)


def _rules(
    text: str,
    schedule: Schedule = "realistic",
    threads: int = 128,
    head: str = HEAD,
    profile: Profile = "strict",
) -> list[str]:
    return rig.run(
        head + text,
        {"image": np.zeros(9216, np.uint8), "out": 4 * threads},
        registers=".reg .b32 %r<64>, %d<128>, %a<4>; .reg .b64 %rd<32>; .reg .pred %p<8>; .reg .b32 %e<128>;",
        block=(threads, 1, 1),
        target="sm_90a",
        declarations=wg.EXTERN,
        shared_bytes=16384,
        schedule=schedule,
        profile=profile,
        seed=2,
    ).rules


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("broken", "clean", "rule"),
    [
        # Registers in flight
        (FENCE + FIRST + COMMIT + STORE + WAIT, FENCE + FIRST + COMMIT + WAIT + STORE, "wgmma-register-in-flight"),
        (FENCE + FIRST + COMMIT + SET_D + WAIT, FENCE + FIRST + COMMIT + WAIT + SET_D, "wgmma-register-in-flight"),
        (
            SET_A + FENCE + RS + COMMIT + SET_A + WAIT,
            SET_A + FENCE + RS + COMMIT + WAIT + SET_A,
            "wgmma-register-in-flight",
        ),
        # A wait that leaves one group pending covers the group before it only
        (
            FENCE + FIRST + COMMIT + "wgmma.wait_group.sync.aligned 1;\n" + STORE + WAIT,
            FENCE + FIRST + COMMIT + COMMIT + "wgmma.wait_group.sync.aligned 1;\n" + STORE + WAIT,
            "wgmma-register-in-flight",
        ),
        # An operation that no commit covers is not waited for
        (
            FENCE + FIRST + WAIT + STORE + COMMIT + WAIT,
            FENCE + FIRST + COMMIT + WAIT + STORE,
            "wgmma-register-in-flight",
        ),
        # The fence
        (FIRST + COMMIT + WAIT, FENCE + FIRST + COMMIT + WAIT, "wgmma-missing-fence"),
        (FENCE + SET_D + CHAINED + COMMIT + WAIT, SET_D + FENCE + CHAINED + COMMIT + WAIT, "wgmma-missing-fence"),
        (FENCE + SET_A + RS + COMMIT + WAIT, SET_A + FENCE + RS + COMMIT + WAIT, "wgmma-missing-fence"),
        (
            FENCE + FIRST + COMMIT + WAIT + STORE + FIRST + COMMIT + WAIT,
            FENCE + FIRST + COMMIT + WAIT + STORE + FENCE + FIRST + COMMIT + WAIT,
            "wgmma-missing-fence",
        ),
        # The accumulator was never written
        (FENCE + CHAINED + COMMIT + WAIT, FENCE + FIRST + CHAINED + COMMIT + WAIT, "uninitialised-register"),
    ],
)
def test_registers(broken: str, clean: str, rule: str, schedule: Schedule) -> None:
    assert _rules(broken, schedule) == [rule]
    assert _rules(clean, schedule) == []


def test_released_kernels_set_accumulators_behind_the_fence() -> None:
    """The CuTe DSL's persistent GEMM for Hopper: leniently, one fence since the last wait will do."""
    tile = FENCE + SET_D + CHAINED + CHAINED + COMMIT + WAIT + STORE
    assert _rules(tile + tile) == ["wgmma-missing-fence"]
    assert _rules(tile + tile, profile="lenient") == []
    assert _rules(tile + tile.replace(FENCE, ""), profile="lenient") == ["wgmma-missing-fence"]
    assert _rules(tile.replace(FENCE, ""), profile="lenient") == ["wgmma-missing-fence"]


def test_chained_accumulators_need_no_fence() -> None:
    """Operations of one shape on one accumulator are ordered; another shape has to wait."""
    assert _rules(FENCE + FIRST + CHAINED + COMMIT + CHAINED + COMMIT + WAIT) == []
    other = CHAINED.replace("f32.bf16.bf16", "f16.f16.f16").replace(D, "{%d0, %d1}")
    assert _rules(FENCE + FIRST + other + COMMIT + WAIT) == ["wgmma-register-in-flight"]
    assert _rules(FENCE + FIRST + COMMIT + WAIT + other + COMMIT + WAIT) == []


def test_fragments_of_a_may_serve_twice() -> None:
    second = RS.replace(D, wg.accumulators(4, "%e"))
    assert _rules(SET_A + FENCE + RS + second + COMMIT + WAIT) == []
    as_accumulator = FIRST.replace(D, "{%a0, %a1, %a2, %a3}")
    assert _rules(SET_A + FENCE + RS + as_accumulator + COMMIT + WAIT) == ["wgmma-register-in-flight"]
    from_accumulator = RS.replace("{%a0, %a1, %a2, %a3}", D).replace(f" {D}", " {%e0, %e1, %e2, %e3}", 1)
    assert _rules(FENCE + FIRST + from_accumulator + COMMIT + WAIT) == ["wgmma-register-in-flight"]
    assert _rules(FENCE + FIRST + COMMIT + WAIT + from_accumulator + COMMIT + WAIT) == []


OVERWRITE = "mad.lo.u32 %r1, %tid0, 4, %r60;\nmov.b32 %r2, 0;\nst.shared.b32 [%r1+8192], %r2;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_overwrite_under_mma(schedule: Schedule) -> None:
    issue = FENCE + FIRST + COMMIT
    assert _rules(issue + OVERWRITE + WAIT, schedule) == ["overwrite-under-mma"]
    # B is read for every warp: without the barrier one warp may be done while its neighbour has yet to issue.
    assert _rules(issue + WAIT + "bar.sync 0;\n" + OVERWRITE, schedule) == []


def test_missing_proxy_fence() -> None:
    write = OVERWRITE + "FENCEbar.sync 0;\n"
    tail = FENCE + FIRST + COMMIT + WAIT
    assert _rules(write.replace("FENCE", "") + tail) == ["missing-proxy-fence"]
    assert _rules(write.replace("FENCE", "fence.proxy.async;\n") + tail) == []


def test_writes_through_cp_async_need_the_proxy_fence_too() -> None:
    """Non-bulk copies are of the generic proxy."""
    copy = "mad.lo.u32 %r1, %tid0, 16, %r60;\nmad.wide.u32 %rd6, %tid0, 16, %p_image;\n"
    copy += "cp.async.cg.shared.global [%r1], [%rd6], 16;\ncp.async.wait_all;\nPROXYbar.sync 0;\n"
    tail = FENCE + FIRST + COMMIT + WAIT
    assert _rules(copy.replace("PROXY", "") + tail) == ["missing-proxy-fence"]
    assert _rules(copy.replace("PROXY", "fence.proxy.async;\n") + tail) == []


def test_a_warp_reads_its_own_rows_of_a() -> None:
    """Each warp rewrites 16 rows of A and fences them: its own need no barrier, as released kernels rely on."""
    own = "shr.u32 %r1, %tid0, 5;\nOTHERmad.lo.u32 %r1, %r1, 2048, %r60;\nmad.lo.u32 %r1, %lane0, 4, %r1;\n"
    own += "mov.b32 %r2, 0;\nst.shared.b32 [%r1], %r2;\nfence.proxy.async;\n"
    tail = FENCE + FIRST + COMMIT + WAIT
    assert _rules(own.replace("OTHER", "") + tail) == []
    assert _rules(own.replace("OTHER", "xor.b32 %r1, %r1, 1;\n") + tail) == ["overwrite-under-mma", "race"]


def test_an_exit_with_operations_in_flight() -> None:
    assert _rules(FENCE + FIRST + COMMIT) == ["exit-with-work-in-flight"]


def test_a_partial_warpgroup() -> None:
    assert _rules("wgmma.fence.sync.aligned;\n", threads=96, head="") == ["wgmma-partial-warpgroup"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("twice", [FENCE, COMMIT, WAIT])
def test_warps_of_a_warpgroup_at_different_instructions(twice: str, schedule: Schedule) -> None:
    """Warp 1 takes a copy of an instruction that does the same; two warpgroups may."""
    branch = "shr.u32 %r1, %tid0, WHICH; setp.eq.u32 %p1, %r1, 1; @%p1 bra OTHER;\n"
    choice = f"{branch}{twice} bra JOIN;\nOTHER: {twice} JOIN:\n"
    whole = FENCE + FIRST + COMMIT + WAIT
    assert _rules(choice.replace("WHICH", "5") + whole, schedule) == ["wgmma-sync-divergent"]
    assert _rules(choice.replace("WHICH", "7"), schedule, threads=256, head="") == []


def test_a_warp_that_waits_once_more_is_out_of_step() -> None:
    """The same instruction, another number of times."""
    loop = "mov.b32 %r2, 0;\nshr.u32 %r1, %tid0, 5; min.u32 %r1, %r1, WHICH;\n"
    loop += f"L: {WAIT} add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra L;\n"
    whole = FENCE + FIRST + COMMIT + WAIT
    assert _rules(loop.replace("WHICH", "1") + whole) == ["wgmma-sync-divergent"]
    assert _rules(loop.replace("WHICH", "0") + whole) == []
