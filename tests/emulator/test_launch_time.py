"""The timing model: what a grid of several waves takes, its tail, and what L2 has for it."""

from __future__ import annotations

import pytest

from fmha import emulator
from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import Modelled, uneven
from fmha.emulator.timing.sharing import lasting
from tests.emulator.timing_rig import BULK_LOADS, H200, ONE_AN_SM, apart, cycles, kernel, loaded, timed, without_code


def test_a_wave_and_its_tail():
    gpu, body = architecture("h200"), apart("ex2.approx.ftz.f32", 256)
    grids = (1, gpu.multiprocessors, gpu.multiprocessors + 1)
    one, whole, tail = (cycles(body, ONE_AN_SM, grid=n, block=512) for n in grids)
    assert one == whole
    report, _ = timed(kernel(body), block=512)
    assert tail == one + report.timing.modelled(without_code()).cycles  # the second on an SM finds its code there


def test_the_last_cta_that_draws_is_at_work_longer_than_the_mean() -> None:
    assert uneven([3.0] * 8, 4) == pytest.approx(1)
    assert uneven([3.0] * 9, 4) == pytest.approx(9 / (27 / 4))
    assert uneven([1.0, 5.0, 1.0, 1.0, 2.0], 2) == pytest.approx(1)


def test_the_last_clusters_of_a_launch_have_for_themselves_what_others_leave() -> None:
    full = [10.0, 10.0, 10.0, 40.0]
    alone = [10.0, 10.0, 10.0, 20.0]
    assert lasting(full, [(2, full), (1, full)]) == pytest.approx(50)  # three in turn at one place, then the longest
    # Both of the first end at 10. Of the next two the shorter ends at 20, a quarter of the longer is done by then, and
    # the rest takes three quarters of what it takes alone.
    assert lasting(full, [(2, full), (1, alone)]) == pytest.approx(20 + 0.75 * 20)
    cold = [15.0, 10.0, 10.0, 40.0]  # the first finds its code missing, and the longest takes its place
    assert lasting(cold, [(2, full), (1, full)]) == pytest.approx(55)
    assert lasting([15.0], [(1, [10.0])]) == pytest.approx(15)


def test_what_neighbours_read_together_l2_delivers_once():
    """So that 132 SMs that read the same get what a port gives, and those that read their own what L2 does."""
    nbytes = 32 * 8192
    together, apart = loaded(0).cycles, loaded(8192).cycles
    assert together == pytest.approx(nbytes / H200["port_bytes"], rel=0.3)
    assert apart == pytest.approx(132 * nbytes / H200["l2_bytes"], rel=0.3)


def of_its_own(ctas: int, launches: int = 1) -> Modelled:
    """CTAs of which an SM holds one, each with 32 KB of its own from memory; the last of so many launches."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16384, [%r4];\n"
    body = BULK_LOADS.replace("CTA", "32768").replace("BYTES", "32768")
    module = kernel(body.replace("LOADS", load + "add.s64 %rd1, %rd1, 16384;\n" + load), directives=ONE_AN_SM)
    device = emulator.Device(timing="h200", checks=False, sampled=True)
    data = device.alloc(32768 * ctas, "data", zeroed=True)
    for _ in range(launches):
        timing = device.launch(module, "k", ctas, 1, [data.address]).timing
    assert timing is not None
    return timing.modelled(without_code())


def test_every_wave_of_a_launch_finds_in_l2_what_the_launch_before_left_there():
    assert [of_its_own(ctas, launches=2).from_hbm for ctas in (132, 264, 528)] == [0, 0, 0]
    assert of_its_own(264).from_hbm == 1


def test_what_a_launch_writes_is_later_in_l2_than_what_it_reads():
    """Of 70 MiB that it touches L2 has room for 60: the next one finds there what it has written."""
    copy = "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [from]; ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;"
    module = kernel(copy, ".reg .b64 %rd<3>; .reg .b32 %r<2>;", params=".param .u64 out, .param .u64 from")
    for turn in (1, -1):  # whatever the order of their addresses
        device = emulator.Device(timing="h200", checks=False)
        written, read = [device.alloc(nbytes << 20, "data") for nbytes in (30, 40)[::turn]][::turn]
        first, second = (
            device.launch(module, "k", 1, 1, [to.address, of.address]).timing
            for to, of in ((written, read), (device.alloc(4, "out"), written))
        )
        assert (first.modelled().from_hbm, second.modelled().from_hbm) == (1, 0)


def test_the_last_clusters_of_a_grid_of_equal_ones_have_memory_for_themselves():
    whole, tail, few = (of_its_own(ctas).cycles for ctas in (132, 144, 12))
    assert tail - whole == pytest.approx(few, rel=0.01)
    assert few < 0.6 * whole


def test_the_last_clusters_of_a_grid_have_sms_for_themselves():
    """Where an SM holds two CTAs that its pipes bound, and there are fewer left than SMs."""
    body = apart("ex2.approx.ftz.f32", 256)
    two_an_sm = ".maxntid 512\n.minnctapersm 2\n"
    one, two, tail = (cycles(body, two_an_sm, grid=n, block=512, sampled=True) for n in (132, 264, 264 + 132))
    assert tail == pytest.approx(one + two, rel=0.02)
    assert one < 0.6 * two
    whole = cycles(body, two_an_sm, grid=264 + 133, block=512, sampled=True)
    assert whole == pytest.approx(2 * two, rel=0.02)
