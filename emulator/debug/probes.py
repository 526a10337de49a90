"""Round trips through tensor memory: small kernels that the machine runs, and what came of them.

One element is told from another by its value. A product of row numbers by ones leaves in each cell of tensor memory the
row that it holds, and one of ones by column numbers the column: that is where the accumulator (CUTLASS's C fragment)
lies. An A whose every half of a cell holds the number of that cell, multiplied by the identity, leaves for each element
the cell that an MMA reads it from: that is the A fragment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.debug.observe import BEFORE
from fmha.emulator.device import Device, load_ptx

ROWS: Final = 128
K: Final = 16  # of one MMA of bf16
A_COLUMN: Final = 256  # where A is stored, in tensor memory
_A_BYTES: Final = ROWS * K * 2

_TEXT: Final = """\
.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry probe(.param .u64 p_image, .param .u64 p_words, .param .u64 p_out)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<16>, %w<{n}>, %tid, %base, %taddr, %lanes, %bars;
    .reg .b64 %rd<8>, %image, %words, %out, %da, %db;
    ld.param.u64 %image, [p_image];
    ld.param.u64 %words, [p_words];
    ld.param.u64 %out, [p_out];
    mov.u32 %tid, %tid.x;
    mov.u32 %base, smem;
    add.s32 %bars, %base, {image_bytes};
    shl.b32 %r0, %tid, 4;
FILL:
    setp.ge.u32 %p0, %r0, {image_bytes};
    @%p0 bra FILLED;
    cvt.u64.u32 %rd0, %r0;
    add.s64 %rd0, %image, %rd0;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd0];
    add.s32 %r5, %base, %r0;
    st.shared.v4.b32 [%r5], {{%r1, %r2, %r3, %r4}};
    add.s32 %r0, %r0, 2048;
    bra FILL;
FILLED:
    setp.ne.u32 %p1, %tid, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%bars], 1;
READY:
    fence.proxy.async;
    bar.sync 0;
    shr.u32 %r6, %tid, 5;
    setp.ne.u32 %p2, %r6, 0;
    @%p2 bra ALLOCATED;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bars+8], 512;
ALLOCATED:
    bar.sync 0;
    ld.shared.b32 %taddr, [%bars+8];
    shl.b32 %lanes, %r6, 21;
    add.s32 %lanes, %lanes, %taddr;
    mul.wide.u32 %rd1, %tid, {row_bytes};
    add.s64 %words, %words, %rd1;
    add.s64 %out, %out, %rd1;
{load_words}
    {store}
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    @%p1 bra ISSUED;
    tcgen05.fence::after_thread_sync;
    {mma}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bars];
