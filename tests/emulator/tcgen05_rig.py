"""A kernel around a few tcgen05 instructions: fills shared and tensor memory from images, reads tensor memory back.

One CTA of four warps, or a pair of them. Warp 0 allocates all columns; every warp fills its lanes; thread 0 (of the
even CTA) runs the issue text, commits to an mbarrier that everybody waits on; every warp then stores its lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.launch_report import Report

LANES, COLUMNS = 128, 512
BASE = 1024  # where dynamic shared memory starts: offset 0 of an image
_STEP = 32  # columns a register load

_TEXT = """\
.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry rig(.param .u64 p_image, .param .u64 p_tmem, .param .u64 p_out)
{{
    .reg .pred %p<8>;
    .reg .pred %ready, %done;
    .reg .b16 %h<4>;
    .reg .b32 %r<32>;
    .reg .b32 %v<128>;
    .reg .b64 %rd<32>;
    .reg .b32 %tid, %lane, %warp, %rank, %bars, %taddr, %lanes;
    .reg .b64 %image, %tmem, %out, %at;
    ld.param.u64 %image, [p_image];
    ld.param.u64 %tmem, [p_tmem];
    ld.param.u64 %out, [p_out];
    mov.u32 %tid, %tid.x;
    and.b32 %lane, %tid, 31;
    shr.u32 %warp, %tid, 5;
    mov.u32 %rank, %cluster_ctarank;
    mov.u32 %bars, smem;
    add.s32 %bars, %bars, {image_bytes};
    mul.wide.u32 %at, %rank, {image_bytes};
    add.s64 %image, %image, %at;
    mul.wide.u32 %at, %rank, {tmem_bytes};
    add.s64 %tmem, %tmem, %at;
    add.s64 %out, %out, %at;

    // shared memory
    mov.u32 %r0, smem;
    shl.b32 %r1, %tid, 4;
FILL:
    setp.ge.u32 %p0, %r1, {image_bytes};
    @%p0 bra FILLED;
    cvt.u64.u32 %rd0, %r1;
    add.s64 %rd0, %image, %rd0;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd0];
    add.s32 %r6, %r0, %r1;
    st.shared.v4.b32 [%r6], {{%r2, %r3, %r4, %r5}};
    add.s32 %r1, %r1, 2048;
    bra FILL;
FILLED:
    fence.proxy.async;
    setp.eq.u32 %p0, %tid, 0;
    @!%p0 bra INITIALISED;
    mbarrier.init.shared::cta.b64 [%bars], 1;
    mbarrier.init.shared::cta.b64 [%bars+8], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
INITIALISED:
    bar.sync 0;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;  // the peer has been launched
    setp.ne.u32 %p0, %warp, 0;
    @%p0 bra ALLOCATED;
    tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%bars+16], 512;
ALLOCATED:
    bar.sync 0;
    ld.shared.b32 %taddr, [%bars+16];

    // tensor memory
    shl.b32 %lanes, %warp, 21;
    add.s32 %lanes, %lanes, %taddr;
    mul.wide.u32 %at, %tid, {row_bytes};
    add.s64 %tmem, %tmem, %at;
    add.s64 %out, %out, %at;
{store}
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    setp.ne.u32 %p0, %tid, 0;
    @%p0 bra ISSUED;
{meet}
    tcgen05.fence::after_thread_sync;
{issue}
    tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{multicast};
ISSUED:
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%bars], 0;
    @!%done bra WAIT;
    tcgen05.fence::after_thread_sync;
{warps}
{load}
    tcgen05.wait::ld.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    setp.ne.u32 %p0, %warp, 0;
    @%p0 bra END;
    tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %taddr, 512;
END:
    ret;
}}
"""

# The odd CTA says that it is ready, and only the even one goes on to issue.
_MEET = """\
    setp.eq.u32 %p2, %rank, 0;
    @%p2 bra LEADER;
    mov.u32 %r7, {ready};
    tcgen05.fence::after_thread_sync;
    tcgen05.fence::before_thread_sync;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
    bra ISSUED;
LEADER:
    mbarrier.try_wait.parity.shared::cta.b64 %ready, [%bars+8], 0;
    @!%ready bra LEADER;"""


@dataclass
class Outcome:
    tmem: NDArray[np.uint32]  # (128, 512), or (2, 128, 512) of a pair
    report: Report
    rules: list[str]


def run(
    issue: str,
    shared: bytes | list[bytes] = b"",
    tmem: NDArray[np.uint32] | None = None,
    *,
    pair: bool = False,
    warps: str = "",
    **device: object,
) -> Outcome:
    """Runs `issue` in one thread and `warps` in all; `shared` and `tmem` have one image a CTA. Tensor memory starts as
    zero where no image is given."""
    ctas = 2 if pair else 1
    images = shared if isinstance(shared, list) else [shared] * ctas
    size = max(16, *(-(-len(x) // 16) * 16 for x in images))
    blob = b"".join(x.ljust(size, b"\0") for x in images)
    words = np.zeros((ctas, LANES, COLUMNS), np.uint32)
    if tmem is not None:
        words[:] = tmem
    text = _TEXT.format(
        image_bytes=size,
        tmem_bytes=LANES * COLUMNS * 4,
        row_bytes=COLUMNS * 4,
        group=ctas,
        multicast=".multicast::cluster.b64 [%bars], 3" if pair else ".b64 [%bars]",
        meet=_MEET.format(ready=BASE + size + 8) if pair else "",
        issue=issue,
        warps=warps,
        store=_transfer(store=True),
        load=_transfer(store=False),
    )
    machine = emulator.Device(**device)  # type: ignore[arg-type]
    buffers = [
        machine.alloc(n, name) for name, n in (("image", len(blob)), ("tmem", words.nbytes), ("out", words.nbytes))
    ]
    machine.write(buffers[0].address, blob)
    machine.write(buffers[1].address, words)
    report = machine.launch(
        emulator.load_ptx(text),
        "rig",
        grid=(ctas, 1, 1),
        block=(128, 1, 1),
        cluster=(ctas, 1, 1),
        args=[x.address for x in buffers],
        shared_bytes=size + 64,
    )
    out = machine.read(buffers[2].address, words.nbytes).view(np.uint32).reshape(words.shape)
    return Outcome(out if pair else out[0], report, [f.rule for f in report.findings])


def _transfer(*, store: bool) -> str:
    lines = []
    registers = ", ".join(f"%v{k}" for k in range(_STEP))
    for column in range(0, COLUMNS, _STEP):
        quads = range(0, _STEP, 4)
        memory = [
            (f"[%{'tmem' if store else 'out'}+{4 * (column + k)}]", ", ".join(f"%v{k + j}" for j in range(4)))
            for k in quads
        ]
        if store:
            lines += [f"ld.global.v4.b32 {{{regs}}}, {at};" for at, regs in memory]
            lines.append(f"tcgen05.st.sync.aligned.32x32b.x{_STEP}.b32 [%lanes+{column}], {{{registers}}};")
        else:
            lines.append(f"tcgen05.ld.sync.aligned.32x32b.x{_STEP}.b32 {{{registers}}}, [%lanes+{column}];")
            lines += [f"st.global.v4.b32 {at}, {{{regs}}};" for at, regs in memory]
    return "\n".join(lines)
