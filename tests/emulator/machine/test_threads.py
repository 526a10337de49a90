"""Clusters on several threads of the host: the same bytes, findings and counters as on one.

Where clusters touch what others write their order matters, and the launch runs on one thread; `threads` of the stats
says which it was.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator import Device, Report
from fmha.emulator.device import SCHEDULES, Schedule
from tests.emulator.clusterlab import CLUSTER_SYNC, Run, init_barriers, run, wait
from tests.emulator.thirdparty.running import execute

ONE = {"out": np.zeros(1024, np.uint32)}
SLOT = "mul.wide.u32 %d1, %cta, 4; add.u64 %d1, %out, %d1;\n"
HOST = ("thread_seconds", "product_seconds", "seconds", "threads")  # counters that are the host's
# Warps of one CTA race for a word of its shared memory, and each CTA writes an element of its own.
RACE = f"{SLOT} st.shared.u32 [word], %tid; ld.shared.u32 %r1, [word]; bar.sync 0; @%leader st.global.u32 [%d1], %cta;"
ADD_TO_ALL = "ld.global.u32 %r1, [%out]; add.u32 %r1, %r1, 1; st.global.u32 [%out], %r1;"


def told(report: Report) -> list[Any]:
    return [[astuple(f) for f in report.findings], {k: v for k, v in report.stats.items() if not k.startswith(HOST)}]


def both(body: str, arrays: dict[str, NDArray[np.uint32]], **options: Any) -> Run:
    """A run on four threads, once it is found to equal that on one."""
    one, four = (run(body, arrays, threads=n, **options) for n in (1, 4))
    assert told(four.report) == told(one.report)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(four.arrays[name], array)
    return four


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_hazards_within_ctas_are_told_as_on_one_thread(schedule: Schedule, seed: int) -> None:
    done = both(RACE, ONE, grid=100, block=96, schedule=schedule, seed=seed)
    assert done.report.stats["threads"] == 4
    assert done.rules == {"race", "lane-race"}
    assert done.report.findings[0].cta == 0
    np.testing.assert_array_equal(done.arrays["out"][:100], np.arange(100))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["attention_ws_d128", "matmul_tma_cluster", "layer_norm", "spin_lock_sum"])
def test_compiled_kernels_do_the_same(name: str, schedule: Schedule) -> None:
    one, three = (execute(name, Device(seed=3, schedule=schedule, threads=n)) for n in (1, 3))
    assert (three[0].stats["threads"] > 1) == (name != "spin_lock_sum")
    assert told(three[0]) == told(one[0])
    for key, bits in one[1].items():
        np.testing.assert_array_equal(three[1][key], bits)


def test_clusters_stay_together() -> None:
    body = f"""{init_barriers(1)} {SLOT} xor.b32 %r2, %rank, 1; mapa.shared::cluster.u32 %r3, bar, %r2;
    @%leader mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3]; {wait()} @%leader st.global.u32 [%d1], 7;
    {CLUSTER_SYNC}"""
    done = both(body, ONE, grid=40, cluster=2).clean()
    assert done.report.stats["threads"] == 4
    assert done.arrays["out"].sum() == 7 * 40


def test_fewer_clusters_than_threads() -> None:
    assert both(RACE, ONE, grid=3, block=96).report.stats["threads"] == 3
    assert both(RACE, ONE, grid=1, block=96).report.stats["threads"] == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_races_between_ctas_are_found_in_their_order(schedule: Schedule) -> None:
    """Nothing that the attempt on several threads wrote may be left, or the sum would be too large."""
    done = both(ADD_TO_ALL, ONE, grid=50, block=1, schedule=schedule)
    assert done.report.stats["threads"] == 1
    assert done.rules == {"race"}


def test_reading_what_another_cta_writes_is_a_race() -> None:
    body = f"{SLOT} setp.eq.u32 %p1, %cta, 30; @%p1 st.global.u32 [%out], 1; @!%p1 ld.global.u32 %r1, [%out];"
    assert both(body, ONE, grid=60, block=1).rules == {"race"}


def test_bytes_of_one_word_are_different_places() -> None:
    body = "cvt.u64.u32 %d1, %cta; add.u64 %d1, %out, %d1; st.global.u8 [%d1], %cta;"
    done = both(body, ONE, grid=200, block=1).clean()
    assert done.report.stats["threads"] == 4
    np.testing.assert_array_equal(done.arrays["out"].view(np.uint8)[:200], np.arange(200))


def test_atomics_on_a_shared_counter_run_in_order() -> None:
    """Each CTA takes a ticket and writes its own number at it: which gets which depends on the order."""
    body = """atom.global.add.u32 %r1, [%out], 1; add.u32 %r1, %r1, 1; mul.wide.u32 %d1, %r1, 4;
    add.u64 %d1, %out, %d1; st.global.u32 [%d1], %cta;"""
    done = both(body, ONE, grid=100, block=1).clean()
    assert done.report.stats["threads"] == 1
    assert done.arrays["out"][0] == 100


@pytest.mark.parametrize("release", ["st.release.gpu.global.u32", "st.relaxed.gpu.global.u32"])
def test_flags_between_ctas(release: str) -> None:
    """CTA 0 waits for a flag that CTA 3 raises; without the release, what it reads is a race."""
    body = f"""setp.eq.u32 %p1, %cta, 0; setp.eq.u32 %p2, %cta, 3;
    @%p2 st.global.u32 [%out+256], 42; @%p2 {release} [%out+512], 1; @!%p1 bra END;
    SPIN: ld.acquire.gpu.global.u32 %r1, [%out+512]; setp.eq.u32 %p3, %r1, 0; @%p3 bra SPIN;
    ld.global.u32 %r2, [%out+256]; st.global.u32 [%out], %r2; END:"""
    done = both(body, ONE, grid=4, block=1)
    assert done.rules == (set() if "release" in release else {"race"})
    assert done.arrays["out"][0] == 42


def test_clusters_that_cancel_others() -> None:
    body = f"""{init_barriers(1)} mov.u32 %r30, word; mov.u32 %r31, bar; {SLOT} @%leader st.global.u32 [%d1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r30], [%r31]; {wait()}"""
    done = both(body, ONE, grid=10, block=1).clean()
    assert done.report.stats["threads"] == 1
    assert done.arrays["out"].sum() == 5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_fault_ends_the_launch_where_it_does_on_one_thread(schedule: Schedule) -> None:
    body = f"{SLOT} st.global.u32 [%d1], 1; setp.eq.u32 %p1, %cta, 20; @%p1 trap;"
    done = both(body, ONE, grid=40, block=1, schedule=schedule)
    assert "trap" in done.rules
    if schedule != "random":
        assert done.arrays["out"].sum() == 21


def test_a_deadlock_is_told_as_on_one_thread() -> None:
    body = f"{init_barriers(1)} setp.ne.u32 %p1, %cta, 5; @%p1 mbarrier.arrive.shared::cta.b64 _, [bar]; {wait()}"
    done = both(body, ONE, grid=8, block=1)
    assert done.rules == {"deadlock"}
    assert done.report.findings[0].cta == 5


def test_the_instruction_limit_counts_all_ctas() -> None:
    options: dict[str, Any] = {"grid": 100, "block": 1, "max_instructions": 1000}
    assert both(RACE, ONE, **options).rules == {"instruction-limit"}


def test_threads_have_to_be_some() -> None:
    with pytest.raises(ValueError, match="threads is 0"):
        Device(threads=0)
