"""Tools that hold the timing model to kernels of others, as far as they need neither those kernels nor a GPU."""

from __future__ import annotations

import struct

import pytest

from tools.cutlass.__main__ import KERNELS, in_order
from tools.flash4 import division


def row(kernel: str, us: float, modelled_us: float, size: int = 1024) -> dict[str, object]:
    return {"kernel": kernel, "size": [size] * 3, "us": us, "modelled_us": modelled_us}


def test_pairs_are_of_one_element_and_one_size():
    rows = [
        row("f16-a", 10.0, 12.0),
        row("f16-b", 11.0, 11.0),
        row("f16-c", 20.0, 21.0),
        row("e4m3-a", 5.0, 99.0),
        row("f16-a", 1.0, 9.0, size=2048),
    ]
    assert in_order(rows, 0.0) == (2, 3)
    assert in_order(rows, 0.2) == (2, 2)


def test_kernels_have_names_and_macros_of_their_own():
    assert len({kernel.name for kernel in KERNELS}) == len({kernel.macros for kernel in KERNELS}) == len(KERNELS)


@pytest.mark.parametrize("by", [1, 2, 3, 7, 8, 32, 100, 131071])
def test_a_division_by_multiplication_is_the_quotient(by):
    divisor, multiplier, first, second = struct.unpack("<IIBBxx", division(by))
    assert divisor == by
    for n in (0, 1, by - 1, by, by + 1, 12345, 7 * by - 1, (1 << 31) - 1):
        high = n * multiplier >> 32
        assert ((n - high >> first) + high) >> second == n // by
