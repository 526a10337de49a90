"""Schedules: deterministic under a seed, explored with one call; waivers; what a deadlock's report says."""

import re

import numpy as np
import pytest

from fmha.emulator import Device, Report, Waiver, explore
from fmha.emulator.device import SCHEDULES, Schedule
from fmha.emulator.explore import schedules_of
from tests.emulator.micro import run_micro

BULK_LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"

# Two warps write each other's words: the findings, the counts and the outcome depend on who is first.
RACE = """
setp.eq.u32 %p1, %lane, 0;
mov.b32 %r1, tile;
mov.b32 %r2, 0;
L:
@%p1 st.shared.b32 [%r1], %thread;
add.u32 %r1, %r1, 4;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p2, %r2, 100;
@%p2 bra L;
bar.sync 0;
mov.b32 %r1, tile;
shl.b32 %r2, %thread, 2;
add.u32 %r1, %r1, %r2;
setp.lt.u32 %p3, %thread, 100;
@%p3 ld.shared.b32 %r3, [%r1];
cvt.u64.u32 %d1, %r2;
add.u64 %d1, %d1, %out;
@%p3 st.global.b32 [%d1], %r3;
"""
# Never waits for its copy, which is complete by the end unless completions are late.
LATE = f"""
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
@%first {BULK_LOAD} [tile], [%map, {{%zero, %zero}}], [bar];
mov.b32 %r1, 0;
{{ L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 3000; @%p1 bra L; }}
"""


def outcome(schedule: Schedule, seed: int) -> tuple[list[str], dict[str, float], bytes]:
    report, device, out = run_micro(RACE, schedule=schedule, seed=seed)
    stats = {key: value for key, value in report.stats.items() if not key.endswith("seconds")}
    return [str(f) for f in report.findings], stats, device.read(out.address, 400).tobytes()


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
def test_a_seed_decides_everything(schedule: Schedule) -> None:
    assert outcome(schedule, 7) == outcome(schedule, 7)


def test_seeds_differ() -> None:
    outcomes = [outcome("random", seed) for seed in range(8)]
    assert len({tuple(findings) for findings, _, _ in outcomes}) > 1
    assert len({memory for _, _, memory in outcomes}) > 1


def test_the_plan_of_schedules() -> None:
    assert schedules_of(2) == [("realistic", 0), ("early", 0)]
    assert schedules_of(5) == [("realistic", 0), ("early", 0), ("late", 0), ("random", 1), ("random", 2)]
    with pytest.raises(ValueError, match="0 schedules"):
        schedules_of(0)


def test_exploring_names_the_schedule_that_reproduces() -> None:
    def launch(schedule: Schedule, seed: int) -> Report:
        body = LATE if schedule == "late" else "ret;"
        return run_micro(body, "barrier", schedule=schedule, seed=seed)[0]

    assert launch("realistic", 0).ok
    found = explore(launch, schedules=8)
    assert not found.ok
    assert len(found.runs) == 8
    (explored,) = found.findings
    assert explored.finding.rule == "exit-with-work-in-flight"
    assert explored.schedule == "late"
    again = launch(explored.schedule, explored.seed)
    assert [f.rule for f in again.findings] == [explored.finding.rule]
    assert "reproduced by schedule late" in str(explored)


def test_exploring_merges_what_is_found_twice() -> None:
    found = explore(lambda schedule, seed: run_micro(RACE, schedule=schedule, seed=seed)[0], schedules=6)
    keys = [(e.finding.rule, e.finding.place, e.finding.other) for e in found.findings]
    assert len(keys) == len(set(keys))
    assert {rule for rule, _, _ in keys} == {"race"}


# Waivers

TWO_RACES = """
setp.eq.u32 %p1, %lane, 0;
@%p1 st.shared.b32 [tile], 1;
@%p1 st.shared.b32 [tile+4], 2;
"""


def test_a_waived_finding_stays_and_does_not_fail() -> None:
    report, _, _ = run_micro(TWO_RACES, waivers=[Waiver("race", "both write the same value")])
    assert report.ok
    assert len(report.findings) == 2
    assert all(f.waived == "both write the same value" for f in report.findings)
    assert str(report.findings[0]).startswith("waived: race")
    assert "waived: both write the same value" in str(report.findings[0])


def test_a_waiver_of_a_place_leaves_the_others() -> None:
    report, _, _ = run_micro(TWO_RACES, waivers=[Waiver("race", "harmless", at=r"\[tile\], 1")])
    assert not report.ok
    assert sorted(f.waived or "" for f in report.findings) == ["", "harmless"]


