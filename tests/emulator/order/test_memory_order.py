"""What orders accesses of different CTAs: fence.sc and its order, release and acquire patterns, and their scopes."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.device import SCHEDULES
from tests.emulator.clusterlab import run
from tests.emulator.machine.test_grid import by_cta

OUT = {"out": np.zeros(256, np.uint32)}

# The reduction of the CUDA programming guide and of PyTorch: every thread of every CTA stores its part; the CTA that
# counts last reads all of them.
REDUCTION = """
mad.lo.u32 %r1, %cta, 64, %tid; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out;
add.u32 %r2, %r1, 1; st.global.u32 [%d1+64], %r2;
{before}
bar.sync 0;
@%leader atom.{count}.global.add.u32 %r3, [%out], 1;
@%leader st.shared.u32 [word], %r3;
bar.sync 0;
ld.shared.u32 %r4, [word]; setp.ne.u32 %p1, %r4, 1; @%p1 bra END;
{after}
mul.wide.u32 %d2, %tid, 4; add.u64 %d2, %d2, %out;
ld.global.u32 %r5, [%d2+64]; ld.global.u32 %r6, [%d2+320];
add.u32 %r5, %r5, %r6; st.global.u32 [%d2+576], %r5;
END:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("before", "count", "after", "clean"),
    [
        ("membar.gl;", "relaxed.gpu", "membar.gl;", True),
        ("fence.sc.gpu;", "relaxed.gpu", "fence.sc.sys;", True),
        ("membar.gl;", "acq_rel.gpu", "", True),  # the counter's order goes through the barriers by itself
        ("", "relaxed.gpu", "membar.gl;", False),
        ("membar.gl;", "relaxed.gpu", "", False),
        ("membar.cta;", "relaxed.gpu", "membar.gl;", False),
        ("membar.gl;", "relaxed.gpu", "membar.cta;", False),
        ("membar.gl;", "relaxed.cta", "membar.gl;", False),
        # Thread 0's release pattern begins at its fence, which another warp's store does not precede.
        ("fence.acq_rel.gpu;", "relaxed.gpu", "fence.acq_rel.gpu;", False),
    ],
)
def test_fences_of_all_threads_around_one_threads_counter(
    before: str, count: str, after: str, clean: bool, schedule: str
) -> None:
    body = REDUCTION.format(before=before, count=count, after=after)
    done = run(body, OUT, grid=2, block=64, schedule=schedule, seed=3)
    assert done.rules == (set() if clean else {"race"})
    if clean:
        np.testing.assert_array_equal(done.arrays["out"][144:208], 2 * np.arange(64) + 66)


def handover(write: str, read: str) -> str:
    """CTA 0 hands a word of its warp 1 to warp 1 of CTA 1: barrier, flag, barrier."""
    return by_cta(
        f"setp.eq.u32 %p2, %tid, 32; @%p2 st.global.u32 [%out+64], 7; bar.sync 0; @!%leader bra END; {write}",
        f"@!%leader bra WAITED; POLL: {read} setp.eq.u32 %p1, %r1, 0; @%p1 bra POLL; WAITED: bar.sync 0;"
        "setp.eq.u32 %p2, %tid, 32; @%p2 ld.global.u32 %r2, [%out+64]; @%p2 st.global.u32 [%out+128], %r2;",
    )


