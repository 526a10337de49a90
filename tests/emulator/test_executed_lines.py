"""Which lines a launch has executed."""

from __future__ import annotations

import pytest

from fmha.emulator import Device, load_ptx

# Line 10 is CTA 1's alone, line 13 nobody's. Lines 9 and 12 are of call.h, called in a.cu:7 and a.cu:8.
SOURCE = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry kernel() {
.reg .pred %p<2>; .reg .b32 %r<4>;
.loc 1 5 0
mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 1; setp.eq.u32 %p1, %r0, 9;
.loc 2 3 0, function_name $name, inlined_at 1 7 0
mov.u32 %r1, 1;
@%p0 mov.u32 %r2, 1;
.loc 2 4 0, function_name $name, inlined_at 1 8 0
@!%p1 bra END;
mov.u32 %r3, 1;
END: ret;
}
.visible .entry other() { ret; }
.file 1 "kernel/a.cu"
.file 2 "kernel/call.h"
.section .debug_str { $name: .b8 102, 0 }
"""


def _ptx(device: Device, grid: int, threads: int = 32) -> dict[int, bool]:
    module = load_ptx(SOURCE)
    device.launch(module, "kernel", grid, threads, [])
    return device.coverage(module)["kernel"].ptx


@pytest.mark.parametrize("threads", [1, 2])
def test_lines_of_ptx(threads: int) -> None:
    assert _ptx(Device(watch=True, threads=threads), 1) == {7: True, 9: True, 10: False, 12: True, 13: False, 14: True}
    assert _ptx(Device(watch=True, threads=threads), 2)[10]


def test_launches_of_a_device_add_up() -> None:
    device, module = Device(watch=True), load_ptx(SOURCE)
    device.launch(module, "kernel", 2, 32, [])
    device.launch(module, "kernel", 1, 32, [])
    assert device.coverage(module)["kernel"].ptx[10]


def test_lines_of_source_count_for_what_was_inlined_in_them() -> None:
    device, module = Device(watch=True), load_ptx(SOURCE)
    device.launch(module, "kernel", 1, 32, [])
    source = device.coverage(module)["kernel"].source
    a, call = "kernel/a.cu", "kernel/call.h"
    assert source == {(a, 5): True, (call, 3): True, (a, 7): True, (call, 4): True, (a, 8): True}


def test_an_entry_that_was_not_launched_has_lines_too() -> None:
    device, module = Device(watch=True), load_ptx(SOURCE)
    assert device.coverage(module)["other"].ptx == {16: False}


def test_a_device_that_does_not_watch_knows_nothing() -> None:
    assert not any(_ptx(Device(), 2).values())
