"""Tensor stores and reductions against NumPy: clipping, swizzles, scattered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.bulk_rig import DTYPES, FENCE, FILL, STORED, Shape, numbers, paste, store, swizzle_bytes, tiled
from tests.emulator.clusterlab import run

# The address in %r54, of a tile that a multiple of 512 bytes begins, with swizzle 64B.
SWIZZLED = "shr.u32 %r55, %r54, 7; and.b32 %r55, %r55, 3; shl.b32 %r55, %r55, 4; xor.b32 %r54, %r54, %r55;"


@pytest.mark.parametrize(
    ("shape", "box", "start"),
    [
        ((64,), (16,), (60,)),
        ((9, 40), (4, 16), (3, 20)),
        ((9, 40), (4, 16), (7, 32)),
        ((5, 6, 20), (2, 3, 8), (4, 4, 16)),
        ((3, 4, 5, 12), (2, 2, 3, 4), (2, 3, 3, 8)),
        ((3, 2, 4, 5, 12), (2, 2, 2, 3, 4), (1, 1, 3, 4, 8)),
    ],
)
def test_stores_are_clipped(shape: Shape, box: Shape, start: Shape) -> None:
    data, out = numbers(box, np.uint32), np.full(shape, 7, np.uint32)
    np.testing.assert_array_equal(store(data, out, "u32", box, start), paste(out, data, start))


@pytest.mark.parametrize("op", ["", "add"])
def test_a_clipped_row_ends_at_the_next_16_bytes(op: str) -> None:
    """As on an H200 (results/probes-h200.json): what lies behind the tensor's row is overwritten. A tensor of 8 x 37
    elements in rows of 40; behind its last row lie only two more."""
    data, memory = np.arange(1, 65, dtype=np.uint32).reshape(4, 16), np.full(8 * 40 - 1, 7, np.uint32)
    got = store(data, memory, "u32", (4, 16), (5, 32), op, shape=(8, 37), pitch=160)
    whole = np.append(memory, 7).reshape(8, 40).astype(np.uint32)
    whole[5:8, 32:40] = data[:3, :8] + (7 if op else 0)
    np.testing.assert_array_equal(got, whole.reshape(-1)[:-1])


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
    got = store(data, out, dtype, (4, 16), (6, 28 if np.dtype(kind).itemsize > 2 else 32), op)
    np.testing.assert_array_equal(got, paste(out, data, (6, 28 if np.dtype(kind).itemsize > 2 else 32), combine))


def test_scatter4() -> None:
    data, out = numbers((4, 8), np.uint32), np.zeros((9, 32), np.uint32)
    body = f"""{FILL.format(words=32)} {FENCE}
    cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group
        [%map, {{28, 8, -1, 2, 9}}], [%r40]; {STORED}"""
    done = run(body, {"data": data, "out": out}, {"map": tiled("out", out.shape, (1, 8))}, block=1).clean()
    want = out.copy()
    want[8, 28:32], want[2, 28:32] = data[0, :4], data[2, :4]
    np.testing.assert_array_equal(done.arrays["out"], want)


@pytest.mark.parametrize("swizzle", ["none", "64B"])
@pytest.mark.parametrize(("written", "rules"), [(8, set()), (7, {"uninitialised-shared"})])
def test_what_a_store_clips_may_be_anything(swizzle: str, written: int, rules: set[str]) -> None:
    """Rows of 64 bytes in shared memory over a tensor's of 32: padding that nothing has written."""
    out = np.zeros((4, 8), np.uint32)
    body = f"""
    mov.u32 %r40, tile; mov.u32 %r50, 0;
    ROW:
    mad.lo.u32 %r51, %r50, 64, %r40; mov.u32 %r52, 0;
    WORD:
    shl.b32 %r53, %r52, 2; add.u32 %r54, %r51, %r53;
    {SWIZZLED if swizzle == "64B" else ""}
    st.shared.u32 [%r54], 5;
    add.u32 %r52, %r52, 1; setp.lt.u32 %p1, %r52, {written}; @%p1 bra WORD;
    add.u32 %r50, %r50, 1; setp.lt.u32 %p1, %r50, 4; @%p1 bra ROW;
    {FENCE}
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {{0, 0}}], [%r40]; {STORED}
    """
    done = run(body, {"out": out}, {"map": tiled("out", out.shape, (4, 16), swizzle=swizzle)}, block=1)
    assert done.rules == rules
    assert (done.arrays["out"][:, :7] == 5).all()