WRITES = {
    "release": "st.release.gpu.global.u32 [%out], 1;",
    "semaphore": "red.release.gpu.global.add.u32 [%out], 1;",
    "fence and relaxed": "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%out], 1;",
    "fence and volatile": "membar.gl; st.volatile.global.u32 [%out], 1;",
    "fence and counter": "membar.gl; atom.global.add.u32 %r9, [%out], 1;",
}
READS = {
    "acquire": "ld.acquire.gpu.global.u32 %r1, [%out];",
    "semaphore": "ld.global.acquire.gpu.b32 %r1, [%out];",
    "relaxed and fence": "ld.relaxed.gpu.global.u32 %r1, [%out]; fence.acq_rel.gpu;",
    "volatile and fence": "ld.volatile.global.u32 %r1, [%out]; membar.gl;",
    "swap and fence": "atom.global.cas.b32 %r1, [%out], 1, 1; membar.gl;",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_flag_hands_on_what_a_barrier_brought(write: str, read: str) -> None:
    for schedule in ("realistic", "random"):
        done = run(handover(write, read), OUT, grid=2, block=64, schedule=schedule).clean()
        assert done.arrays["out"][32] == 7


def narrowed(text: str) -> str:
    return text.replace(".gpu", ".cta").replace("membar.gl", "membar.cta")


@pytest.mark.parametrize("kind", WRITES)
def test_a_release_of_the_ctas_scope_reaches_no_other_cta(kind: str) -> None:
    done = run(handover(narrowed(WRITES[kind]), READS["acquire"]), OUT, grid=2, block=64)
    assert done.rules == {"race"}
    assert "'out' at byte 64" in "".join(f.message for f in done.report.findings)


@pytest.mark.parametrize("kind", READS)
def test_an_acquire_of_the_ctas_scope_sees_no_other_cta(kind: str) -> None:
    done = run(handover(WRITES["release"], narrowed(READS[kind])), OUT, grid=2, block=64)
    assert done.rules == {"race"}
    assert "'out' at byte 64" in "".join(f.message for f in done.report.findings)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_ctas_scope_is_enough_within_it(write: str, read: str) -> None:
    """Warp 1 polls for what warp 0 has stored, in global memory."""
    for write_here, read_here in ((narrowed(write), narrowed(read)), (write, narrowed(read)), (narrowed(write), read)):
        body = f"""setp.ge.u32 %p2, %tid, 32; @%p2 bra READER;
        @%leader st.global.u32 [%out+64], 7; @!%leader bra END; {write_here} bra END;
        READER: {read_here} setp.eq.u32 %p1, %r1, 0; @%p1 bra READER; ld.global.u32 %r2, [%out+64];
        END:"""
        run(body, OUT, block=64).clean()


@pytest.mark.parametrize(
    "operation", ["atom.relaxed{}.global.add.u32 %r1, [%out], 1;", "red{}.global.max.u32 [%out], 9;"]
)
def test_atomics_of_the_ctas_scope_are_none_to_others(operation: str) -> None:
    assert run(operation.format(".cta"), OUT, grid=2).rules == {"race"}
    run(operation.format(".cta"), OUT, block=64).clean()
    run(operation.format(".gpu"), OUT, grid=2).clean()


def test_what_the_message_says_of_scopes() -> None:
    done = run("red.cta.global.add.u32 [%out], 1;", OUT, grid=2)
    assert "leaves the other's CTA out" in done.report.findings[0].message


def test_an_acquire_does_not_undo_what_ordered_the_lanes() -> None:
    """The lanes of a warp that bar.warp.sync has ordered stay so when the warp acquires something later."""
    body = """mov.u32 %r9, tile; shl.b32 %r8, %tid, 2; add.u32 %r9, %r9, %r8; st.shared.u32 [%r9], %tid;
    bar.warp.sync -1; @%leader atom.acq_rel.cta.global.add.u32 %r1, [%out], 1;
    xor.b32 %r8, %r8, 4; mov.u32 %r7, tile; add.u32 %r7, %r7, %r8; ld.shared.u32 %r6, [%r7];"""
    run(body, OUT).clean()
    assert run(body.replace("bar.warp.sync -1;", ""), OUT).rules == {"lane-race"}


@pytest.mark.parametrize("profile", ["strict", "lenient"])
@pytest.mark.parametrize("load", ["ld.global.nc.u32 %r1, [%out+{}];", "ldu.u32 %r1, [%out+{}];"])
def test_non_coherent_loads(profile: str, load: str) -> None:
    assert run(f"@%leader st.global.u32 [%out], 1; bar.sync 0; {load.format(0)}", OUT, profile=profile).rules == {
        "non-coherent-load"
    }
    run(f"@%leader st.global.u32 [%out], 1; bar.sync 0; {load.format(4)}", OUT, profile=profile).clean()
    run(f"{load.format(0)} bar.sync 0; @%leader st.global.u32 [%out+4], 1;", OUT, profile=profile).clean()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("clear", "found"),
    [
        ("st.global.u32 [%out], 0;", {"race"}),
        ("st.relaxed.gpu.global.u32 [%out], 0;", set()),
        ("", set()),
    ],
)
def test_an_atomic_does_not_hide_the_plain_store_before_it(clear: str, found: set[str], schedule: str) -> None:
    """CTA 0 clears a counter and counts, CTA 1 counts: whoever finds the atomic alone would call it right."""
    count = "atom.global.add.u32 %r1, [%out], 1;"
    body = f"@!%leader bra END; setp.eq.u32 %p1, %cta, 0; @%p1 {clear or 'nop;'} {count} END:".replace("@%p1 nop;", "")
    assert run(body, OUT, grid=2, block=32, schedule=schedule).rules == found


