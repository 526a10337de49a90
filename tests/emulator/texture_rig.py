"""A kernel of one texture or surface instruction, a thread each, and what the threads were given and have got."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import Device, Report, load_ptx

WORDS = 4  # that a thread gets, and that it is given

_HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 object, .param .u64 given, .param .u64 out)
{ .reg .b64 %t, %g, %o, %at, %l<4>; .reg .b32 %i, %r<8>; .reg .f32 %f<8>; .reg .b16 %h<8>; .reg .pred %p;
ld.param.u64 %t, [object]; ld.param.u64 %g, [given]; ld.param.u64 %o, [out];
mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 16; add.s64 %g, %g, %at; add.s64 %o, %o, %at;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%g];
mov.b32 %f0, %r0; mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;
mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0;
"""
_TAIL = "st.global.v4.b32 [%o], {%r4, %r5, %r6, %r7}; ret; }\n"


def run(device: Device, body: str, handle: int, given: NDArray[Any]) -> tuple[Report, NDArray[np.uint32]]:
    """`body` in a thread for each row of `given`, up to four words: %r0 to %r3, and %f0 to %f3 by their bits. It leaves
    a row of the result in %r4 to %r7. %t has the handle."""
    rows = np.zeros((len(given), WORDS), np.uint32)
    rows[:, : given.shape[1]] = given.view(np.uint32)
    source, out = device.alloc(rows.nbytes, "given"), device.alloc(rows.nbytes, "out", zeroed=True)
    device.write(source.address, rows)
    arguments = [handle, source.address, out.address]
    report = device.launch(load_ptx(_HEAD + body + "\n" + _TAIL), "k", 1, len(rows), arguments)
    return report, device.read(out.address, rows.nbytes).view(np.uint32).reshape(-1, WORDS)


def filled(device: Device, data: NDArray[Any]) -> int:
    """The address of a copy of `data` on the device."""
    address = device.alloc(data.nbytes, "image").address
    device.write(address, data)
    return address
