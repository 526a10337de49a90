"""Fences beside relaxed operations on mbarriers, and the one-directional ones restricted to shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator import Device, PtxError, load_ptx
from fmha.emulator.device import SCHEDULES
from tests.emulator.clusterlab import CLUSTER_SYNC, run, source

RELEASE = "fence.release.sync_restrict::shared::cta.cluster;"
ACQUIRE = "fence.acquire.sync_restrict::shared::cluster.cluster;"
PROXY_RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
PROXY_ACQUIRE = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"
OUT = {"out": np.zeros(4, np.uint32)}

# Warp 1 writes what thread 0 reads, through an mbarrier whose operations are relaxed.
HANDOVER = f"""
@%leader mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
{CLUSTER_SYNC}
setp.eq.u32 %p1, %tid, 32;
mov.u32 %r1, 7;
@%p1 st.shared::cta.v4.u32 [tile], {{{{%r1, %r1, %r1, %r1}}}};
{{before}}
@%p1 mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [bar];
WAIT:
mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p2, [bar], 0;
@!%p2 bra WAIT;
{{after}}
{{use}}
"""
READ = "@%leader ld.shared::cta.u32 %r2, [tile]; @%leader st.global.u32 [%out], %r2;"
COPY = """
@%leader cp.async.bulk.global.shared::cta.bulk_group [%out], [tile], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (RELEASE, ACQUIRE, set()),
        ("fence.acq_rel.cluster;", "fence.acq_rel.cluster;", set()),
        ("", ACQUIRE, {"race"}),
        (RELEASE, "", {"race"}),
        (ACQUIRE, RELEASE, {"race"}),
    ],
)
def test_fences_around_relaxed_mbarrier_operations(before: str, after: str, rules: set[str], schedule: str) -> None:
    done = run(HANDOVER.format(before=before, after=after, use=READ), OUT, block=64, schedule=schedule)
    assert done.rules == rules
    assert rules or done.arrays["out"][0] == 7


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (PROXY_RELEASE, PROXY_ACQUIRE, set()),
        (PROXY_RELEASE, ACQUIRE, set()),
        (RELEASE, ACQUIRE, {"missing-proxy-fence"}),
        ("fence.proxy.async.shared::cta;", PROXY_ACQUIRE, {"race"}),
    ],
)
def test_fences_of_one_direction_between_proxies(before: str, after: str, rules: set[str], schedule: str) -> None:
    done = run(HANDOVER.format(before=before, after=after, use=COPY), OUT, block=64, schedule=schedule)
    assert done.rules == rules
    assert rules or done.arrays["out"].tolist() == [7] * 4


FULL = "fence.acq_rel.cluster;"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (FULL, FULL, set()),
        (RELEASE, FULL, {"race"}),
        (FULL, ACQUIRE, {"race"}),
        (PROXY_RELEASE, FULL, {"race"}),
        (FULL, PROXY_ACQUIRE, {"race"}),
        (FULL + RELEASE, ACQUIRE + FULL, set()),  # the restricted ones take nothing away
    ],
)
def test_restricted_fences_do_not_order_global_memory(before: str, after: str, rules: set[str], schedule: str) -> None:
    write = "@%p1 st.global.u32 [%out+4], %r1;"
    read = "@%leader ld.global.u32 %r2, [%out+4]; @%leader st.global.u32 [%out], %r2;"
    done = run(HANDOVER.format(before=write + before, after=after, use=read), OUT, block=64, schedule=schedule)
    assert done.rules == rules
    assert rules or done.arrays["out"][:2].tolist() == [7, 7]


def test_spellings() -> None:
    run("fence.proxy.alias; membar.proxy.alias; membar.proxy.async; membar.proxy.async.global;", OUT).clean()
    for text in (
        "fence.acquire.sync_restrict::shared::cta.cluster;",
        "fence.acq_rel.sync_restrict::shared::cluster.cluster;",
        "fence.release.sync_restrict::shared::cta.gpu;",
        "fence.proxy.async::generic.acquire.sync_restrict::shared::cta.cluster;",
    ):
        with pytest.raises(PtxError):
            Device().launch(load_ptx(source(text, {}, {})), "kernel", (1, 1, 1), (32, 1, 1), [])
