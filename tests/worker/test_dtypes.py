"""The types of buffers: every pattern is read as its library has it, and stored back as it was."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.worker.subjects.dtypes import DTYPES, dtype_of, from_dtype, plain, to_dtype, viewed


@pytest.mark.parametrize("name", DTYPES)
def test_every_pattern_of_a_type_is_read_and_stored(name: str) -> None:
    kind = DTYPES[name]
    random = np.random.default_rng(0)
    bits = random.integers(0, 256, (64, kind.storage.itemsize * 8), np.uint8).view(kind.storage)
    if name in ("e2m3", "e3m2"):
        bits &= 0x3F  # six bits of a byte
    values = kind.read(bits)
    assert values.shape == (64, 8 * kind.per_item)
    back = kind.read(kind.store(values)) if name not in ("i64", "u64") else values  # a float64 has 53 bits
    assert np.array_equal(back, values, equal_nan=True)


def test_bf16_is_rounded_as_the_judge_rounds_it() -> None:
    values = np.random.default_rng(1).standard_normal(10_000) * 1e3
    assert np.array_equal(to_dtype(values, "bf16"), round_to_bf16(values))


def test_small_types() -> None:
    assert to_dtype([1.0, 448.0], "e4m3").tolist() == [0x38, 0x7E]
    assert np.isnan(from_dtype(to_dtype([1e6], "e4m3"), "e4m3")).all()
    assert from_dtype(to_dtype([1e6, -1e6], "e4m3", saturate=True), "e4m3").tolist() == [448.0, -448.0]
    assert np.isinf(from_dtype(to_dtype([1e6], "e5m2"), "e5m2")).all()
    packed = to_dtype([[0.5, 6.0, -1.0, 0.0]], "e2m1x2")
    assert packed.tolist() == [[0x71, 0x0A]]
    assert from_dtype(packed, "e2m1x2").tolist() == [[0.5, 6.0, -1.0, 0.0]]
    with pytest.raises(ValueError, match="2 elements a byte"):
        dtype_of("e2m1x2").shape((4, 3))


@pytest.mark.parametrize(
    ("word", "meant"),
    [("float8_e4m3fn", "e4m3"), ("bfloat16", "bf16"), ("half", "f16"), ("e4m4", "e4m3"), ("int8", "i8")],
)
def test_an_unknown_type_is_told_with_the_likely_one(word: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"{word}.* is not one of f64, f32, .*; {meant} is likely meant"):
        dtype_of(word)


def test_ml_dtypes_arrays_cross_as_bits() -> None:
    given = dtype_of("e4m3").read(np.arange(256, dtype=np.uint8)).astype(dtype_of("e4m3").values)
    bits, kind = plain(given)
    assert (bits.dtype, kind) == (np.uint8, "float8_e4m3fn")
    assert np.array_equal(viewed(bits, kind).view(np.uint8), given.view(np.uint8))
    assert plain(np.zeros(3, np.float32))[1] == ""