ISSUED:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [%bars], 0;
    @!%p3 bra ISSUED;
    tcgen05.fence::after_thread_sync;
    {load}
    tcgen05.wait::ld.sync.aligned;
{store_words}
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    @%p2 bra END;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %taddr, 512;
END:
    ret;
}}
"""


@dataclass(frozen=True, slots=True)
class ProductShape:
    """Of an MMA of bf16: M x N, weight-stationary or not."""

    m: int
    n: int
    ws: bool = False

    @property
    def instruction(self) -> int:
        """Its instruction descriptor: f32 += bf16 x bf16, both K-major."""
        return 1 << 4 | 1 << 7 | 1 << 10 | self.n >> 3 << 17 | self.m >> 4 << 24


@dataclass(frozen=True, slots=True)
class Probed:
    """Tensor memory behind the MMA, 128 lanes of 512 words, and what the threads loaded, (128, words)."""

    tensor: NDArray[np.uint32]
    loaded: NDArray[np.uint32]


def bf16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Whole numbers of up to 8 bits: exact."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _chunks(matrix: NDArray[np.uint16]) -> bytes:
    """(rows, 16) K-major without a swizzle: 8 rows of 16 bytes, the other 8 of K 128 bytes on, 8 rows 256 bytes on."""
    return matrix.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3).tobytes()


def run(
    shape: ProductShape,
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    words: NDArray[np.uint32],
    *,
    a_tmem: bool,
    store_column: int = A_COLUMN,
    load_column: int = 0,
    transfer: str = "32x32b",
    multiply: bool = True,
) -> Probed:
    """One MMA of a (m, 16) from shared memory, or from the columns that `words` (128, n) were stored to, by b (n, 16).

    The words are stored by `transfer` from `store_column` on, and as many loaded from `load_column` on.
    """
    padded = np.zeros((ROWS, K))
    padded[: len(a)] = a
    image = _chunks(bf16(padded)) + _chunks(bf16(b))
    count = words.shape[1]
    names = ", ".join(f"%w{k}" for k in range(count))
    descriptor = 1 << 46 | 16 << 32 | 8 << 16  # stride 256 bytes, leading 128
    setup = (
        f"shr.u32 %r7, %base, 4;\n    cvt.u64.u32 %rd2, %r7;\n    add.s64 %da, %rd2, {descriptor};\n"
        f"    add.s64 %db, %rd2, {descriptor + (_A_BYTES >> 4)};\n    add.s32 %r8, %taddr, {A_COLUMN};\n"
        f"    mov.b32 %r9, {shape.instruction};\n    setp.ne.u32 %p0, 0, 0;\n    "
    )
    mma = setup + (
        f"tcgen05.mma{'.ws' if shape.ws else ''}.cta_group::1.kind::f16 [%taddr], {'[%r8]' if a_tmem else '%da'}, %db, "
        "%r9, %p0;"
    )
    text = _TEXT.format(
        n=count,
        image_bytes=len(image),
        row_bytes=4 * count,
        load_words="\n".join(f"    ld.global.b32 %w{k}, [%words+{4 * k}];" for k in range(count)),
        store=f"tcgen05.st.sync.aligned.{transfer}.x{count}.b32 [%lanes+{store_column}], {{{names}}};",
        mma=mma if multiply else "",
        load=f"tcgen05.ld.sync.aligned.{transfer}.x{count}.b32 {{{names}}}, [%lanes+{load_column}];",
        store_words="\n".join(f"    st.global.b32 [%out+{4 * k}], %w{k};" for k in range(count)),
    )
    device = Device(profile="lenient")
    module = load_ptx(text)
    buffers = [
        device.alloc(n, name) for n, name in ((len(image), "image"), (words.nbytes, "words"), (words.nbytes, "out"))
    ]
    device.write(buffers[0].address, image)
    device.write(buffers[1].address, words)
    tensor: list[bytes] = []
    sources = device.decoded(module, "probe").sources
    observer = _core.Observer(lambda kind, event: tensor.append(observer.tensor(0)) if not tensor else None)
    observer.stop_at(bytes(BEFORE if i.mnemonic.startswith("tcgen05.dealloc") else 0 for i in sources))
    with device.observed(observer):
        args = [x.address for x in buffers]
        report = device.launch(module, "probe", 1, ROWS, args, shared_bytes=len(image) + 16)
    if not report.ok or not tensor:
        raise RuntimeError(f"the probe does not run: {[str(f) for f in report.findings]}")
    loaded = device.read(buffers[2].address, words.nbytes).view(np.uint32).reshape(words.shape)
    return Probed(np.frombuffer(tensor[0], np.uint32).reshape(128, 512), loaded)


def accumulator(shape: ProductShape) -> NDArray[np.int64]:
    """(m, n): the cell, lane << 16 | column, of each element of D, found by its value."""
    nothing = np.zeros((ROWS, 8), np.uint32)
    ones = np.zeros((max(shape.m, shape.n), K))
    ones[:, 0] = 1
    numbers = np.zeros((max(shape.m, shape.n), K))
    numbers[:, 0] = np.arange(1, len(numbers) + 1) % 256  # of rows or columns, from 1: what is not written is 0
    high = np.zeros_like(numbers)
    high[:, 0] = 1 + np.arange(1, len(numbers) + 1) // 256

    def seen(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.int64]:
        words = run(shape, a[: shape.m], b[: shape.n], nothing, a_tmem=False).tensor[:, :A_COLUMN]
        return words.copy().view(np.float32).astype(np.int64)

    row = seen(numbers, ones) + 256 * (seen(high, ones) - 1)
    column = seen(ones, numbers) + 256 * (seen(ones, high) - 1)
    cells = np.full((shape.m, shape.n), -1, np.int64)
    for lane, at in np.argwhere(seen(ones, ones) == 1):
        cells[row[lane, at] - 1, column[lane, at] - 1] = lane << 16 | at
    return cells


def fragment_a(shape: ProductShape) -> NDArray[np.int64]:
    """(rows, 16): the cell and half, (lane << 16 | column) << 1 | half, that an MMA reads each element of A from.

    Of a weight-stationary MMA of 64 rows, those of both halves of the lanes: it reads A twice.
    """
    halves = np.arange(K)  # of a lane's 8 columns
    lanes = np.arange(ROWS)
    identity = np.zeros((shape.n, K))
    identity[:K] = np.eye(K)

    def seen(values: NDArray[np.float64]) -> NDArray[np.int64]:
        packed = bf16(values).view(np.uint32)
        words = run(shape, np.zeros((shape.m, K)), identity, np.ascontiguousarray(packed), a_tmem=True).tensor
        d = words.copy().view(np.float32).astype(np.int64)
        found: NDArray[np.int64] = d[cells >> 16, cells & 0xFFFF]
        return found

    cells = accumulator(shape)[:, :K]

    lane = seen(np.repeat(lanes[:, None], K, 1).astype(np.float64))
    half = seen(np.repeat(halves[None, :], ROWS, 0).astype(np.float64))
    return (lane << 16 | A_COLUMN + half // 2) << 1 | half % 2


@dataclass(frozen=True, slots=True)
class Trip:
    """A round trip: what was done, whether what came back is what was sent, and what it says."""

    what: str
    same: bool
    lines: tuple[str, ...]


def round_trips() -> tuple[Trip, ...]:
    """Those that people ask for first."""
    makers: tuple[Callable[[], Trip], ...] = (_numbers, _pairs, _accumulator_trip, _half_lanes, _a_trip, _wrong_a_trip)
    return tuple(make() for make in makers)


_PLAIN: Final = ProductShape(128, 64)


def _numbers() -> Trip:
    words = np.arange(ROWS * 32, dtype=np.float32).reshape(ROWS, 32).view(np.uint32)
    out = run(_PLAIN, np.zeros((128, K)), np.zeros((64, K)), words, a_tmem=False, load_column=A_COLUMN, multiply=False)
    line = "thread t, register r: lane t, column r; 32 bits pass as they are, fp32 or two bf16"
    return Trip("fp32, tcgen05.st 32x32b then tcgen05.ld 32x32b", bool((out.loaded == words).all()), (line,))


def _pairs() -> Trip:
    values = (np.arange(ROWS * 32) % 251).reshape(ROWS, 32).astype(np.float64)
    words = bf16(values).view(np.uint32)
    out = run(_PLAIN, np.zeros((128, K)), np.zeros((64, K)), words, a_tmem=False, load_column=A_COLUMN, multiply=False)
    line = "element k of a row is half k % 2 of column k / 2"
    return Trip("bf16 packed two to a column, stored and loaded", bool((out.loaded == words).all()), (line,))


def _accumulator_trip() -> Trip:
    cells = accumulator(_PLAIN)
    rows, columns = np.meshgrid(np.arange(128), np.arange(64), indexing="ij")
    same = bool((cells == (rows << 16 | columns)).all())
    line = "the C fragment of M = 128: row r is lane r, column c is column c; 32x32b gives thread r all of row r"
    return Trip("MMA of 128 x 64 writes D, tcgen05.ld 32x32b reads rows", same, (line,))


def _half_lanes() -> Trip:
    cells = accumulator(ProductShape(64, 64, ws=True))
    rows, columns = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")
    same = bool((cells == (rows + 64 * (columns // 32) << 16 | columns % 32)).all())
    line = "the C fragment of .ws with M = 64: row r is lanes r and r + 64, which have the halves of its columns"
    return Trip("MMA.ws of 64 x 64 writes D", same, (line,))


def _a_trip() -> Trip:
    cells = fragment_a(_PLAIN)
    rows, k = np.meshgrid(np.arange(128), np.arange(K), indexing="ij")
    same = bool((cells == ((rows << 16 | A_COLUMN + k // 2) << 1 | k % 2)).all())
    line = "the A fragment: (r, k) is read from lane r, column k / 2, half k % 2; K = 16 takes 8 columns"
    return Trip("packed bf16 stored by 32x32b, read as A from tensor memory", same, (line,))


def _wrong_a_trip() -> Trip:
    """fp32, a column an element, as the C fragment has it: what an MMA takes for A is something else."""
    values = 1.0 + np.arange(ROWS * 8).reshape(ROWS, 8) % 64
    words = values.astype(np.float32).view(np.uint32)
    identity = np.zeros((64, K))
    identity[:K] = np.eye(K)
    out = run(_PLAIN, np.zeros((128, K)), identity, words, a_tmem=True)
    d = out.tensor[:, :K].copy().view(np.float32)
    upper = bool((d[:, 1::2] == values).all() and (d[:, 0::2] == 0).all())
    lines = (
        "an fp32 is two halves of bf16: its upper half is its value cut to bf16, its lower half the bits below it",
        "so A(r, 2 c + 1) is row r's number in column c and A(r, 2 c) is rubbish, 0 for these: every other k is lost"
        if upper
        else "what the MMA read is neither",
        "convert to bf16, pack two to a register, and store half as many columns",
    )
    return Trip("fp32 stored as the C fragment has it, read as A", bool((d[:, :8] == values).all()), lines)
