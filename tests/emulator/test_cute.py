"""Layouts in CuTe's notation, from tables of offsets."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.debug.banks import passes_of
from fmha.emulator.debug.cute import layout_of, modes_of, thread_value


@pytest.mark.parametrize(
    ("offsets", "modes"),
    [
        (range(8), ((8, 1),)),
        ([0, 64, 128, 192], ((4, 64),)),
        ([0, 1, 8192, 8193], ((2, 1), (2, 8192))),
        ([0, 2, 4, 6, 1, 3, 5, 7], ((4, 2), (2, 1))),
        ([0], ()),
        ([0, 0, 0, 0], ((4, 0),)),
        ([0, 1, 3, 4], ((2, 1), (2, 3))),
        ([0, 1, 3, 5], None),
        ([1, 2], None),
    ],
)
def test_modes(offsets, modes):
    assert modes_of(list(offsets)) == modes


@pytest.mark.parametrize(("bits", "text"), [(0, ""), (1, "S<1,4,3> o "), (2, "S<2,4,3> o "), (3, "S<3,4,3> o ")])
def test_swizzled_rows_of_bf16(bits, text):
    """128 x 128 of bf16, rows of 64 elements, the second half of the columns behind all rows."""
    row, column = np.meshgrid(np.arange(128), np.arange(128), indexing="ij")
    plain = 0x8400 + column // 64 * 16384 + row * 128 + column % 64 * 2
    plain = plain - 0x400
    at = plain ^ (plain >> 7 & (1 << bits) - 1) << 4
    layout = layout_of(at, 2)
    assert str(layout) == f"{text}(128,(64,2)):(64,(1,8192))"
    assert layout.as_operand_a(16) == f"{text}((128,16),1,(4,2)):((64,1),0,(16,8192))"


def test_no_layout():
    at = np.random.default_rng(0).permutation(64).reshape(8, 8) * 2
    assert layout_of(at, 2) is None


def test_thread_value():
    thread, register = np.meshgrid(np.arange(128), np.arange(64), indexing="ij")
    assert thread_value(thread + 128 * register) == "(128,64):(1,128)"
    assert thread_value((thread + register) % 7) is None


@pytest.mark.parametrize(
    ("addresses", "size", "passes", "least"),
    [
        ([4 * lane for lane in range(32)], 4, 1, 1),
        ([128 * lane for lane in range(32)], 4, 32, 1),
        ([0] * 32, 4, 1, 1),
        ([128 * lane for lane in range(32)], 16, 32, 4),  # rows of 128 bytes: 8 lanes at a time, all in four banks
        ([128 * lane + (lane % 8 << 4) for lane in range(32)], 16, 4, 4),  # swizzled
        ([8 * lane for lane in range(32)], 8, 2, 2),
        ([4 * lane for lane in range(8)], 4, 1, 1),
    ],
)
def test_passes(addresses, size, passes, least):
    assert passes_of(dict(enumerate(addresses)), size)[:2] == (passes, least)
