"""The schedule that searches: it finds what random seeds do not, and says what it tried."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fmha.emulator import Device, Module, Report, load_ptx
from fmha.emulator.search import Search, SearchFn, SearchTrial, search
from tests.emulator.clusterlab import source
from tests.emulator.micro import run_micro

OUT = np.zeros(64, np.uint32)


def launch(body: str, device: Device, grid: int = 1, block: int = 64) -> Report:
    out = device.alloc(OUT.nbytes, "out")
    device.write(out.address, OUT)
    return device.launch(module_of(body), "kernel", grid, block, [out.address])


@cache
def module_of(body: str) -> Module:
    return load_ptx(source(body, {"out": OUT}, {}))


# The writer computes for long, stores to a flag twice in a row, and writes plainly. The reader asks once: what it reads
# then races only if it asks between those two stores, and not before.
RARE = """
setp.eq.u32 %p1, %tid, 0; setp.eq.u32 %p2, %tid, 32;
@!%p1 bra READER;
mov.u32 %r1, 0;
BUSY: add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 400; @%p3 bra BUSY;
st.relaxed.gpu.global.u32 [%out], 1;
st.relaxed.gpu.global.u32 [%out], 2;
st.global.u32 [%out+8], 7;
bra END;
READER: @!%p2 bra END;
ld.relaxed.gpu.global.u32 %r2, [%out];
setp.eq.u32 %p3, %r2, 1;
@%p3 ld.global.u32 %r3, [%out+8];
@%p3 st.global.u32 [%out+12], %r3;
END:
"""


def of(body: str) -> SearchFn:
    return lambda trial: launch(body, trial.device())


def test_it_finds_what_random_seeds_do_not() -> None:
    for seed in range(1000):
        assert launch(RARE, Device(seed=seed, schedule="random")).ok
    found = search(of(RARE), trials=2000)
    assert not found.ok
    ((finding, trial),) = found.found
    assert finding.rule == "race"
    assert 1 < found.interleavings <= found.trials
    again = launch(RARE, trial.device())
    assert [f.rule for f in again.findings] == ["race"]
    assert f"seed {trial.seed}, depth {trial.depth}, steps {trial.steps}" in str(found)


def test_a_race_of_depth_two_is_as_likely_as_the_bound_says() -> None:
    """Of 2 warps and k steps, with one change of priorities: 1 / (2 k)."""
    steps = int(launch(RARE, SearchTrial(0, 1, 1).device()).stats["steps"])
    found = sum(not launch(RARE, SearchTrial(seed, 2, steps).device()).ok for seed in range(2000))
    assert found / 2000 >= 1 / (2 * steps)


@pytest.mark.parametrize("grid", [1, 2])
def test_a_trial_decides_everything(grid: int) -> None:
    for seed in range(20):
        trial = SearchTrial(seed, 3, 100)
        one, two = (launch(RARE, trial.device(), grid) for _ in range(2))
        assert [str(f) for f in one.findings] == [str(f) for f in two.findings]
        for key in ("interleaving", "steps", "warp_instructions"):
            assert one.stats[key] == two.stats[key]


def test_what_does_not_touch_has_one_interleaving() -> None:
    body = "mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %tid; ld.global.u32 %r1, [%d1];"
    done = search(of(body), trials=50)
    assert done.ok
    assert (done.trials, done.interleavings) == (50, 1)


def test_two_atomics_have_two_interleavings() -> None:
    body = "setp.eq.u32 %p1, %tid, 32; or.pred %p1, %p1, %leader; @%p1 red.relaxed.gpu.global.add.u32 [%out], 1;"
    done = search(of(body), trials=100)
    assert done.ok
    assert done.interleavings == 2
    assert "100 runs, 2 distinct interleavings" in str(done)


# A slow reader asks once more after its phase: the barrier has had two by then, and looks as it did.
PARKED = """
@%warp0 bra ARRIVE;
setp.eq.u32 %p2, %warp, 1;
@!%p2 bra END;
{ W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
bra END;
ARRIVE:
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
@%first mbarrier.arrive.shared::cta.b64 _, [bar];
END:
"""


def test_a_wait_may_wake_up_too_late() -> None:
    def trials(rule: str) -> int:
        reports = (run_micro(PARKED, "barrier", seed=seed, schedule="pct", depth=2, steps=40)[0] for seed in range(60))
        return sum(any(f.rule == rule for f in report.findings) for report in reports)

    assert trials("mbarrier-phase-aliasing")
    assert trials("deadlock")


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_it_leaves_right_kernels_alone(depth: int) -> None:
    body = """
    @%first st.shared.b32 [tile], 5;
    @%first mbarrier.arrive.shared::cta.b64 _, [bar];
    { W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; }
    ld.shared.b32 %r1, [tile];
    bar.sync 0;
    @%first st.global.b32 [%out], %r1;
    """
    for seed in range(50):
        report, device, out = run_micro(body, "barrier", seed=seed, schedule="pct", depth=depth, steps=60)
        assert report.ok, "\n".join(map(str, report.findings))
        assert device.read(out.address, 4).view(np.uint32)[0] == 5


def test_a_search_needs_an_end() -> None:
    with pytest.raises(ValueError, match="seconds or trials"):
        search(of(""))
    with pytest.raises(ValueError, match="depth is 0"):
        Device(schedule="pct", depth=0)


def test_an_empty_search_says_so() -> None:
    assert str(Search((), 1, 1, 12)) == "1 run, 1 distinct interleavings of up to 12 steps"
