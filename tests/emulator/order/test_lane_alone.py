"""What a part of a warp fences, releases and acquires is its own. Every mistake has a clean twin."""

from __future__ import annotations

import pytest

from fmha.emulator import Device, load_ptx
from tests.emulator.micro import run_micro

# Warp 0 writes a tile's first words, a word a lane, one thread stores them with a bulk copy.
WRITE = """
  .reg .b32 %mine;
  mov.b32 %mine, tile;
  shl.b32 %r1, %lane, 2;
  add.u32 %mine, %mine, %r1;
  setp.eq.u32 %p1, %lane, 0;
  setp.lt.u32 %p2, %lane, 16;
  @!%warp0 bra DONE;
  st.shared.b32 [%mine], %lane;
"""
COPY = """
  @!%p1 bra DONE;
  cp.async.bulk.global.shared::cta.bulk_group [%out], [tile], 128;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
DONE:
"""
# Warp 1 waits for the mbarrier and reads a word that lane 9 of warp 0 wrote.
READ = """
  bra DONE;
OTHER:
  setp.eq.u32 %p3, %warp, 1;
  @!%p3 bra DONE;
W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
  @!%p4 bra W;
  ld.shared.b32 %r2, [tile+36];
DONE:
"""
FENCE = "fence.proxy.async.shared::cta;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [bar];"


def rules(body: str, **options) -> set[str]:
    report, _, _ = run_micro(body, "barrier", **options)
    return {f.rule for f in report.findings}


@pytest.mark.parametrize(
    ("fence", "found"),
    [
        (f"@%p1 {FENCE} bar.warp.sync -1;", {"lane-alone"}),
        (f"@%p2 {FENCE} bar.warp.sync -1;", {"lane-alone"}),
        (f"{FENCE} bar.warp.sync -1;", set()),
        (f"@%p2 {FENCE} @!%p2 {FENCE} bar.warp.sync -1;", set()),
        (f"@%p2 bra A; {FENCE} bra B; A: {FENCE} B: bar.warp.sync -1;", set()),
        (f"bar.warp.sync -1; @%p1 {FENCE}", set()),
        (f"selp.b32 %r3, 0xffff, 0xffff0000, %p2; bar.warp.sync %r3; @%p1 {FENCE} bar.warp.sync -1;", {"lane-alone"}),
    ],
)
def test_a_proxy_fence_is_that_of_the_lanes_that_execute_it(fence, found):
    assert rules(WRITE + fence + COPY) == found
    assert rules(WRITE + fence + COPY, profile="lenient") == set()


@pytest.mark.parametrize(
    ("arrive", "found"),
    [
        (f"@%p1 {ARRIVE}", {"lane-alone"}),
        (f"bar.warp.sync -1; @%p1 {ARRIVE}", set()),
        (f"selp.b32 %r3, 0xffff, 0xffff0000, %p2; bar.warp.sync %r3; @%p1 {ARRIVE}", set()),
        (f"@%p1 st.shared.b32 [tile+256], 1; @%p1 {ARRIVE}", {"lane-alone"}),
    ],
)
def test_an_arrival_releases_what_its_lane_did(arrive, found):
    body = WRITE.replace("DONE", "OTHER") + arrive + READ
    assert rules(body) == found
    assert rules(body, profile="lenient") == set()


def test_what_the_arriving_lane_wrote_itself_is_released():
    body = WRITE.replace("DONE", "OTHER") + f"@%p1 st.shared.b32 [tile+256], 1; @%p1 {ARRIVE}" + READ
    assert rules(body.replace("[tile+36]", "[tile+256]")) == set()


# Each thread writes a row of the operand, of 128 bytes under a swizzle. The MMA reads 32 of each: the first row that it
# reads is that of a lane that has fenced.
ROWS = """
  .reg .b32 %mine; .reg .b64 %rows;
  mov.b32 %mine, tile;
  cvt.u64.u32 %rows, %mine;
  shr.u64 %rows, %rows, 4;
  or.b64 %rows, %rows, 0x4000404000010000;
  shl.b32 %r1, %thread, 7;
  add.u32 %mine, %mine, %r1;
  setp.eq.u32 %p1, %lane, 0;
  setp.lt.u32 %p2, %lane, 16;
  st.shared.v4.b32 [%mine], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+16], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+32], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+48], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+64], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+80], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+96], {%zero, %zero, %zero, %zero};
  st.shared.v4.b32 [%mine+112], {%zero, %zero, %zero, %zero};
"""
MULTIPLY = """
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%first tcgen05.mma.cta_group::1.kind::f16 [%tm], %rows, %desc, %idesc, %off;
  @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
  { W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0; @!%p4 bra W; }
"""


