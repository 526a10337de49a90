"""wgmma: shapes, types and layouts against float64 products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import SCHEDULES, Schedule
from tests.emulator import matrix_fragments as fr
from tests.emulator import matrix_rig as rig
from tests.emulator import wgmma_rig as wg
from tests.probes.sums import truncated_sum

RNG = np.random.default_rng(13)
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def _spread(d: NDArray[Any]) -> NDArray[Any]:
    """A 64 x N matrix as [128, N / 2] accumulator elements."""
    n = d.shape[1]
    return np.array([[d[fr.wgmma_d_position(t, i)] for i in range(n // 2)] for t in range(128)], d.dtype)


def _gather(flat: NDArray[Any], n: int) -> NDArray[Any]:
    d = np.zeros((64, n), flat.dtype)
    for t, row in enumerate(flat.reshape(128, n // 2)):
        for i, value in enumerate(row):
            d[fr.wgmma_d_position(t, i)] = value
    return d


def _a_registers(raw: NDArray[Any], ty: str) -> NDArray[np.uint32]:
    """A [64, K] as four registers a thread: warp w holds rows 16 w to 16 w + 15 as mma.m16n8kK's A."""
    kind = {"f16": "f16", "bf16": "f16", "tf32": "tf32"}.get(ty, "b8")
    shape = f"m16n8k{raw.shape[1]}"
    count = raw.shape[1] // 2
    rows = [
        [raw[(p := fr.a_position(shape, kind, t % 32, i))[0] + t // 32 * 16, p[1]] for i in range(count)]
        for t in range(128)
    ]
    return fr.pack(np.array(rows), 8 * raw.itemsize)


def _run(
    n: int,
    d: str,
    a: str,
    b: str,
    *,
    swizzle: int = 1,
    a_mn: bool = False,
    b_mn: bool = False,
    registers: bool = False,
    signs: tuple[int, int] = (1, 1),
    scale: int = 1,
    k_step: int = 0,
    satfinite: bool = False,
    schedule: Schedule = "realistic",
) -> None:
    k = K[a]
    raw_a, value_a = fr.elements(RNG, (64, k), a)
    raw_b, value_b = fr.elements(RNG, (n, k), b)
    c = RNG.integers(-8, 9, (64, n)).astype(DTYPES[d])
    if d == "s32":
        c[0], c[1] = 2**31 - 1, -(2**31)
    constants = "" if d == "s32" else f", {signs[0]}, {signs[1]}"
    if a in ("f16", "bf16"):
        constants += f", {int(b_mn)}" if registers else f", {int(a_mn)}, {int(b_mn)}"
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b}{'.satfinite' if satfinite else ''}"
    operand = _a_registers(raw_a, a) if registers else wg.place(raw_a, swizzle, a_mn, k_step)
    out = wg.multiply(
        name, constants, operand, wg.place(raw_b, swizzle, b_mn, k_step), _spread(c), scale=scale, schedule=schedule
    )
    assert out.rules == []
    exact = signs[0] * signs[1] * (value_a @ value_b.T) + (c.astype(np.float64) if scale else 0)
    if d == "s32":
        exact = np.clip(exact, -(2**31), 2**31 - 1) if satfinite else (exact + 2**31) % 2**32 - 2**31
    got = _gather(out.array("d", DTYPES[d]), n)
    np.testing.assert_array_equal(got.astype(np.float64), exact.astype(np.float16) if d == "f16" else exact)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(n: int) -> None:
    _run(n, "f32", "bf16", "bf16")


@pytest.mark.parametrize("swizzle", list(wg.SWIZZLES))
@pytest.mark.parametrize(("a_mn", "b_mn"), [(False, False), (False, True), (True, False), (True, True)])
def test_layouts_of_16_bit_types(swizzle: int, a_mn: bool, b_mn: bool) -> None:
    _run(128, "f32", "f16", "f16", swizzle=swizzle, a_mn=a_mn, b_mn=b_mn)


TYPES = [
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "bf16", "bf16"),
    ("f32", "tf32", "tf32"),
    *((d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
]


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("n", [8, 96])
def test_types(types: tuple[str, str, str], registers: bool, n: int) -> None:
    _run(n, *types, registers=registers)


@pytest.mark.parametrize("ty", ["bf16", "tf32", "e4m3", "u8"])
@pytest.mark.parametrize("swizzle", list(wg.SWIZZLES))
def test_k_major_layouts_of_every_width(ty: str, swizzle: int) -> None:
    _run(64, "s32" if ty == "u8" else "f32", ty, ty, swizzle=swizzle)


@pytest.mark.parametrize("k_step", [1, 2, 3])
@pytest.mark.parametrize("swizzle", [1, 2])
def test_steps_within_a_swizzled_row(k_step: int, swizzle: int) -> None:
    _run(64, "f32", "bf16", "bf16", swizzle=swizzle, k_step=k_step)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
@pytest.mark.parametrize("scale", [0, 1])
def test_scales(signs: tuple[int, int], scale: int) -> None:
    _run(32, "f32", "f16", "f16", signs=signs, scale=scale)


def test_saturation() -> None:
    _run(32, "s32", "u8", "u8", satfinite=True)


@pytest.mark.parametrize("swizzle", list(wg.SWIZZLES))
@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("n", "scale"), [(8, 1), (96, 1), (256, 0)])
def test_bits(n: int, scale: int, registers: bool, swizzle: int) -> None:
    """Of two rows of 256 bits, how many are in both. In registers a thread has 32 bits of a row, and those 128 on."""
    raw_a, raw_b = (RNG.integers(0, 256, (rows, 32), np.uint8) for rows in (64, n))
    a, b = (np.unpackbits(raw, axis=1, bitorder="little").astype(np.int64) for raw in (raw_a, raw_b))
    c = RNG.integers(-8, 9, (64, n)).astype(np.int32)
    c[0] = 2**31 - 1
    held = np.zeros((128, 4), np.uint32)
    for thread, register in np.ndindex(held.shape):
        row, first = thread // 32 * 16 + thread % 32 // 4 + register % 2 * 8, thread % 4 * 32 + register // 2 * 128
        held[thread, register] = np.packbits(a[row, first : first + 32], bitorder="little").view(np.uint32)[0]
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k256.s32.b1.b1.and.popc"
    operand = held if registers else wg.place(raw_a, swizzle, False)
    out = wg.multiply(name, "", operand, wg.place(raw_b, swizzle, False), _spread(c), scale=scale)
    assert out.rules == []
    exact = a @ b.T + (c if scale else 0)
    np.testing.assert_array_equal(_gather(out.array("d", np.int32), n), exact.astype(np.int32))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules(schedule: Schedule) -> None:
    _run(64, "f32", "bf16", "bf16", schedule=schedule, registers=True, b_mn=True)


def test_f32_sums_are_aligned_and_truncated_as_on_hopper() -> None:
    """Against tests/probes/sums.py, which an H200's results were fitted with (results/probes-h200.json)."""
    raw_a, raw_b = (fr.to_bf16(RNG.standard_normal(s)) for s in ((64, 16), (64, 16)))
    c = RNG.standard_normal((64, 64)).astype(np.float32)
    out = wg.multiply(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
        ", 1, 1, 0, 0",
        wg.place(raw_a, 1, False),
        wg.place(raw_b, 1, False),
        _spread(c),
    )
    want = truncated_sum(raw_a, raw_b, c.view(np.uint32), "bf16", 25, 16)
    np.testing.assert_array_equal(_gather(out.array("d", np.float32), 64).view(np.uint32), want)
    fused = c
    for k in range(16):
        fused = fr.from_bf16(raw_a)[:, k, None] * fr.from_bf16(raw_b)[None, :, k] + fused
    assert (want.view(np.float32) != fused).any()  # the two can be told apart


D4 = wg.accumulators(4)


def _issue(text: str, target: str = "sm_90a") -> rig.Result:
    body = wg.fill(8192) + wg.descriptor("%rd1", 0, 16 >> 4 << 16 | 1024 >> 4 << 32 | 1 << 62) + text
    return rig.run(
        body,
        {"image": np.zeros(8192, np.uint8)},
        registers=".reg .b32 %r<64>, %d<128>, %a<4>; .reg .b64 %rd<32>; .reg .pred %p<8>;",
        block=(128, 1, 1),
        target=target,
        declarations=wg.EXTERN,
        shared_bytes=16384,
    )


MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{MMA} {D4}, %rd1, %rd1, 1, 1, 1, 0;", "8 operands"),
        (f"{MMA} {D4}, %rd1, %rd1, 1, 2, 1, 0, 0;", "imm-scale-a"),
        (f"{MMA} {D4}, %rd1, %rd1, 1, 1, 1, 0, 2;", "imm-trans-b"),
        (f"{MMA} {wg.accumulators(8)}, %rd1, %rd1, 1, 1, 1, 0, 0;", "D has 4 registers, not 8"),
        (f"wgmma.mma_async.sync.aligned.m64n8k8.f32.bf16.bf16 {D4}, %rd1, %rd1, 1, 1, 1, 0, 0;", "K = 8"),
        (f"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {D4}, %rd1, %rd1, 1, 1, 1, 0, 0;", "m64n8k8"),
        (f"wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {wg.accumulators(20)}, %rd1, %rd1, 1;", "N = 40"),
        (
            f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {D4}, %rd1, %rd1, %r1, 2, 1, 1, 1, 0, 0;",
            "selector",
        ),
        (f"wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.bf16.bf16 {D4}, %rd1, %rd1, %r1, 0, 1, 1, 1, 0, 0;", "sparse"),
        (f"{MMA} {{%d0, %d0, %d1, %d2}}, %rd1, %rd1, 1, 1, 1, 0, 0;", "distinct"),
        (f"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1 {D4}, %rd1, %rd1, 1;", "and"),
        (f"wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {D4}, %rd1, %rd1, 1;", "and"),
        (f"wgmma.mma_async.sync.aligned.m64n8k256.satfinite.s32.b1.b1.and.popc {D4}, %rd1, %rd1, 1;", "satfinite"),
        (f"wgmma.mma_async.sync.aligned.m64n8k32.s32.b1.b1.and.popc {D4}, %rd1, %rd1, 1;", "K = 32"),
        ("wgmma.wait_group.sync.aligned %r1;", "constant"),
        ("wgmma.fence.sync;", "aligned"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        _issue(text)


@pytest.mark.parametrize("target", ["sm_90", "sm_100a"])
def test_needs_sm_90a(target: str) -> None:
    with pytest.raises(emulator.PtxError, match="sm_90a"):
        _issue("wgmma.fence.sync.aligned;", target)


FENCE, END = "wgmma.fence.sync.aligned;\n", "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"


@pytest.mark.parametrize(
    ("setup", "rule"),
    [
        ("or.b64 %rd1, %rd1, 0x0002000000000000;", "matrix-descriptor"),  # base offset
        ("or.b64 %rd1, %rd1, 0x0000400000000000;", "matrix-descriptor"),  # bit 46, which sm_100 sets and Hopper has not
        ("or.b64 %rd1, %rd1, 0x0000000000003000;", "shared-out-of-bounds"),
        ("cvt.u64.u32 %rd2, %lane0; add.u64 %rd1, %rd1, %rd2;", "wgmma-nonuniform"),
        ("shr.u32 %r1, %tid0, 5; mul.wide.u32 %rd2, %r1, 64; add.u64 %rd1, %rd1, %rd2;", "wgmma-nonuniform"),
        ("setp.lt.u32 %p0, %lane0, 16; @%p0 ret;", "partial-warp"),
    ],
)
def test_faults(setup: str, rule: str) -> None:
    assert rule in _issue(setup + FENCE + f"{MMA} {D4}, %rd1, %rd1, 0, 1, 1, 0, 0;\n" + END).rules


def test_all_four_warps_take_part() -> None:
    one = FENCE + f"{MMA} {D4}, %rd1, %rd1, 0, 1, 1, 0, 0;\n" + END
    assert _issue(one).rules == []
    assert _issue("setp.lt.u32 %p0, %tid0, 32; @%p0 bra $out;\n" + one + "$out:\n").rules == ["deadlock"]
    two = FENCE + f"@%p0 bra $b;\n{MMA} {D4}, %rd1, %rd1, 0, 1, 1, 0, 0;\nbra $c;\n$b:\n"
    two += f"{MMA} {D4}, %rd1, %rd1, 0, 1, 1, 0, 0;\n$c:\n" + END
    assert _issue("setp.lt.u32 %p0, %tid0, 32;\n" + two).rules == ["wgmma-divergent"]
