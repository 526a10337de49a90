"""What one launch leaves behind for the next: bytes that count as written, and accesses that may still be going on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fmha.emulator import Device, Report, load_ptx
from fmha.emulator.device import PROFILES, Profile

_MODULE = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .b64 out)
{{
.shared .b32 slot;
.reg .b64 %out, %at, %back; .reg .b32 %t, %b, %n, %r<9>; .reg .pred %p<5>;
ld.param.b64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %nctaid.x;
mad.wide.u32 %at, %t, 4, %out; sub.u32 %r0, 63, %t; mad.wide.u32 %back, %r0, 4, %out;
setp.eq.u32 %p0, %t, 0;
{body}
ret;
}}
"""
_TRIGGER, _WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
_READ = "ld.global.b32 %r1, [%back]; bar.sync 0; st.global.b32 [%at], %r1;"


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings}


def launch(device: Device, address: int, body: str, grid: int = 1, block: int = 64, **options: Any) -> set[str]:
    return rules(device.launch(load_ptx(_MODULE.format(body=body)), "k", grid, block, [address], **options))


def in_a_row(*bodies: str, **options: Any) -> list[set[str]]:
    """Each but the first as a programmatic dependent launch."""
    device = Device(**options)
    out = device.alloc(1024, "out", zeroed=True)
    return [launch(device, out.address, body, programmatic=n > 0) for n, body in enumerate(bodies)]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (_TRIGGER + _READ, _READ, {"launch-race"}),
        (_READ + _TRIGGER, _READ, {"launch-race"}),  # triggered behind the results: they may be on their way
        (_READ, _READ, set()),  # never triggered: the launch before is over
        (_TRIGGER + _READ, _WAIT + _READ, set()),
        (_TRIGGER + _READ, f"@%p0 {_WAIT}" + _READ, {"launch-race"}),
        (_TRIGGER + _READ, f"@%p0 {_WAIT} bar.sync 0;" + _READ, set()),
        (_TRIGGER + "ld.global.b32 %r1, [%at];", "st.global.b32 [%at], %t;", {"launch-race"}),
        (_TRIGGER + _READ, _WAIT + "ld.global.nc.b32 %r1, [%at];", set()),
    ],
)
def test_a_dependent_launch_waits_for_what_it_uses(first: str, second: str, found: set[str]) -> None:
    assert in_a_row(first, second) == [set(), found]


@pytest.mark.parametrize(
    ("between", "found"),
    [
        (_WAIT + _TRIGGER, set()),  # the third begins behind the trigger of every CTA, and so behind the first
        (_TRIGGER + _WAIT, {"launch-race"}),
        (f"setp.lt.u32 %p1, %t, 32; @%p1 {_WAIT} bar.sync 0;" + _TRIGGER, set()),
        (_TRIGGER + _WAIT + _TRIGGER, {"launch-race"}),  # a CTA's first trigger is the one
    ],
)
def test_a_launch_begins_behind_what_the_one_before_waited_for(between: str, found: set[str]) -> None:
    assert in_a_row(_TRIGGER + _READ, between, _READ) == [set(), set(), found]


def test_a_wait_covers_what_the_launch_before_has_waited_for() -> None:
    write, waits = _TRIGGER + "st.global.b32 [%at], %t;", _TRIGGER + _WAIT
    assert in_a_row(write, waits, _WAIT + _READ) == [set(), set(), set()]
    assert in_a_row(write, _TRIGGER, _WAIT + _READ) == [set(), set(), {"launch-race"}]


def test_a_launch_of_its_own_comes_after_all_before() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    for _ in range(2):
        assert not launch(device, out.address, _TRIGGER + _READ)


def test_clusters_that_ran_side_by_side_are_remembered() -> None:
    device = Device(threads=2)
    out = device.alloc(8192, "out", zeroed=True)
    body = _TRIGGER + "mad.wide.u32 %at, %b, 256, %at; st.global.b32 [%at], %t;"
    assert not launch(device, out.address, body, grid=2)
    assert launch(device, out.address, "ld.global.b32 %r1, [%at+256];", programmatic=True) == {"launch-race"}