@pytest.mark.parametrize(
    ("fence", "found"),
    [
        (FENCE, set()),
        (f"@%p1 {FENCE}", {"lane-alone"}),
        (f"@%p2 {FENCE}", {"lane-alone"}),
        (f"@%p2 {FENCE} @!%p2 {FENCE}", set()),
        (f"bar.warp.sync -1; @%p1 {FENCE}", set()),
    ],
)
def test_a_lane_fences_its_row_of_an_operand_alone(fence, found):
    body = ROWS + fence + MULTIPLY
    report, _, _ = run_micro(body, "tensor")
    assert {f.rule for f in report.findings} == found
    assert {f.rule for f in run_micro(body, "tensor", profile="lenient")[0].findings} == set()


# Warp 0 arrives for its words; of warp 1 only lane 0 waits.
@pytest.mark.parametrize(
    ("wait", "found"),
    [
        ("@!%p1 bra READ;", {"lane-alone"}),
        ("@!%p1 bra MEET;", set()),
        ("", set()),
        ("@%p2 bra FIRST;", set()),
    ],
)
def test_a_wait_is_that_of_the_lanes_that_execute_it(wait, found):
    body = f"""{WRITE.replace("DONE", "OTHER")}
  bar.warp.sync -1;
  @%p1 {ARRIVE}
  bra DONE;
OTHER:
  setp.eq.u32 %p3, %warp, 1;
  @!%p3 bra DONE;
  {wait}
W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
  @!%p4 bra W;
  bra MEET;
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p4, [bar], 0;
  @!%p4 bra FIRST;
MEET: bar.warp.sync -1;
READ: ld.shared.b32 %r2, [%mine];
DONE:
"""
    if "READ" in wait:
        body = body.replace("MEET: bar.warp.sync -1;", "MEET:")
    assert rules(body) == found
    assert rules(body, profile="lenient") == set()


# Warp 0 tells warp 1 by a word that one lane of it stores behind a fence; warp 1 reads what lane 9 wrote.
TOLD = """
  @%first st.shared.b32 [tile+256], 0;
  bar.sync 0;
"""
HEAR = """
  bra DONE;
OTHER:
  setp.eq.u32 %p3, %warp, 1;
  @!%p3 bra DONE;
W: ld.relaxed.cta.shared.b32 %r2, [tile+256];
  setp.eq.u32 %p4, %r2, 0;
  @%p4 bra W;
  fence.acq_rel.cta;
  ld.shared.b32 %r2, [tile+36];
DONE:
"""
NINTH = "setp.eq.u32 %p1, %lane, 9;"
TELL = "@%p1 st.relaxed.cta.shared.b32 [tile+256], 1;"


@pytest.mark.parametrize("fence", ["fence.acq_rel.cta;", "fence.acq_rel.gpu;", "membar.cta;", "membar.gl;"])
@pytest.mark.parametrize("tell", [TELL, "@%p1 red.relaxed.cta.shared.add.u32 [tile+256], 1;"])
def test_a_write_hands_on_what_its_own_lane_has_fenced(fence, tell):
    def found(handover: str) -> set[str]:
        body = TOLD + WRITE.replace("DONE", "OTHER") + handover + HEAR
        assert rules(body, profile="lenient") == set()
        return rules(body)

    assert found(fence + tell) == {"lane-alone"}
    assert found(
        f"{fence} setp.lt.u32 %p3, %lane, 8; selp.b32 %r3, 0xff, 0xffffff00, %p3; bar.warp.sync %r3;" + tell
    ) == {"lane-alone"}
    assert found(f"bar.warp.sync -1; {fence}" + tell) == set()
    assert found(f"{fence} bar.warp.sync -1; {fence}" + tell) == set()
    assert found(NINTH + fence + tell) == set()


def test_a_sequential_fence_hands_on_to_a_lane_that_has_met_it():
    told = TOLD + WRITE.replace("DONE", "OTHER") + "membar.gl;"
    tell, hear = (t.replace(".cta", ".gpu") for t in (TELL, HEAR.replace("fence.acq_rel.cta", "fence.sc.gpu")))
    assert rules(told + tell + hear) == {"lane-alone"}
    assert rules(told + "bar.warp.sync -1;" + tell + hear) == set()


def test_of_another_cluster_a_lane_alone_is_a_warning(repository):
    """Which lane wrote these bytes nobody knows any longer: it may be the one that released."""
    module = load_ptx(repository / "tests/emulator/catalogue/grids/release_alone.ptx")
    device = Device(profile="strict")
    out, given = device.alloc(4096, "out", zeroed=True), device.alloc(4096, "in", zeroed=True)
    report = device.launch(module, "mistake", 2, 32, [out.address, given.address])
    assert [(f.rule, f.severity) for f in report.findings] == [("lane-alone", "warning")]
    assert report.ok
