"""The timing model: what comes from memory, and what L2 delivers once, where many CTAs read the same."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest

from fmha import emulator
from fmha.emulator.timing.architecture import Constant, architecture
from fmha.emulator.timing.reuse import AllocationReads, from_memory, kept, readers_at_once, turns_of
from fmha.emulator.timing.shape import at_once, sampled
from tests.emulator.test_timing import BULK_LOADS, H200, kernel, without_code

GPU = architecture("h200")
BOX = 8192
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1+{}], {}, [%r4];\n"
REGIONS, REGION, WAVES = 66, 120 * BOX, 4
PAIRS = BULK_LOADS.replace(
    "mul.lo.u32 %r1, %r1, CTA;", "shr.u32 %r1, %r1, 1;\nrem.u32 %r1, %r1, 66;\nmul.lo.u32 %r1, %r1, SIZE;"
)


@pytest.fixture(scope="module")
def pairs():
    """Two CTAs next to each other read the same, 66 such pairs are there at once, and each of four waves reads all:
    65 MB, which is a little more than L2 holds."""
    body = PAIRS.replace("SIZE", str(REGION)).replace("BYTES", str(REGION))
    body = body.replace("LOADS", "".join(LOAD.format(BOX * k, BOX) for k in range(REGION // BOX)))
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    data = device.alloc(REGIONS * REGION, "data", zeroed=True)
    report = device.launch(kernel(body), "k", WAVES * 132, 1, [data.address], 200 << 10)
    assert report.timing is not None
    return report.timing, data.address


def test_what_ctas_read_first_says_who_reads_the_same(pairs):
    timing, address = pairs
    first = timing._recorder.first_reads
    assert sorted(first) == list(range(132))
    assert [first[cta][address] for cta in range(132)] == [address + cta // 2 * REGION for cta in range(132)]
    assert readers_at_once(first, address) == 2


def test_a_cta_that_is_only_looked_at_ends_once_it_has_read(pairs):
    timing, _ = pairs
    recorded = {c["ordinal"]: c["instructions"] for c in timing._recorder.clusters}
    assert set(recorded) == {*sampled(WAVES * 132), 1}
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    out = device.alloc(64 << 20, "out", zeroed=True)
    body = "ld.param.u64 %rd1, [out];\nld.global.u32 %r1, [%rd1];\n" + "add.u32 %r1, %r1, 1;\n" * 4000
    report = device.launch(kernel(body, ".reg .u64 %rd<2>; .reg .b32 %r<2>;"), "k", 132, 32, [out.address])
    assert report.stats["warp_instructions"] < 7 * 4002 + 126 * 600


def test_what_a_cluster_reads_first_is_what_its_first_cta_reads():
    """Though its second one is ahead."""
    body = (
        "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd2, %r1, 4096;\nadd.s64 %rd1, %rd1, %rd2;\n"
    )
    body += (
        "mov.u32 %r2, %cluster_ctarank;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra reads;\n" + "add.u32 %r1, %r1, 1;\n" * 2000
    )
    body += "reads:\nld.global.u32 %r1, [%rd1];"
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    out = device.alloc(64 << 20, "out", zeroed=True)
    module = kernel(body, ".reg .u64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>;")
    timing = device.launch(module, "k", (264, 1, 1), 32, [out.address], 0, (2, 1, 1)).timing
    assert timing is not None
    first = {cta: read[out.address] for cta, read in timing._recorder.first_reads.items()}
    assert first == {cta: out.address + 4096 * cta for cta in range(0, 264, 2)}


def test_while_all_are_together_memory_gives_each_byte_once_a_turn(pairs):
    timing, _ = pairs
    cold, pair = 1 / (2 * WAVES), 0.5
    assert timing.together.from_hbm == pytest.approx(cold / WAVES + (1 - 1 / WAVES) * 0.5)
    assert timing.together.from_l2 == pair


def test_who_lags_finds_in_l2_what_those_ahead_have_read_and_catches_up(pairs):
    """Half of a turn is in reach, so that in each turn memory still gives each byte once, and not to both of a pair."""
    timing, _ = pairs
    assert timing.apart.from_hbm == timing.together.from_hbm


def with_room_for(timing, address: int, l2: float):
    """The same launch on a GPU with an L2 of so many bytes."""
    other = copy.copy(timing)
    other.architecture = dataclasses.replace(GPU, l2_capacity=Constant(l2, "", ""))
    nbytes = REGIONS * REGION
    other.together, other.apart = other._shares(
        {address: (stream := AllocationReads(2 * WAVES * nbytes, nbytes, 2))}, [stream]
    )
    return other


def test_who_is_not_in_reach_reads_memory_for_himself(pairs):
    """Of an L2 of a quarter of that size each partition keeps an eighth of a turn, and few find one another."""
    nbytes = REGIONS * REGION
    small = with_room_for(*pairs, nbytes / 4)
    keeps = kept([AllocationReads(2 * WAVES * nbytes, nbytes, 2)], WAVES, nbytes / 8)
    assert 0.05 < keeps < 0.2
    assert small.apart.from_hbm == pytest.approx(1 / 8 / 4 + 0.75 * math.exp(-2 * keeps))
    slow, quick = small.modelled(), pairs[0].modelled()
    assert slow.from_hbm == small.apart.from_hbm
    # Memory's rate is one of its own clock.
    least = 2 * WAVES * nbytes * small.apart.from_hbm / H200["hbm_bytes"] / small.architecture.clock_mhz.value
    assert slow.seconds * 1e6 > least > 1.4 * quick.seconds * 1e6


def test_what_memory_gives_again_l2_delivers_to_each_by_himself(pairs):
    timing, _ = pairs
    again = 1 - 1 / 8 / timing.apart.from_hbm
    assert timing.apart.from_l2 == pytest.approx(0.25 * 0.5 + 0.75 * (again + (1 - again) * 0.5))


def test_who_waits_for_products_goes_at_the_pace_of_all_and_stays_with_them(pairs):
    """Memory and L2 that keep up are nothing that anybody waits for."""
    small = with_room_for(*pairs, REGIONS * REGION / 4)
    assert small.modelled({"hbm_bytes": 1e9, "l2_bytes": 1e9, "port_bytes": 1e9}).from_hbm == small.together.from_hbm
    assert (
        small.replay(0).cycles
        == small.replay(0, share=small.apart).cycles
        > small.replay(0, share=small.together).cycles
    )


def test_what_fits_is_read_from_memory_once(pairs):
    large = with_room_for(*pairs, 10 * REGIONS * REGION)
    assert large.together.from_hbm == 1 / 8
    assert large.apart is None


HALF = """.reg .u64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<2>;
.shared .align 128 .b8 tile[8192]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [all];
mov.u32 %r1, %ctaid.x; mov.u32 %r3, tile; mov.u32 %r4, bar;
rem.u32 %r1, %r1, 132; mul.lo.u32 %r1, %r1, 131072; cvt.u64.u32 %rd3, %r1; add.s64 %rd1, %rd1, %rd3;
mbarrier.init.shared::cta.b64 [%r4], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 262144;
LOADS
poll: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra poll;"""


def half_in_common(waves: int):
    """Of the second launch of a kernel whose CTAs read 128 KiB of their own and 128 KiB that all read; 17 MB in all."""
    loads = "".join(LOAD.replace("%rd1", f"%rd{1 + k % 2}").format(BOX * (k // 2), BOX) for k in range(32))
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    own, common = device.alloc(132 << 17, "own", zeroed=True), device.alloc(1 << 17, "all", zeroed=True)
    module = kernel(HALF.replace("LOADS", loads), "", ".param .u64 own, .param .u64 all")
    warm, timing = (
        device.launch(module, "k", 132 * waves, 1, [own.address, common.address], 200 << 10).timing for _ in range(2)
    )
    assert warm is not None
    assert timing is not None
    return timing


def test_only_the_two_sms_next_to_each_other_stay_together():
    """In the first turn L2 delivers once to 16 SMs what all read, later to two."""
    first, later = half_in_common(1), half_in_common(8)
    assert len(first._recorder.first_reads) == 132
    assert first.together.from_l2 == pytest.approx(0.5 + 0.5 / 16)
    assert later.together.from_l2 == pytest.approx(0.5 + 0.5 * (1 / 8 / 16 + 7 / 8 / 2))
    nbytes = 8 * 262144 * 132
    cycles = later.modelled(without_code()).cycles
    assert cycles > nbytes * 0.72 / H200["l2_bytes"] > 1.2 * nbytes / 132 / H200["port_bytes"]


BIG = """.reg .u64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<2>;
.shared .align 128 .b8 tile[40960]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [out]; mov.u32 %r3, tile; mov.u32 %r4, bar;
mbarrier.init.shared::cta.b64 [%r4], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], BYTES;
LOADS
poll: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra poll;"""


def test_a_box_does_not_wait_for_room_for_all_of_it():
    """Boxes of 40 KiB, of which one alone fits into what may be in flight, come as fast as the port takes them."""
    n, size = 16, 40960
    assert size < H200["bytes_in_flight"] < 2 * size
    device = emulator.Device(timing="h200", checks=False)
    out = device.alloc(size, "out", zeroed=True)
    module = kernel(BIG.replace("LOADS", LOAD.format(0, size) * n).replace("BYTES", str(n * size)), "")
    warm, timing = (device.launch(module, "k", 1, 1, [out.address]).timing for _ in range(2))
    assert warm is not None
    assert timing is not None
    assert timing.modelled(without_code()).cycles == pytest.approx(n * size / H200["port_bytes"], rel=0.15)


def test_l2_keeps_what_fits_and_of_the_rest_what_is_read_again_soon():
    fits = AllocationReads(asked=8e6, known=1e6, together=8)
    assert kept([fits], 1, room=2e6) == 1
    once, often = (
        AllocationReads(asked=1e8, known=1e8, together=1),
        AllocationReads(asked=6.4e7, known=1e6, together=64),
    )
    keeps = kept([once, often], 1, room=5e6)
    assert from_memory(once, keeps) == 1
    assert from_memory(often, keeps) < 0.1
    keeps = kept([once], 1, room=1e7)  # one reader, at a place that is drawn
    assert -math.expm1(-keeps) == pytest.approx(0.1)


def test_l2_is_filled_with_what_was_read_since():
    """In the time that L2 keeps a byte CTAs go on to other bytes, the more the longer it is."""
    t = 0.25
    passed = 2.5e7 + 7.5e7 * t / 4  # bytes of a turn, and of a fourth of the three others
    places = 3 * math.exp(-3 * t)  # of three
    room = passed * -math.expm1(-places * t)
    assert kept([AllocationReads(asked=3e8, known=1e8, together=3)], 4, room) == pytest.approx(t)
    assert kept([AllocationReads(asked=3e8, known=1e8, together=3)], 4, room=1.05e8) == 4


def test_many_that_read_the_same_come_together_and_few_do_not():
    """Of a byte's readers those who are not in reach go alone. What L2 keeps grows as the others catch up, so that many
    come together whole where of a few most stay alone."""
    known, room = 1e8, 3.2e7
    few, many = (AllocationReads(asked=10 * n * known, known=known, together=n) for n in (1.5, 11))
    assert from_memory(few, kept([few], 10, room)) > 0.9 / 1.5
    keeps = kept([many], 10, room)
    assert from_memory(many, keeps) == 1 / 11
    assert keeps == pytest.approx(-math.log1p(-room / known), rel=0.2), "as for one that reads"


def test_what_is_kept_for_a_turn_is_found_in_the_next():
    stream = AllocationReads(asked=8e7, known=1e7, together=2)
    assert from_memory(stream, 0.99) == 0.5
    assert from_memory(stream, 1.01) == pytest.approx(math.exp(-2.02))
    assert from_memory(stream, 1.01, together=True) == 0
    assert from_memory(stream, 0.01, together=True) == 0.5
    assert from_memory(AllocationReads(asked=0, known=0, together=1), 0.5) == 1


def test_turns_are_of_waves_or_of_what_is_read_again():
    once, often = (
        AllocationReads(asked=1e8, known=1e8, together=1),
        AllocationReads(asked=6.4e7, known=1e6, together=64),
    )
    assert turns_of([once, often], waves=0.5) == 1
    assert turns_of([once, often], waves=3) == 3
    assert turns_of([AllocationReads(asked=1e6, known=1e6, together=8)], waves=0.5) == 1, "one, at least"
    assert turns_of([AllocationReads(asked=8e6, known=1e6, together=2)], waves=1) == 4, (
        "a persistent kernel, of one wave"
    )
    assert turns_of([AllocationReads(asked=0, known=0, together=1)], waves=1) == 1


def test_who_reads_nothing_of_an_allocation_is_none_of_its_readers():
    first = {0: {"k": 0, "q": 0}, 1: {"k": 0, "q": 64}, 2: {"k": 512, "q": 128}, 3: {"q": 192}, 4: {"k": 0}}
    assert readers_at_once(first, "k") == 2
    assert readers_at_once(first, "q") == 1
    assert readers_at_once(first, "v") == 1


def test_the_clusters_that_a_gpu_begins_with():
    assert at_once((4, 2, 2), (2, 1, 1), 5) == [0, 2, 4, 6, 8]
    assert at_once((4, 4, 1), (2, 2, 1), 132) == [0, 2, 8, 10]