def test_a_waiver_of_another_rule_waives_nothing() -> None:
    report, _, _ = run_micro(TWO_RACES, waivers=[Waiver("tmem-leak", "not here")])
    assert not report.ok
    assert all(f.waived is None for f in report.findings)


@pytest.mark.parametrize(("rule", "reason"), [("no-such-rule", "why"), ("race", " ")])
def test_a_waiver_names_a_rule_and_a_reason(rule: str, reason: str) -> None:
    with pytest.raises(ValueError, match="waiver"):
        Device(waivers=[Waiver(rule, reason)])


# Reports

STUCK = """
@%warp0 bra ZERO;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
ZERO:
bar.sync 3, 128;
"""


def test_a_deadlock_says_where_each_warp_waits_and_for_what() -> None:
    report, _, _ = run_micro(STUCK, "barrier")
    (finding,) = report.findings
    assert finding.rule == "deadlock"
    assert "; 4 waiting" in finding.message
    polling, waiting = (text for _, text in finding.details)  # what is never completed comes first
    assert polling.startswith("CTA 0 warps 1-3 wait for the mbarrier at shared 0x400 ('bar') of CTA 0, parity 0: in")
    assert "1 of 1 arrivals pending" in polling
    assert waiting == "CTA 0 warp 0 waits for barrier 3: 32 of 128 threads arrived"
    for place, _ in finding.details:
        assert place is not None
        assert place.ptx_text.startswith(("bar.sync 3", "mbarrier.try_wait"))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_that_is_not_repeated_runs_out_of_time(schedule: Schedule) -> None:
    """CUTLASS's producers ask whether the next stage is free, then fill this one: with one stage, the same."""
    body = """
    mov.b32 %r1, 0; mov.b32 %r2, 0;
    @!%warp0 bra WAIT;
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
    selp.b32 %r2, 1, 2, %p1;
    @%first mbarrier.arrive.shared::cta.b64 _, [bar];
    @%first st.global.b32 [%out], %r2;
    WAIT:
    { W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
    """
    report, device, out = run_micro(body, "barrier", schedule=schedule)
    assert not report.findings
    assert device.read(out.address, 4).view(np.uint32)[0] == 2  # the wait has failed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@%first st.global.b32 [%out+4100], 0;", "4 bytes past the end of 'out' of 4096 bytes"),
        ("@%first ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%out+4096];", "0 bytes past the end of 'out'"),
        (
            "mov.b64 %d1, 0x17700000000; @%first st.global.b32 [%d1], 0;",
            "0x17700000000: far from every allocation$",
        ),
        ("mov.b64 %d1, 0x20000000400; @%first st.global.b32 [%d1], 0;", "in the window of shared memory, and not"),
        ("@%first st.shared.b32 [tile+16384], 0;", r"CTA 0 has \[0x400, "),
        ("st.local.b32 [scratch+16], 0;", "local byte 16 of 16"),
        ("ld.param.b32 %r1, [map+128];", "parameter byte 192 of 192"),
    ],
)
def test_an_access_out_of_bounds_names_what_it_missed(body: str, message: str) -> None:
    (finding,) = run_micro(body)[0].findings
    assert re.search(message, finding.message)


# Thread 0 completes a phase, and asks whether it is complete: once, or until it is told so. What it was told goes out.
ASKED = """
@!%first bra E;
mbarrier.arrive.shared::cta.b64 _, [bar];
L:
mbarrier.{wait}.parity.shared::cta.b64 %p1, [bar], 0{hint};
{again}
selp.u32 %r1, 1, 0, %p1;
st.global.b32 [%out], %r1;
E:
"""


def told(seed: int, wait: str = "try_wait", again: str = "", hint: str = "", schedule: Schedule = "spurious") -> int:
    body = ASKED.format(wait=wait, again=again, hint=hint)
    report, device, out = run_micro(body, "barrier", block=32, schedule=schedule, seed=seed)
    assert report.ok, report.findings
    return int(device.read(out.address, 4).view(np.uint32)[0])


@pytest.mark.parametrize("hint", ["", ", 1000000"])
def test_a_try_wait_may_fail_though_its_phase_is_complete(hint: str) -> None:
    assert {told(seed, hint=hint) for seed in range(20)} == {0, 1}
    assert [told(seed, hint=hint) for seed in range(20)] == [told(seed, hint=hint) for seed in range(20)]
    assert {told(seed, hint=hint, schedule="realistic") for seed in range(20)} == {1}


def test_who_tries_again_is_told_in_the_end() -> None:
    assert {told(seed, again="@!%p1 bra L;") for seed in range(20)} == {1}


def test_a_test_wait_says_what_is() -> None:
    assert {told(seed, wait="test_wait") for seed in range(20)} == {1}
