"""Bulk and tensor copies against NumPy: boxes, swizzles, clipping, gathers, reductions, multicast, bulk groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator import Device, PtxError, encode_tiled, load_ptx
from tests.emulator.clusterlab import CLUSTER_SYNC, MapMaker, init_barriers, run, source, wait

Array = NDArray[Any]
Shape = tuple[int, ...]
DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "u64": np.uint64,
          "s64": np.int64, "f64": np.float64, "f16": np.float16, "f32_ftz": np.float32}  # fmt: skip


def tiled(name: str, shape: Shape, box: Shape, dtype: str = "u32", **options: Any) -> MapMaker:
    """A map of array `name`, shapes outermost first as NumPy has them."""

    def make(addresses: Mapping[str, int]) -> bytes:
        size = np.dtype(DTYPES.get(dtype, np.uint16)).itemsize
        dims = shape[::-1]
        strides = [size * int(np.prod(dims[: k + 1])) for k in range(len(dims) - 1)]
        return encode_tiled(dtype=dtype, address=addresses[name], global_dim=dims, global_strides=strides,
                            box_dim=box[::-1], **options)  # fmt: skip

    return make


def cut(data: Array, start: Shape, box: Shape, steps: Shape | None = None, fill: Any = 0) -> Array:
    """The box of `data` at `start`, element by element, `fill` where it lies outside."""
    steps = steps or (1,) * len(box)
    counts = tuple(-(-n // s) for n, s in zip(box, steps, strict=True))
    out = np.full(counts, fill, data.dtype)
    for index in np.ndindex(*counts):
        at = tuple(x + i * s for x, i, s in zip(start, index, steps, strict=True))
        if all(0 <= a < n for a, n in zip(at, data.shape, strict=True)):
            out[index] = data[at]
    return out


def swizzle_bytes(linear: Array, mode: str) -> Array:
    """Bytes as they lie in shared memory (1024-byte aligned), by the pattern tables of PTX ISA 5.5.7."""
    flat = linear.reshape(-1).view(np.uint8)
    at = np.arange(flat.size)
    row, column = at // 128, at % 128
    if mode in ("32B", "64B", "128B"):
        chunks = {"32B": 2, "64B": 4, "128B": 8}[mode]
        # The row of the repeating pattern counts spans of 128 bytes; chunks of 16 bytes move within the span.
        chunk = column // 16
        moved = chunk // chunks * chunks + ((chunk % chunks) ^ (row % chunks))
        target = row * 128 + moved * 16 + column % 16
    elif mode.startswith("128B_atom_32B"):
        target = row * 128 + ((column // 32) ^ (row % 4)) * 32 + column % 32
        if mode.endswith("8B"):
            target = np.where(row % 2 == 1, target ^ 8, target)
    elif mode == "128B_atom_64B":
        target = row * 128 + ((column // 64) ^ (row % 2)) * 64 + column % 64
    else:
        target = at
    out = np.empty_like(flat)
    out[target] = flat
    return out


COPY_OUT = """
mov.u32 %r50, tile; mov.u32 %r51, 0;
COPY:
shl.b32 %r52, %r51, 4; add.u32 %r53, %r50, %r52; cvt.u64.u32 %d20, %r52; add.u64 %d21, %out, %d20;
ld.shared.v4.u32 {{%r54, %r55, %r56, %r57}}, [%r53]; st.global.v4.u32 [%d21], {{%r54, %r55, %r56, %r57}};
add.u32 %r51, %r51, 1; setp.lt.u32 %p14, %r51, {chunks}; @%p14 bra COPY;
"""


def load(data: Array, dtype: str, box: Shape, start: Shape, **options: Any) -> Array:
    """The bytes that a tensor load leaves in shared memory."""
    steps = options.get("element_strides")
    counts = [-(-n // s) for n, s in zip(box[::-1], steps or [1] * len(box), strict=True)]
    size = data.itemsize * int(np.prod(counts))
    coordinates = ", ".join(str(x) for x in start[::-1])
    body = f"""
    {init_barriers(1)}
    mov.u32 %r9, bar; mov.u32 %r8, tile;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};
    cp.async.bulk.tensor.{len(box)}d.shared::cta.global.tile.mbarrier::complete_tx::bytes
        [%r8], [%map, {{{coordinates}}}], [%r9];
    {wait()}
    {COPY_OUT.format(chunks=size // 16)}
    """
    out = np.zeros(size, np.uint8)
    maps = {"map": tiled("data", data.shape, box, dtype, **options)}
    return run(body, {"data": data, "out": out}, maps, block=1).clean().arrays["out"]


def numbers(shape: Shape, dtype: type) -> Array:
    return (np.arange(np.prod(shape)) % 251 + 1).astype(dtype).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "box", "start"),
    [
        ((100,), (32,), (50,)),
        ((100,), (32,), (-7,)),
        ((100,), (32,), (90,)),
        ((9, 40), (4, 16), (3, 20)),
        ((9, 40), (4, 16), (-2, -5)),
        ((9, 40), (4, 16), (7, 33)),
        ((9, 40), (4, 16), (100, 0)),
        ((5, 6, 20), (2, 3, 8), (4, -1, 15)),
        ((3, 4, 5, 12), (2, 2, 3, 4), (2, 3, -2, 10)),
        ((3, 2, 4, 5, 12), (2, 2, 2, 3, 4), (-1, 1, 3, -2, 9)),
    ],
)
def test_boxes_with_out_of_bounds_fill(shape: Shape, box: Shape, start: Shape) -> None:
    data = numbers(shape, np.uint32)
    np.testing.assert_array_equal(load(data, "u32", box, start), cut(data, start, box).reshape(-1).view(np.uint8))


@pytest.mark.parametrize(
    ("mode", "width"),
    [
        ("32B", 8),
        ("64B", 16),
        ("128B", 32),
        ("128B_atom_32B", 32),
        ("128B_atom_32B_flip_8B", 32),
        ("128B_atom_64B", 32),
    ],
)
def test_swizzles(mode: str, width: int) -> None:
    data = np.arange(40 * 64, dtype=np.uint32).reshape(40, 64)
    got = load(data, "u32", (32, width), (3, 5), swizzle=mode)
    np.testing.assert_array_equal(got, swizzle_bytes(cut(data, (3, 5), (32, width)), mode))


@pytest.mark.parametrize(("dtype", "bits"), [("f16", 0x7FFF), ("bf16", 0x7FFF), ("f32", 0x7FFFFFFF)])
def test_nan_fill(dtype: str, bits: int) -> None:
    word = np.uint32 if dtype == "f32" else np.uint16
    data = numbers((4, 32), word)
    got = load(data.view(np.float32) if dtype == "f32" else data, dtype, (2, 16), (3, 24), oob_fill="nan")
    np.testing.assert_array_equal(got.view(word).reshape(2, 16), cut(data, (3, 24), (2, 16), fill=bits))


def test_element_strides() -> None:
    data = np.arange(12 * 9 * 32, dtype=np.uint32).reshape(12, 9, 32)
    got = load(data, "u32", (5, 6, 8), (2, -1, 4), element_strides=[1, 2, 3])
    want = cut(data, (2, -1, 4), (5, 6, 8), (3, 2, 1))
    np.testing.assert_array_equal(got, want.reshape(-1).view(np.uint8))


def test_subnormals_of_flushing_types() -> None:
    data = np.array([1e-40, -1e-40, 1.0, 2.0], np.float32).repeat(4).reshape(4, 4)
    got = load(data, "f32_ftz", (4, 4), (0, 0)).view(np.float32).reshape(4, 4)
    want = np.where(np.abs(data) < 1e-38, np.copysign(np.float32(0), data), data)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("rows", [(0, 1, 2, 3), (7, -1, 7, 100), (2**30, -(2**31), 5, 4)])
@pytest.mark.parametrize("column", [0, 12, -4, 30])
def test_gather4(rows: Shape, column: int) -> None:
    data = np.arange(8 * 32, dtype=np.uint32).reshape(8, 32)
    body = f"""
    {init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::1.L2::cache_hint
        [%r8], [%map, {{{column}, {rows[0]}, {rows[1]}, {rows[2]}, {rows[3]}}}], [%r9], %d5;
    {wait()} {COPY_OUT.format(chunks=8)}
    """
    body = "mov.u64 %d5, 0;" + body
    out = np.zeros((4, 8), np.uint32)
    done = run(body, {"data": data, "out": out}, {"map": tiled("data", data.shape, (1, 8))}, block=1).clean()
    want = np.concatenate([cut(data, (y, column), (1, 8)) for y in rows])
    np.testing.assert_array_equal(done.arrays["out"], want)


FILL = """
mov.u32 %r40, tile; mov.u32 %r41, 0;
FILL:
shl.b32 %r42, %r41, 2; add.u32 %r43, %r40, %r42; cvt.u64.u32 %d18, %r42; add.u64 %d19, %data, %d18;
ld.global.u32 %r44, [%d19]; st.shared.u32 [%r43], %r44;
add.u32 %r41, %r41, 1; setp.lt.u32 %p13, %r41, {words}; @%p13 bra FILL;
"""
FENCE = "fence.proxy.async.shared::cta;\n"
STORED = "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"


def store(data: Array, out: Array, dtype: str, box: Shape, start: Shape, op: str = "", **options: Any) -> Array:
    """`out` after shared memory that holds the bytes of `data` has been stored through a map of it."""
    coordinates = ", ".join(str(x) for x in start[::-1])
    name = (
        f"cp.reduce.async.bulk.tensor.{len(box)}d.global.shared::cta.{op}.tile"
        if op
        else (f"cp.async.bulk.tensor.{len(box)}d.global.shared::cta.tile")
    )
    body = f"""
    {FILL.format(words=data.nbytes // 4)} {FENCE}
    {name}.bulk_group [%map, {{{coordinates}}}], [%r40];
    {STORED}
    """
    maps = {"map": tiled("out", out.shape, box, dtype, **options)}
    return run(body, {"data": data, "out": out}, maps, block=1).clean().arrays["out"]


def paste(out: Array, data: Array, start: Shape, combine: Any = None) -> Array:
    out = out.copy()
    for index in np.ndindex(*data.shape):
        at = tuple(x + i for x, i in zip(start, index, strict=True))
        if all(0 <= a < n for a, n in zip(at, out.shape, strict=True)):
            out[at] = data[index] if combine is None else combine(out[at], data[index])
    return out


@pytest.mark.parametrize(
    ("shape", "box", "start"),
    [
        ((64,), (16,), (60,)),
        ((9, 40), (4, 16), (3, 20)),
        ((9, 40), (4, 16), (-2, 33)),
        ((5, 6, 20), (2, 3, 8), (4, -1, 15)),
        ((3, 4, 5, 12), (2, 2, 3, 4), (2, 3, -2, 10)),
        ((3, 2, 4, 5, 12), (2, 2, 2, 3, 4), (-1, 1, 3, -2, 9)),
    ],
)
def test_stores_are_clipped(shape: Shape, box: Shape, start: Shape) -> None:
    data, out = numbers(box, np.uint32), np.full(shape, 7, np.uint32)
    np.testing.assert_array_equal(store(data, out, "u32", box, start), paste(out, data, start))


@pytest.mark.parametrize("mode", ["32B", "64B", "128B", "128B_atom_32B", "128B_atom_64B"])
def test_stores_undo_swizzles(mode: str) -> None:
    width = {"32B": 8, "64B": 16}.get(mode, 32)
    tile = np.arange(16 * width, dtype=np.uint32).reshape(16, width)
    data = swizzle_bytes(tile, mode).view(np.uint32)
    out = np.zeros((32, 64), np.uint32)
    got = store(data, out, "u32", (16, width), (3, 8), swizzle=mode)
    np.testing.assert_array_equal(got, paste(out, tile, (3, 8)))


@pytest.mark.parametrize(
    ("op", "dtype", "combine"),
    [
        ("add", "u32", np.add), ("add", "s32", np.add), ("add", "f32", np.add), ("add", "u64", np.add),
        ("min", "s32", np.minimum), ("max", "s32", np.maximum), ("min", "u32", np.minimum), ("max", "s64", np.maximum),
        ("add", "f16", np.add), ("max", "f16", np.maximum), ("add", "f64", np.add),
        ("and", "u32", np.bitwise_and), ("or", "u32", np.bitwise_or), ("xor", "u64", np.bitwise_xor),
        ("inc", "u32", lambda a, b: np.uint32(0) if a >= b else a + np.uint32(1)),
        ("dec", "u32", lambda a, b: b if a == 0 or a > b else a - np.uint32(1)),
    ],
)  # fmt: skip
def test_tensor_reductions(op: str, dtype: str, combine: Any) -> None:
    rng = np.random.default_rng(3)
    kind = DTYPES[dtype]
    low = -50 if np.dtype(kind).kind != "u" else 0
    data, out = (rng.integers(low, 50, size).astype(kind) for size in ((4, 16), (8, 40)))
    got = store(data, out, dtype, (4, 16), (6, 30), op)
    np.testing.assert_array_equal(got, paste(out, data, (6, 30), combine))


@pytest.mark.parametrize(
    ("op", "np_type", "combine"),
    [
        ("add.u32", np.uint32, np.add), ("add.f32", np.float32, np.add), ("add.noftz.f16", np.float16, np.add),
        ("min.s32", np.int32, np.minimum), ("max.u64", np.uint64, np.maximum), ("or.b32", np.uint32, np.bitwise_or),
        ("xor.b64", np.uint64, np.bitwise_xor), ("add.f64", np.float64, np.add), ("min.noftz", None, None),
    ],
)  # fmt: skip
def test_bulk_reductions(op: str, np_type: Any, combine: Any) -> None:
    rng = np.random.default_rng(5)
    if np_type is None:
        text = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.f16 [%d1], [%r1], 16;"
        with pytest.raises(PtxError, match="noftz"):
            Device().launch(load_ptx(source(text, {}, {})), "kernel", (1, 1, 1), (1, 1, 1), [])
        return
    low = 0 if np.dtype(np_type).kind == "u" else -90
    data, out = (rng.integers(low, 90, 64).astype(np_type) for _ in range(2))
    body = f"""{FILL.format(words=data.nbytes // 4)} {FENCE}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%out], [%r40], {data.nbytes}; {STORED}"""
    done = run(body, {"data": data, "out": out}, block=1).clean()
    np.testing.assert_array_equal(done.arrays["out"], combine(out, data))


def test_two_ctas_may_reduce_into_the_same_words() -> None:
    data, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    for op, rules in (("reduce.async.bulk.global.shared::cta.bulk_group.add.u32", set()),
                      ("async.bulk.global.shared::cta.bulk_group", {"bulk-store-in-flight"})):  # fmt: skip
        body = f"{FILL.format(words=64)} {FENCE} cp.{op} [%out], [%r40], 256; {STORED}"
        done = run(body, {"data": data, "out": out}, block=1, grid=3)
        assert done.rules == rules
        if not rules:
            np.testing.assert_array_equal(done.arrays["out"], 3 * data)


def test_scatter4() -> None:
    data, out = numbers((4, 8), np.uint32), np.zeros((9, 32), np.uint32)
    body = f"""{FILL.format(words=32)} {FENCE}
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group
        [%map, {{28, 8, -1, 2, 9}}], [%r40]; {STORED}"""
    done = run(body, {"data": data, "out": out}, {"map": tiled("out", out.shape, (1, 8))}, block=1).clean()
    want = out.copy()
    want[8, 28:32], want[2, 28:32] = data[0, :4], data[2, :4]
    np.testing.assert_array_equal(done.arrays["out"], want)


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
def test_plain_bulk_round_trip(schedule: Any) -> None:
    data, out = numbers((256,), np.uint32), np.zeros(256, np.uint32)
    body = f"""
    {init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile;
    cp.async.bulk.prefetch.L2.global [%data], 1024;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%data], 1024, [%r9];
    {wait()}
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 1024; {STORED}
    """
    done = run(body, {"data": data, "out": out}, block=1, schedule=schedule).clean()
    np.testing.assert_array_equal(done.arrays["out"], data)


def test_shared_to_the_shared_memory_of_a_peer() -> None:
    data, out = numbers((64,), np.uint32), np.zeros((2, 64), np.uint32)
    body = f"""
    {init_barriers(1)} {FILL.format(words=64)} {FENCE}
    mov.u32 %r9, bar; mov.u32 %r8, tile; xor.b32 %r1, %rank, 1;
    add.u32 %r8, %r8, 1024; mapa.shared::cluster.u32 %r10, %r8, %r1; mapa.shared::cluster.u32 %r11, %r9, %r1;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    {CLUSTER_SYNC}
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r40], 256, [%r11];
    {wait()}
    mul.wide.u32 %d2, %cta, 256; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 256; {STORED} {CLUSTER_SYNC}
    """
    done = run(body, {"data": data, "out": out}, block=1, grid=2, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"], np.stack([data, data]))
    # The source is not read any more only once the peer has said so.
    last = body.rfind(CLUSTER_SYNC)
    short = run(body[:last], {"data": data, "out": out}, block=1, grid=2, cluster=2)
    assert short.rules == {"exit-with-work-in-flight"}


def multicast(size: int, mask: int, group: str = "", barrier: str = "mov.u32 %r9, bar;", expect: str = "") -> str:
    return f"""
    {init_barriers(1)} {barrier} mov.u32 %r8, tile; mov.u16 %h1, {mask};
    {expect or "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512;"}
    setp.eq.u32 %p1, %rank, 0;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster{group}
        [%r8], [%map, {{8, 2}}], [%r9], %h1;
    """


def test_multicast() -> None:
    data, out = numbers((16, 32), np.uint32), np.zeros((4, 8, 16), np.uint32)
    body = f"""
    {multicast(4, 15)} {wait()}
    mul.wide.u32 %d2, %cta, 512; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 512; {STORED} {CLUSTER_SYNC}
    """
    maps = {"map": tiled("data", data.shape, (8, 16))}
    for schedule in ("realistic", "random", "late"):
        done = run(body, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4, schedule=schedule).clean()
        np.testing.assert_array_equal(done.arrays["out"], np.stack([cut(data, (2, 8), (8, 16))] * 4))
    bad = body.replace("mov.u16 %h1, 15", "mov.u16 %h1, 7")
    assert "deadlock" in run(bad, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4).rules
    wide = body.replace("mov.u16 %h1, 15", "mov.u16 %h1, 31")
    assert run(wide, {"data": data, "out": out}, maps, block=1, grid=4, cluster=4).rules == {"multicast-mask"}


def test_pair_signals_go_to_the_leader() -> None:
    """cta_group::2: each CTA loads its tile, both signal the even CTA's mbarrier, which tells the other."""
    data, out = numbers((16, 32), np.uint32), np.zeros((2, 8, 16), np.uint32)
    body = f"""
    {init_barriers(1, 2)} mov.u32 %r9, bar; and.b32 %r9, %r9, 0xFEFFFFFF; mov.u32 %r8, tile;
    setp.eq.u32 %p1, %rank, 0;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    shl.b32 %r3, %rank, 4;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2
        [%r8], [%map, {{%r3, 2}}], [%r9];
    @!%p1 bra PEER;
    {wait()}
    mov.u32 %r10, bar; add.u32 %r10, %r10, 8; mapa.shared::cluster.u32 %r11, %r10, 1;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; bra READY;
    PEER: {wait("bar+8")}
    READY:
    mul.wide.u32 %d2, %cta, 512; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 512; {STORED} {CLUSTER_SYNC}
    """
    maps = {"map": tiled("data", data.shape, (8, 16))}
    done = run(body, {"data": data, "out": out}, maps, block=1, grid=2, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"], np.stack([data[2:10, :16], data[2:10, 16:]]))
    single = body.replace(".cta_group::2", ".cta_group::1")
    assert run(single, {"data": data, "out": out}, maps, block=1, grid=2, cluster=2).rules == {"bulk-copy-mbarrier"}


# Bulk groups


def store_then(before: str, after: str, **options: Any) -> set[str]:
    data, out = numbers((64,), np.uint32), np.zeros(128, np.uint32)
    body = f"""{FILL.format(words=64)} {before}
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r40], 256;
    cp.async.bulk.commit_group; {after}"""
    return run(body, {"data": data, "out": out}, block=1, **options).rules


def test_what_bulk_groups_order() -> None:
    read, everything = "cp.async.bulk.wait_group.read 0;\n", "cp.async.bulk.wait_group 0;\n"
    rewrite, look = "st.shared.u32 [%r40], 1;\n", "ld.global.u32 %r1, [%out];\n"
    for schedule in ("realistic", "early", "late", "random"):
        assert store_then(FENCE, read, schedule=schedule) == set()
        assert store_then(FENCE, read + rewrite, schedule=schedule) == set()
        assert store_then(FENCE, everything + rewrite + look, schedule=schedule) == set()
        assert store_then("", read, schedule=schedule) == {"missing-proxy-fence"}
        assert store_then(FENCE, read + look, schedule=schedule) == {"bulk-store-in-flight"}
        assert store_then(FENCE, rewrite + read, schedule=schedule) == {"bulk-store-in-flight"}
        assert store_then(FENCE, "cp.async.bulk.wait_group.read 1;\n" + rewrite + read) == {"bulk-store-in-flight"}
    assert "exit-with-work-in-flight" in store_then(FENCE, "")


def test_a_wait_leaves_the_newest_groups_pending() -> None:
    second = """add.u64 %d1, %out, 256; add.u32 %r1, %r40, 256;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 256;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;\n"""
    end = "cp.async.bulk.wait_group.read 0;\n"
    high = FILL.replace("FILL", "FILL2").replace("tile;", "tile; add.u32 %r40, %r40, 256;")
    fill = high.format(words=64)
    fill += "sub.u32 %r40, %r40, 256;" + FENCE
    assert store_then(fill, second + "st.shared.u32 [%r40], 1;\n" + end) == set()
    assert store_then(fill, second + "st.shared.u32 [%r40+256], 1;\n" + end) == {"bulk-store-in-flight"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 24;", "misaligned"),
        ("add.u32 %r8, %r8, 8; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 16;", "misaligned"),
        ("add.u64 %d1, %out, 8; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r8], 16;", "misaligned"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 4096;", "global-out-of-bounds"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%map, {0}], [%r8+64];", "misaligned"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%r8];", "tensor-map"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%out, {0}], [%r8];", "tensor-map"),
        ("cp.reduce.async.bulk.tensor.1d.global.shared::cta.inc.bulk_group [%map, {0}], [%r8];", "bulk-reduction"),
    ],
)
def test_faults(text: str, rule: str) -> None:
    out = np.zeros(64, np.float32)
    body = "mov.u32 %r8, tile;\n" + text
    assert run(body, {"out": out}, {"map": tiled("out", (64,), (16,), "f32")}, block=1).rules == {rule}


TX = "mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"cp.async.bulk.tensor.3d.shared::cta.global.im2col.{TX} [%r1], [%d1, {{0, 0, 0}}], [%r2], {{0}};", "im2col"),
        ("cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%d1, {0, 0, 0}], [%r1];", "im2col"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r1], 16, %h1;", "byte masks"),
        (f"cp.async.bulk.tensor.3d.shared::cta.global.tile::gather4.{TX} [%r1], [%d1, {{0, 0, 0, 0, 0}}], [%r2];",
         "two-dimensional"),
        (f"cp.async.bulk.tensor.1d.shared::cta.global.tile.{TX}.multicast::cluster [%r1], [%d1, {{0}}], [%r2], %h1;",
         "shared::cluster"),
        ("cp.async.bulk.wait_group %r1;", "constant"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.s32 [%d1], [%r1], 16;", "not modelled here"),
    ],
)  # fmt: skip
def test_refused_forms(text: str, message: str) -> None:
    module = load_ptx(source(text, {}, {}))
    with pytest.raises(PtxError, match=message):
        Device().launch(module, "kernel", (1, 1, 1), (1, 1, 1), [])
