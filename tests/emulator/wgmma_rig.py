"""Operands of wgmma in shared memory, placed by the picture of each canonical layout, and PTX that multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.device import Profile, Schedule
from tests.emulator import matrix_rig as rig

SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}  # descriptor code -> bytes of a row
EXTERN = ".extern .shared .align 1024 .b8 smem[];"


@dataclass(frozen=True)
class Placed:
    """An operand's bytes and the descriptor's fields, the start address aside."""

    image: NDArray[np.uint8]
    fields: int
    start: int  # bytes into the image


def place(raw: NDArray[Any], swizzle: int, mn_major: bool, k_step: int = 0) -> Placed:
    """Puts a matrix [mn, k] of raw elements, one 32-byte K step of an operation wide, into shared memory.

    `k_step`: which of the 32-byte steps of a swizzled K-major row, or of the K groups of an MN-major tile, it takes.
    """
    return _place_mn(raw, swizzle) if mn_major else _place_k(raw, swizzle, k_step)


def _fields(leading: int, stride: int, swizzle: int) -> int:
    return leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


def _place_k(raw: NDArray[Any], swizzle: int, k_step: int) -> Placed:
    rows = raw.shape[0]
    chunks = np.ascontiguousarray(raw).view(np.uint8).reshape(rows, 2, 16)
    if swizzle == 0:  # 8 x 16-byte core matrices; the second column of them lies behind all rows
        leading, stride = rows * 16 + 256, 128
        image = np.zeros(leading + rows * 16, np.uint8)
        for r in range(rows):
            for c in range(2):
                at = c * leading + r // 8 * stride + r % 8 * 16
                image[at : at + 16] = chunks[r, c]
        return Placed(image, _fields(leading, stride, 0), 0)
    span = SWIZZLES[swizzle]
    step = k_step % (span // 32)
    image = np.zeros(rows * span, np.uint8)
    for r in range(rows):
        # Rows of a swizzle repeat every 1024, 512 or 256 bytes; the exchange is by address bits 7 to 9.
        phase = r * span // 128 % (span // 16)
        for c in range(2):
            at = r * span + ((2 * step + c) ^ phase) * 16
            image[at : at + 16] = chunks[r, c]
    return Placed(image, _fields(16, 8 * span, swizzle), 32 * step)


def _place_mn(raw: NDArray[Any], swizzle: int) -> Placed:
    rows, depth = raw.shape
    span = SWIZZLES[swizzle]
    per = span // raw.itemsize  # elements of a row along mn
    blocks = -(-rows // per)
    block, group = depth * span + (256 if swizzle == 0 else 0), 8 * span
    image = np.zeros(blocks * block, np.uint8)
    for mn in range(rows):
        for k in range(depth):
            phase = k * span // 128 % (span // 16) if swizzle else 0
            inner = mn % per * raw.itemsize
            at = mn // per * block + k // 8 * group + k % 8 * span + (inner // 16 ^ phase) * 16 + inner % 16
            image[at : at + raw.itemsize] = np.frombuffer(raw[mn, k].tobytes(), np.uint8)
    # Without a swizzle the leading offset steps along k, the stride offset along mn; with one, the other way round.
    leading, stride = (group, block) if swizzle == 0 else (block, group)
    return Placed(image, _fields(leading, stride, swizzle), 0)


def fill(image_bytes: int, threads: int = 128) -> str:
    """Every thread copies its part of %p_image to shared memory; then a proxy fence and a barrier."""
    return f"""
    mov.u32 %r60, smem;
    mov.u32 %r61, %tid0;
    mul.lo.u32 %r61, %r61, 16;
    $fill:
    setp.ge.u32 %p6, %r61, {image_bytes};
    @%p6 bra $filled;
    cvt.u64.u32 %rd20, %r61;
    add.u64 %rd20, %rd20, %p_image;
    ld.global.v4.b32 {{%r50, %r51, %r52, %r53}}, [%rd20];
    add.u32 %r62, %r60, %r61;
    st.shared.v4.b32 [%r62], {{%r50, %r51, %r52, %r53}};
    add.u32 %r61, %r61, {threads * 16};
    bra $fill;
    $filled:
    fence.proxy.async;
    bar.sync 0;
    """


def descriptor(name: str, offset: int, fields: int) -> str:
    """Sets a 64-bit register to the descriptor of what lies `offset` bytes into smem."""
    return f"""
    add.u32 %r63, %r60, {offset};
    shr.u32 %r63, %r63, 4;
    cvt.u64.u32 {name}, %r63;
    or.b64 {name}, {name}, {fields};
    """


def join(a: Placed | None, b: Placed) -> tuple[NDArray[np.uint8], int]:
    """One image, B behind A at a multiple of 1024, and B's offset."""
    head = a.image if a is not None else np.zeros(0, np.uint8)
    offset = -(-len(head) // 1024) * 1024
    size = -(-(offset + len(b.image)) // 16) * 16
    image = np.zeros(size, np.uint8)
    image[: len(head)], image[offset : offset + len(b.image)] = head, b.image
    return image, offset


def accumulators(count: int, prefix: str = "%d") -> str:
    return "{" + ", ".join(f"{prefix}{k}" for k in range(count)) + "}"


def multiply(
    mnemonic: str,
    operands: str,
    a: Placed | NDArray[np.uint32],
    b: Placed,
    c: NDArray[Any],
    *,
    scale: int = 1,
    schedule: Schedule = "realistic",
    profile: Profile = "strict",
    metadata: NDArray[np.uint32] | None = None,
    selector: int = 0,
) -> rig.Result:
    """One wgmma over [128, registers] accumulators; A is placed, or [128, 4] registers. `d` holds the result.

    `metadata`: a word a thread, for wgmma.sp.
    """
    placed = a if isinstance(a, Placed) else None
    image, b_offset = join(placed, b)
    count = c.shape[1] * c.itemsize // 4
    body = fill(len(image)) + descriptor("%rd2", b_offset + b.start, b.fields)
    buffers: dict[str, NDArray[Any] | int] = {"image": image, "c": c, "d": c.nbytes}
    if placed is not None:
        body += descriptor("%rd1", placed.start, placed.fields)
        first = "%rd1"
    else:
        buffers["a"] = a  # type: ignore[assignment]
        body += "mad.wide.u32 %rd3, %tid0, 16, %p_a;\n"
        body += "\n".join(f"ld.global.b32 %a{k}, [%rd3+{4 * k}];" for k in range(4)) + "\n"
        first = accumulators(4, "%a")
    sparse = ""
    if metadata is not None:
        buffers["metadata"] = metadata
        body += "mad.wide.u32 %rd6, %tid0, 4, %p_metadata;\nld.global.b32 %r40, [%rd6];\n"
        sparse = f", %r40, {selector}"
    body += f"mad.wide.u32 %rd4, %tid0, {4 * count}, %p_c;\nmad.wide.u32 %rd5, %tid0, {4 * count}, %p_d;\n"
    body += "\n".join(f"ld.global.b32 %d{k}, [%rd4+{4 * k}];" for k in range(count))
    body += f"""
    setp.ne.b32 %p0, {scale}, 0;
    wgmma.fence.sync.aligned;
    {mnemonic} {accumulators(count)}, {first}, %rd2{sparse}, %p0{operands};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    """
    body += "\n".join(f"st.global.b32 [%rd5+{4 * k}], %d{k};" for k in range(count))
    return rig.run(
        body,
        buffers,
        registers=".reg .b32 %r<64>, %d<128>, %a<4>; .reg .b64 %rd<32>; .reg .pred %p<8>;",
        block=(128, 1, 1),
        target="sm_90a",
        declarations=EXTERN,
        shared_bytes=len(image) + 1024,
        schedule=schedule,
        profile=profile,
    )