_USED = "ld.global.b32 %r1, [%at]; st.global.b32 [%at], %r1;"


@pytest.mark.parametrize(
    ("body", "strict", "lenient"),
    [
        (_USED, {"uninitialised-global"}, {"uninitialised-global"}),
        ("ld.global.b32 %r1, [%at]; add.u32 %r2, %r1, 1;", {"uninitialised-global"}, set()),
        ("atom.global.add.u32 %r1, [%at], 1;", {"uninitialised-global"}, {"uninitialised-global"}),
        ("red.global.add.u32 [%at], 1;", {"uninitialised-global"}, {"uninitialised-global"}),
        ("atom.global.exch.b32 %r1, [%at], 1;", set(), set()),
        ("st.global.b32 [%at], 1;" + _USED, set(), set()),
    ],
)
def test_memory_that_nobody_has_written(body: str, strict: set[str], lenient: set[str]) -> None:
    for found, profile in ((strict, "strict"), (lenient, "lenient")):
        device: Any = Device(profile=profile)  # type: ignore[arg-type]
        assert launch(device, device.alloc(1024, "out").address, body) == found


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_launch_has_written_counts(threads: int) -> None:
    device = Device(threads=threads)
    out = device.alloc(1024, "out")
    place = "mad.wide.u32 %at, %b, 256, %at;"
    assert not launch(device, out.address, place + "st.global.b32 [%at], %t;", grid=2)
    assert not launch(device, out.address, place + "ld.global.b32 %r1, [%at];", grid=2)
    assert launch(device, out.address, place + "ld.global.b32 %r1, [%at];", grid=3) == {"uninitialised-global"}


def test_the_host_writes_in_pieces() -> None:
    device = Device()
    out = device.alloc(256, "out")
    for at in (128, 0, 64):
        device.write(out.address + at, bytes(64))
    assert not launch(device, out.address, "ld.global.b32 %r1, [%at];", block=32)
    assert launch(device, out.address, "ld.global.b32 %r1, [%at];") == {"uninitialised-global"}
    device.write(out.address + 192, bytes(64))
    assert not launch(device, out.address, "ld.global.b32 %r1, [%at];")


def test_what_nobody_has_written_is_no_number() -> None:
    device = Device()
    assert set(device.read(device.alloc(64).address, 64)) == {0xFF}
    assert set(device.read(device.alloc(64, zeroed=True).address, 64)) == {0}


_HANDS_OVER = """setp.ne.u32 %p1, %b, 0; @%p1 bra READER;
st.global.b32 [%at], %t; {fence} bar.sync 0; @%p0 st.relaxed.gpu.global.b32 [%out+512], 1; bra END;
READER: @!%p0 bra JOIN;
POLL: ld.acquire.gpu.global.b32 %r1, [%out+512]; setp.eq.u32 %p2, %r1, 0; @%p2 bra POLL;
JOIN: bar.sync 0; ld.global.b32 %r2, [%back]; st.global.b32 [%at+256], %r2;
END:"""


@pytest.mark.parametrize("fence", ["fence.sc.gpu;", "fence.acq_rel.gpu;"])
def test_a_flag_behind_a_barrier_releases_what_others_have_fenced_leniently(fence: str) -> None:
    found = {}
    for profile in ("strict", "lenient"):
        device: Any = Device(profile=profile)  # type: ignore[arg-type]
        out = device.alloc(1024, "out", zeroed=True)
        found[profile] = launch(device, out.address, _HANDS_OVER.format(fence=fence), grid=2)
        out = device.alloc(1024, "out", zeroed=True)
        assert launch(device, out.address, _HANDS_OVER.format(fence=""), grid=2) == {"race"}
    assert found == {"strict": {"race"}, "lenient": set()}


_SPIN = """atom.global.add.u32 %r1, [%out], 1;
POLL: ld.relaxed.gpu.global.b32 %r1, [%out]; setp.lt.u32 %p2, %r1, %n; @%p2 bra POLL;"""
_COLUMNS = f"""tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
@!%p0 bra DONE;
{_SPIN}
DONE: bar.warp.sync -1; ld.shared.b32 %r3, [slot]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;"""


