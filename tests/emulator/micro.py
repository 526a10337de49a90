"""Micro-kernels: a PTX body of a few lines, run with the usual surroundings.

A body may use, without declaring them:

    registers   %p0-7, %h0-3, %r0-31, %d0-15, %f0-7; %thread, %warp, %lane; %first (thread 0), %warp0 (predicates);
                %zero (0), %off (false)
    parameters  out: %out, a buffer of 4096 bytes in global memory; map: %map, the generic address of a tensor map of
                that buffer as one box of 64 x 32 bf16, no swizzle
    shared      bar: four mbarriers; slot: one word; tile: 16 KiB, the last of the CTA's memory
    local       scratch: 16 bytes

With setup "barrier" every mbarrier is initialised with a count of 1 and visible. With "tensor" also: `tile` holds an
operand of zeros (128 x 16, K-major, no swizzle) for %desc, %idesc is M = 128, N = 16, bf16; %tm is the address of 64
columns of tensor memory, %quarter that of the warp's lanes in it; they are given back at the end.
"""

from __future__ import annotations

from typing import Any

from fmha.emulator import Buffer, Device, Module, Report, encode_tiled, load_ptx

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 8 .b64 bar[4];
.shared .align 4 .b32 slot;
.shared .align 1024 .b8 tile[16384];
.visible .entry kernel(.param .u64 out, .param .align 64 .b8 map[128])
{
.local .align 4 .b8 scratch[16];
.reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .f32 %f<8>;
.reg .b32 %thread, %warp, %lane, %zero, %tm, %quarter, %idesc; .reg .b64 %out, %map, %desc;
.reg .pred %first, %warp0, %off;
mov.u32 %thread, %tid.x;
shr.u32 %warp, %thread, 5;
mov.u32 %lane, %laneid;
setp.eq.u32 %first, %thread, 0;
setp.eq.u32 %warp0, %warp, 0;
setp.ne.u32 %off, 0, 0;
mov.b32 %zero, 0;
ld.param.b64 %out, [out];
mov.b64 %map, map;
cvta.param.u64 %map, %map;
"""
_BARRIER = """
@%first mbarrier.init.shared::cta.b64 [bar], 1;
@%first mbarrier.init.shared::cta.b64 [bar+8], 1;
@%first mbarrier.init.shared::cta.b64 [bar+16], 1;
@%first mbarrier.init.shared::cta.b64 [bar+24], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
_TENSOR = """
.reg .b32 %at;
@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
mov.b32 %at, tile;
shl.b32 %quarter, %thread, 5;
add.u32 %at, %at, %quarter;
st.shared.v4.b32 [%at], {%zero, %zero, %zero, %zero};
st.shared.v4.b32 [%at+16], {%zero, %zero, %zero, %zero};
fence.proxy.async.shared::cta;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.b32 %tm, [slot];
shl.b32 %quarter, %warp, 21;
add.u32 %quarter, %quarter, %tm;
mov.b32 %at, tile;
shr.u32 %at, %at, 4;
cvt.u64.u32 %desc, %at;
or.b64 %desc, %desc, 0x400800800000;
mov.b32 %idesc, 0x8040490;
"""
_TENSOR_END = """
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
@%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 64;
"""
_SETUPS = {"none": ("", ""), "barrier": (_BARRIER, ""), "tensor": (_BARRIER + _TENSOR, _TENSOR_END)}


def micro_ptx(body: str, setup: str = "none") -> str:
    begin, end = _SETUPS[setup]
    return f"{_HEAD}{begin}{body}\n{end}ret;\n}}\n"


def run_micro(
    body: str, setup: str = "none", block: int = 128, grid: int = 1, **device_options: Any
) -> tuple[Report, Device, Buffer]:
    """Runs a body; returns the report, the device and the `out` buffer (zeros until the body writes)."""
    return launch_micro(load_ptx(micro_ptx(body, setup)), block, grid, **device_options)


def launch_micro(
    module: Module, block: int = 128, grid: int = 1, **device_options: Any
) -> tuple[Report, Device, Buffer]:
    """The same for the module that a body has become."""
    device = Device(**device_options)
    out = device.alloc(4096, "out", zeroed=True)
    tensor_map = encode_tiled(
        dtype="bf16", address=out.address, global_dim=(64, 32), global_strides=(128,), box_dim=(64, 32)
    )
    report = device.launch(module, "kernel", (grid, 1, 1), (block, 1, 1), [out.address, tensor_map])
    return report, device, out