# What CTA 0 does to a flag, and how CTA 1's leader sees it.
SETS = {
    "red": "red.relaxed.gpu.global.add.u32 [%out], 1;",
    "fence and red": "fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%out], 1;",
    "store": "st.relaxed.gpu.global.u32 [%out], 1;",
    "volatile store": "st.volatile.global.u32 [%out], 1;",
}
SEES = {
    "relaxed": "ld.relaxed.gpu.global.u32 %r1, [%out];",
    "acquire": "ld.acquire.gpu.global.u32 %r1, [%out];",
    "volatile": "ld.volatile.global.u32 %r1, [%out];",
}
POLL = "@!%leader bra END; POLL: {} setp.eq.u32 %p1, %r1, 0; @%p1 bra POLL; "


@pytest.mark.parametrize(
    "then", ["st.global.u32 [%out], 5;", "ld.global.u32 %r2, [%out]; st.global.u32 [%out+8], %r2;"]
)
@pytest.mark.parametrize("see", SEES.values(), ids=SEES)
@pytest.mark.parametrize("put", SETS.values(), ids=SETS)
def test_a_write_comes_before_what_follows_a_strong_read_of_it(put: str, see: str, then: str) -> None:
    """As Marlin resets a lock: what was observed comes first in causality order, relaxed or not (PTX ISA 8.9.5)."""
    both = by_cta(f"@!%leader bra END; {put}", POLL.format(see) + then)
    for schedule in ("realistic", "random"):
        for profile in ("strict", "lenient"):
            run(both, OUT, grid=2, schedule=schedule, profile=profile).clean()


@pytest.mark.parametrize(
    ("put", "see"),
    [
        ("st.global.u32 [%out], 1;", SEES["acquire"]),  # a weak store
        (SETS["red"], "ld.global.u32 %r1, [%out];"),  # a weak load
        ("red.relaxed.cta.global.add.u32 [%out], 1;", SEES["acquire"]),
        (SETS["red"], "ld.relaxed.cta.global.u32 %r1, [%out];"),
    ],
)
def test_only_morally_strong_accesses_observe(put: str, see: str) -> None:
    both = by_cta(f"@!%leader bra END; {put}", POLL.format(see) + "st.global.u32 [%out], 5;")
    assert run(both, OUT, grid=2).rules == {"race"}


def test_what_was_observed_is_one_place() -> None:
    """A relaxed read orders the flag that it has seen, and nothing that was written before."""
    put = f"@!%leader bra END; st.global.u32 [%out+64], 7; {SETS['red']}"
    see = POLL.format(SEES["relaxed"]) + "ld.global.u32 %r2, [%out+64]; st.global.u32 [%out+128], %r2;"
    done = run(by_cta(put, see), OUT, grid=2)
    assert done.rules == {"race"}
    assert "'out' at byte 64" in done.report.findings[0].message


@pytest.mark.parametrize(("barrier", "found"), [("bar.sync 0;", set()), ("", {"race"})])
def test_an_observation_reaches_whom_the_reader_synchronises_with(barrier: str, found: set[str]) -> None:
    """Warp 1 of the reading CTA resets the flag."""
    see = f"""@!%leader bra WAITED; POLL: {SEES["relaxed"]} setp.eq.u32 %p1, %r1, 0; @%p1 bra POLL; WAITED: {barrier}
    setp.eq.u32 %p2, %tid, 32; @%p2 st.global.u32 [%out], 5;"""
    assert run(by_cta(f"@!%leader bra END; {SETS['red']}", see), OUT, grid=2, block=64).rules == found


@pytest.mark.parametrize("again", ["bar.warp.sync -1; ", "ld.global.u32 %r3, [%out]; bar.sync 0; "])
def test_a_weak_read_does_not_undo_an_observation(again: str) -> None:
    see = POLL.replace("@!%leader bra END; ", "").format(SEES["acquire"]) + again + "@%leader st.global.u32 [%out], 5;"
    run(by_cta(f"@!%leader bra END; {SETS['store']}", see), OUT, grid=2).clean()