@pytest.mark.parametrize(("ctas", "found"), [(148, set()), (150, {"livelock"})])
def test_ctas_that_wait_for_more_tensor_memory_than_there_is(ctas: int, found: set[str]) -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert launch(device, out.address, _COLUMNS, grid=ctas, block=32) == found


def test_a_grid_that_spins_is_told_in_bounded_time() -> None:
    device = Device(max_instructions=40_000_000)
    out = device.alloc(1024, "out", zeroed=True)
    endless = f"@!%p0 bra DONE; {_SPIN.replace('setp.lt', 'setp.le')} DONE:"
    assert launch(device, out.address, endless, grid=150, block=32) == {"livelock"}


_STORE, _LOAD = "st.global.b32 [%at], %t;", "ld.global.b32 %r1, [%at]; @%p0 st.shared.b32 [slot], %r1;"
_COUNT = "atom.global.add.u32 %r1, [{}], 1; @%p0 st.shared.b32 [slot], %r1;"

_SECOND = (
    "{ .reg .f32 %g<3>; mov.f32 %g2, 1.0; atom.global.add.v2.f32 {_, %g1}, [%out], {%g2, %g2};"
    " @%p0 st.shared.f32 [slot], %g1; }"
)


@pytest.mark.parametrize(
    ("bodies", "beside", "found"),
    [
        ((_STORE, _STORE), [[], [1]], [set(), {"stream-race"}]),
        ((_STORE, _LOAD), [[], [1]], [set(), {"stream-race"}]),
        ((_LOAD, _STORE), [[], [1]], [set(), {"stream-race"}]),
        ((_LOAD, _LOAD), [[], [1]], [set(), set()]),
        ((_STORE, _LOAD), [[], []], [set(), set()]),
        # The third is ordered behind the first alone, then behind both.
        ((_STORE, "", _LOAD), [[], [1], [2]], [set(), set(), set()]),
        (("", _STORE, _LOAD), [[], [1], [2]], [set(), set(), {"stream-race"}]),
        (("", _STORE, _LOAD), [[], [1], [1]], [set(), set(), set()]),
        (("", _STORE, _LOAD), [[], [1], None], [set(), set(), set()]),
        ((_COUNT.format("%at"),) * 2, [[], [1]], [set(), {"stream-counter"}]),
        ((_COUNT.format("%at"),) * 2, [[], []], [set(), set()]),
        # Somebody looks at the second of two.
        ((_SECOND,) * 2, [[], [1]], [set(), {"stream-counter"}]),
        # Nobody looks at the count.
        (("atom.global.add.u32 %r1, [%at], 1;",) * 2, [[], [1]], [set(), set()]),
        (("red.global.add.u32 [%at], 1;",) * 2, [[], [1]], [set(), set()]),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_launches_of_several_streams(
    bodies: tuple[str, ...], beside: list[Any], found: list[Any], threads: int
) -> None:
    device = Device(threads=threads)
    out = device.alloc(2048, "out", zeroed=True)
    place = "mad.wide.u32 %at, %b, 256, %at;"
    got = [
        launch(device, out.address, place + body, grid=2, beside=others)
        for body, others in zip(bodies, beside, strict=True)
    ]
    assert got == found


@pytest.mark.parametrize("profile", PROFILES)
def test_a_count_that_two_streams_share_is_a_warning(profile: Profile) -> None:
    device = Device(profile=profile)
    out = device.alloc(256, "out", zeroed=True)
    body = _COUNT.format("%out")
    assert not launch(device, out.address, body, beside=[])
    report = device.launch(load_ptx(_MODULE.format(body=body)), "k", 1, 64, [out.address], beside=[1])
    (finding,) = report.findings
    assert (finding.rule, finding.severity, report.ok) == ("stream-counter", "warning", True)
    assert "to which launch 1, k, of another stream, adds as well" in finding.message


def test_a_launch_is_named_that_another_does_not_wait_for() -> None:
    """Three in a row: the second triggers and does not wait, so the third's wait covers the second alone."""
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert not launch(device, out.address, _TRIGGER + _STORE)
    assert not launch(device, out.address, _TRIGGER, programmatic=True)
    module = load_ptx(_MODULE.format(body=_WAIT + _LOAD))
    (finding,) = device.launch(module, "k", 1, 64, [out.address], programmatic=True).findings
    assert finding.rule == "launch-race"
    assert "which launch 1, k, that may still be running, writes: this kernel waits for launch 2, k" in finding.message
    assert finding.other is not None
    assert "st.global.b32" in finding.other.ptx_text
    assert "belongs into the kernel in between" in finding.remedy


def test_what_the_host_does_in_a_stream_is_held_against_launches() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert not launch(device, out.address, _STORE, beside=[])
    number, found = device.host_work("a copy", [(out.address, 256, False, "reads")], [])
    assert not found
    number, (race,) = device.host_work("a copy", [(out.address, 256, False, "reads")], [1])
    assert race.rule == "stream-race", "that the first copy is behind the launch does not end it for other streams"
    assert not launch(device, out.address, _STORE, beside=[])
    number, (race,) = device.host_work("a copy", [(out.address, 256, False, "reads")], [2])
    assert race.rule == "stream-race"
    assert race.message.startswith("a copy reads 'out' at byte 0, which launch 2, k, of another stream, writes")
    assert race.other is not None
    assert launch(device, out.address, _STORE, beside=[number]) == {"stream-race"}
    assert launch(device, out.address, _LOAD, beside=[number]) == set(), "the copy has read, too"


def test_streams_are_named_where_they_have_names() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    module = load_ptx(_MODULE.format(body=_STORE))
    assert not device.launch(module, "k", 1, 64, [out.address], beside=[], stream="stream 1").findings
    number, (race,) = device.host_work("a copy", [(out.address, 256, False, "reads")], [1], "stream 2")
    told = "a copy in stream 2 reads 'out' at byte 0, which launch 1, k in stream 1 writes: no event and no"
    assert race.message.startswith(told)
    assert race.remedy
    (race,) = device.launch(module, "k", 1, 64, [out.address], beside=[number], stream="stream 1").findings
    assert "which a copy in stream 2 reads: no event" in race.message


@pytest.mark.parametrize("beside", [[1, 2], [1], []])
def test_what_comes_in_between_leaves_a_launch_dependent_on_that_of_its_stream(beside: list[int]) -> None:
    """The second launch is of another stream and lets nothing begin early; the third follows the first."""
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert not launch(device, out.address, _TRIGGER + _STORE, beside=[])
    assert not launch(device, out.address, "", beside=[1])
    copy, found = device.host_work("a copy", [(out.address + 512, 256, True, "writes")], beside)
    assert not found
    others = [2, copy]
    assert launch(device, out.address, _LOAD, programmatic=True, after=1, beside=others) == {"launch-race"}
    assert launch(device, out.address, _WAIT + _LOAD, programmatic=True, after=1, beside=others) == set()


def test_a_copy_behind_a_launch_leaves_the_next_one_dependent() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert not launch(device, out.address, _TRIGGER + _STORE, beside=[])
    device.host_work("a copy", [(out.address + 512, 256, True, "writes")], [1])
    assert launch(device, out.address, _LOAD, programmatic=True) == {"launch-race"}


def test_sources_of_launches_that_are_over_are_given_up() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    for _ in range(5):
        assert not launch(device, out.address, _STORE, beside=[])
    assert len(device._sources) == 1


def test_a_poll_of_local_memory_is_called_that() -> None:
    body = """.local .b32 own; .reg .b64 %own; st.local.b32 [own], 0; mov.u64 %own, own; cvta.local.u64 %own, %own;
    POLL: ld.volatile.b32 %r1, [%own]; setp.eq.b32 %p1, %r1, 0; @%p1 bra POLL;"""
    device = Device(max_instructions=200_000)
    (hang,) = device.launch(load_ptx(_MODULE.format(body=body)), "k", 1, 32, [device.alloc(64).address]).findings
    assert hang.rule == "livelock"
    assert "waits for a value in its own local memory, which holds 0" in hang.details[0][1]


def test_who_polls_is_told_before_those_that_wait_for_it() -> None:
    body = """@!%p0 bra MEET; POLL: ld.relaxed.gpu.global.b32 %r1, [%out]; setp.eq.b32 %p1, %r1, 0; @%p1 bra POLL;
    MEET: bar.sync 0;"""
    device = Device(max_instructions=200_000)
    flag = device.alloc(64, "flag", zeroed=True)
    (hang,) = device.launch(load_ptx(_MODULE.format(body=body)), "k", 1, 64, [flag.address]).findings
    assert hang.rule == "livelock"
    assert hang.place is not None
    assert "bar.sync" not in hang.place.ptx_text
    assert "waits for a value of 'flag' at byte 0 to change, which holds 0" in hang.details[0][1]


def test_memory_that_the_host_has_freed_is_called_that() -> None:
    device = Device()
    gone, out = device.alloc(256, "gone"), device.alloc(1024, "out")
    device.free(gone)
    (fault,) = device.launch(load_ptx(_MODULE.format(body=_LOAD)), "k", 1, 32, [gone.address]).findings
    assert fault.rule == "global-out-of-bounds"
    assert "0 bytes into 'gone' of 256 bytes, which the host has freed" in fault.message
    assert "cudaFreeAsync" in fault.remedy
    assert not device.launch(load_ptx(_MODULE.format(body="")), "k", 1, 32, [out.address]).findings


def test_a_dependent_launch_may_be_beside_others() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    other = "st.global.b32 [%at+512], %t;"
    assert not launch(device, out.address, other, beside=[])
    assert not launch(device, out.address, _TRIGGER + _STORE, beside=[1])
    assert not launch(device, out.address, _WAIT + _LOAD, programmatic=True, beside=[1])
    assert not launch(device, out.address, _TRIGGER + _STORE, beside=[1])
    assert launch(device, out.address, _LOAD, programmatic=True, beside=[1]) == {"launch-race"}
    assert launch(device, out.address, other, beside=[1]) == {"stream-race"}
    assert launch(device, out.address, other, beside=[5]) == set()


def test_memory_that_is_freed_takes_nothing_else_along() -> None:
    device = Device()
    other, out = device.alloc(64, "other"), device.alloc(1024, "out")
    assert not launch(device, out.address, "st.global.b32 [%at], %t;", beside=[])
    device.free(other)
    assert not launch(device, out.address, "ld.global.b32 %r1, [%at];", beside=[])
    assert launch(device, out.address, "st.global.b32 [%at], %t;", beside=[2]) == {"stream-race"}
    device.free(device.alloc(64, "another"))
    assert launch(device, out.address, _LOAD, beside=[3]) == {"stream-race"}


def test_an_event_orders_a_dependent_launch_behind_another_stream() -> None:
    """The second launch of a stream waits for an event of another, whose launch is beside the first."""
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)
    assert not launch(device, out.address, _STORE, beside=[])
    assert not launch(device, out.address, _TRIGGER, beside=[1])
    assert not launch(device, out.address, _LOAD, programmatic=True, after=2, beside=[])
    assert launch(device, out.address, _STORE, programmatic=True, after=2, beside=[1]) == {"stream-race"}


def test_many_copies_of_the_host_do_not_each_keep_a_list_of_all_before() -> None:
    device = Device()
    out = device.alloc(1024, "out", zeroed=True)

    def resident_mib() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    before = resident_mib()
    for _ in range(4000):
        device.host_work("a copy", [(out.address, 4, False, "reads")], [])
    assert resident_mib() - before < 24  # as lists of numbers: 61 or more


def test_a_kernel_parameter_is_not_written_through_a_generic_address() -> None:
    module = load_ptx(_MODULE.format(body="mov.b64 %back, out; cvta.param.u64 %back, %back; @%p0 st.b32 [%back], 1;"))
    device = Device()
    (fault,) = device.launch(module, "k", 1, 32, [device.alloc(64).address]).findings
    assert (fault.rule, fault.message) == ("param-store", "store to a kernel parameter")


def test_what_lies_at_an_address_now_is_told_before_what_was_freed_there() -> None:
    device = Device()
    base = device.reserve(4096)
    device.free(device.back(base, 4096, "gone"))
    device.back(base, 64, "here")
    module = load_ptx(_MODULE.format(body="ld.global.b32 %r1, [%out+64];"))
    (fault,) = device.launch(module, "k", 1, 1, [base]).findings
    assert "0 bytes past the end of 'here'" in fault.message


# A dependent launch under schedules that draw


def _overlapped(first: str, second: str, seed: int, schedule: Any, grid: int = 6) -> list[int]:
    """Two rows of 64 words a CTA: what the first launch writes, and the second makes of it."""
    device = Device(schedule=schedule, seed=seed, checks=False)
    out = device.alloc(8192, "out", zeroed=True)
    place = "mad.wide.u32 %at, %b, 512, %at;"
    for n, body in enumerate((first, second)):
        launch(device, out.address, place + body, grid=grid, programmatic=n > 0)
    return [int(word) for word in device.read(out.address, 512 * grid).view("<u4")]


_MAKES = f"{_TRIGGER} add.u32 %r1, %t, 1; st.global.b32 [%at], %r1;"
_TAKES = "ld.global.b32 %r1, [%at]; add.u32 %r1, %r1, 1000; st.global.b32 [%at+256], %r1;"


@pytest.mark.parametrize("schedule", ["random", "pct"])
def test_what_is_read_before_the_wait_may_be_old(schedule: str) -> None:
    first_words = [_overlapped(_MAKES, _TAKES, seed, schedule)[64::128] for seed in range(8)]
    assert any(1000 in words for words in first_words), "under no seed the old value was read"
    assert any(words == [1001] * 6 for words in first_words), "under no seed all read what the launch before wrote"
    for seed in range(8):
        assert _overlapped(_MAKES, _WAIT + _TAKES, seed, schedule)[64::128] == [1001] * 6
        assert _overlapped(_MAKES.replace(_TRIGGER, ""), _TAKES, seed, schedule)[64::128] == [1001] * 6


def test_what_is_written_before_the_wait_may_be_overwritten() -> None:
    overwrites = "st.global.b32 [%at], 7;"
    left = [_overlapped(_MAKES, overwrites, seed, "random")[0::128] for seed in range(8)]
    assert any(1 in words for words in left)
    assert any(words == [7] * 6 for words in left)
    for seed in range(8):
        assert _overlapped(_MAKES, _WAIT + overwrites, seed, "random")[0::128] == [7] * 6


def test_what_both_launches_count_is_counted() -> None:
    counts = "red.global.add.u32 [%out], 1;"
    for seed in range(8):
        assert _overlapped(_TRIGGER + counts, counts, seed, "random")[0] == 2 * 6 * 64


def test_what_is_counted_behind_the_trigger_may_come_later() -> None:
    """As nvcc writes atomicAdd whose result nobody reads. What the second launch has cleared meanwhile is added to."""
    counts, clears = "atom.global.add.u32 %r1, [%out], 1;", "@%p0 st.global.b32 [%out], 0;"
    sums = {_overlapped(_TRIGGER + counts, clears, seed, "random")[0] for seed in range(8)}
    assert sums == {0, 6 * 64}
    assert {_overlapped(_TRIGGER + counts, _WAIT + clears, seed, "random")[0] for seed in range(8)} == {0}
    looks = "ld.global.b32 %r1, [%out]; st.global.b32 [%at+256], %r1;"
    early = [_overlapped(_TRIGGER + counts, looks, seed, "random")[64] for seed in range(8)]
    assert any(count < 6 * 64 for count in early)
    assert 6 * 64 in early


def test_a_store_of_what_was_there_before_the_count_is_a_race() -> None:
    """Leniently, to store what is there is none; but what the launch before has written may be undone."""
    for seed in range(8):
        device = Device(schedule="random", seed=seed, profile="lenient")
        out = device.alloc(1024, "out", zeroed=True)
        assert not launch(device, out.address, _TRIGGER + "red.global.add.u32 [%out], 1;", grid=6)
        assert launch(device, out.address, "@%p0 st.global.b32 [%out], 0;", programmatic=True) == {"launch-race"}


def test_what_a_bulk_copy_adds_behind_the_trigger_may_come_later() -> None:
    adds = f"""{_TRIGGER} .shared .align 16 .b32 four[4]; mov.b32 %r2, four; st.shared.b32 [four], 1;
    st.shared.b32 [four+4], 1; st.shared.b32 [four+8], 1; st.shared.b32 [four+12], 1; fence.proxy.async;
    @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r2], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    clears = "@%p0 st.global.b32 [%out], 0;"
    assert {_overlapped(adds, clears, seed, "random", grid=1)[0] for seed in range(8)} == {0, 1}


@pytest.mark.parametrize("second", ["", _WAIT])
def test_no_two_launches_draw_the_same_ticket(second: str) -> None:
    """What the first one has drawn behind its trigger, it has drawn before the second draws."""
    draws = "@%p0 atom.global.add.u32 %r1, [%out+4], 1; @%p0 st.global.b32 [%at+{}], %r1;"
    for seed in range(8):
        words = _overlapped(_TRIGGER + draws.format(8), second + draws.format(264), seed, "random")
        assert sorted(words[2::128] + words[66::128]) == list(range(12))


def test_a_launch_that_changes_too_many_places_does_not_overlap() -> None:
    scattered = "mad.wide.u32 %at, %b, 16384, %at; mad.wide.u32 %at, %t, 12, %at; mov.b32 %r1, 0x10001;"
    makes = f"{_TRIGGER} {scattered} st.global.v4.b32 [%at], {{%r1, %r1, %r1, %r1}};"  # eight places
    for ctas, read in ((2, {0, 0x10001}), (33, {0x10001})):
        looks = f"ld.global.b32 %r1, [%out]; st.global.b32 [%out+{16384 * ctas}], %r1;"
        found = set()
        for seed in range(6):
            device = Device(schedule="random", seed=seed, checks=False)
            out = device.alloc(16384 * ctas + 4, "out", zeroed=True)
            launch(device, out.address, makes, grid=ctas, block=1024)
            launch(device, out.address, looks, block=1, programmatic=True)
            found.add(int(device.read(out.address + 16384 * ctas, 4).view("<u4")[0]))
        assert found == read


def test_ctas_that_need_one_another_behind_the_trigger_go_on() -> None:
    meets = f"""{_TRIGGER} @!%p0 bra DONE; atom.add.release.gpu.global.u32 %r1, [%out+4], 1;
    POLL: ld.acquire.gpu.global.b32 %r1, [%out+4]; setp.lt.u32 %p2, %r1, %n; @%p2 bra POLL; DONE: bar.sync 0;"""
    early = f"""@!%p0 bra DONE; atom.add.release.gpu.global.u32 %r1, [%out+4], 1; setp.ne.u32 %p3, %b, 5; @%p3 bra LAST;
    POLL: ld.acquire.gpu.global.b32 %r1, [%out+4]; setp.lt.u32 %p2, %r1, %n; @%p2 bra POLL;
    LAST: {_TRIGGER} DONE: bar.sync 0;"""
    for seed in range(6):
        for body in (meets, early):
            assert _overlapped(body, _WAIT, seed, "random")[1] == 6


def test_who_polls_with_a_barrier_in_each_round_is_waited_for() -> None:
    """CTA 1 triggers and then sets a flag; CTA 0 goes on in every round of its wait, so that it is never idle."""
    body = f"""setp.ne.u32 %p1, %b, 0; @%p1 bra SETS;
    POLL: ld.acquire.gpu.global.b32 %r1, [%out+8]; setp.ne.u32 %p2, %r1, 0; bar.red.popc.u32 %r2, 0, %p2;
    setp.eq.u32 %p3, %r2, 0; @%p3 bra POLL; {_TRIGGER} bra DONE;
    SETS: {_TRIGGER} @%p0 st.release.gpu.global.b32 [%out+8], 1; DONE: bar.sync 0;"""
    for seed in range(8):
        device = Device(schedule="random", seed=seed, max_instructions=300_000)
        out = device.alloc(1024, "out", zeroed=True)
        assert "instruction-limit" not in launch(device, out.address, body, grid=2)
