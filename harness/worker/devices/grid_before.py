"""The grid that a launch overlaps which is the first of its call: on a GPU somebody's, which has just written what the
call reads, and may still read what it writes. Here it reads and writes the first bytes of all that was uploaded, and
leaves them as they are: who does not wait for it is told of a launch-race."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import Final

from fmha import emulator

BYTES: Final = 2048  # of each buffer, at most: what the first CTAs touch
_MOST: Final = 32  # buffers
_THREADS: Final = 32
_PTX: Final = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry grid_before(.param .align 8 .b8 buffers[{16 * _MOST}], .param .u32 count) {{
    .reg .pred done;
    .reg .b32 lane, word, words, number, many, offset;
    .reg .b64 entry, address, value;
    griddepcontrol.launch_dependents;
    mov.u32 lane, %tid.x;
    ld.param.u32 many, [count];
    mov.u32 number, 0;
    mov.b64 entry, buffers;
buffer:
    setp.ge.u32 done, number, many;
    @done ret;
    ld.param.u64 address, [entry];
    ld.param.u32 words, [entry+8];
    cvt.u64.u32 value, lane;
    mad.lo.u64 address, value, 4, address;
    mov.u32 word, lane;
next:
    setp.ge.u32 done, word, words;
    @done bra behind;
    ld.global.u32 offset, [address];
    st.global.u32 [address], offset;
    add.u64 address, address, {4 * _THREADS};
    add.u32 word, word, {_THREADS};
    bra next;
behind:
    add.u64 entry, entry, 16;
    add.u32 number, number, 1;
    bra buffer;
}}
"""


def run_grid_before(device: emulator.Device, uploaded: Mapping[int, int]) -> None:
    """Runs it over buffers, which have so many bytes by address."""
    sizes = [(address, min(nbytes, BYTES) // 4) for address, nbytes in uploaded.items() if nbytes >= 4][:_MOST]
    table = b"".join(struct.pack("<QII", address, words, 0) for address, words in sizes)
    device.launch(_module(), "grid_before", 1, _THREADS, [table.ljust(16 * _MOST, b"\0"), len(sizes)])


@functools.cache
def _module() -> emulator.Module:
    return emulator.load_ptx(_PTX)
