"""tcgen05.mma's options against float64 oracles: negation, masks, scales of D, shifts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import (
    B_AT,
    K128,
    expect,
    f32_words,
    halves,
    images,
    mma_text,
    registers,
    start_d,
)
from tests.emulator.tcgen05_numbers import d_cells, instruction, random_operand


def test_negation():
    rng = np.random.default_rng(13)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    for negate_a, negate_b in ((1, 0), (0, 1), (1, 1)):
        issue = mma_text(
            ".cta_group::1.kind::f16", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
            instruction("f16", 128, 64, "f16", "f16", negate_a=negate_a, negate_b=negate_b), accumulate=False,
        )  # fmt: skip
        sign = (-1) ** (negate_a + negate_b)
        expect(rig.run(issue, images(a, b, K128, K128)), d_cells(128, 64), 0, sign * (av @ bv.T))


@pytest.mark.parametrize("pair", [False, True])
def test_disabled_lanes_keep_their_words(pair):
    rng = np.random.default_rng(14)
    m = 256 if pair else 128
    (a, av), (b, bv) = random_operand(rng, "f16", m), random_operand(rng, "f16", 64)
    words = [0x80000001, 0, 0xFFFF0000, 0x12345678, 0xFFFFFFFF, 0, 7, 0x0F0F0F0F][: m // 32]
    masks = [(f"%r{16 + k}", word) for k, word in enumerate(words)]
    tmem = np.full((m // 128, 128, 512), 0xABCD, np.uint32)
    issue = registers(*masks) + mma_text(
        f".cta_group::{1 + pair}.kind::f16", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("f16", m, 64, "f16", "f16"), accumulate=False,
        tail="{" + ", ".join(name for name, _ in masks) + "}, %p3",
    )  # fmt: skip
    shared = [images(x, y, K128, K128) for x, y in zip(halves(a, pair), halves(b, pair), strict=True)]
    outcome = rig.run(issue, shared, tmem, pair=pair).tmem.reshape(m, 512)
    disabled = np.array([word >> bit & 1 for word in words for bit in range(32)], bool)
    assert (outcome[disabled] == 0xABCD).all()
    np.testing.assert_allclose(
        outcome[~disabled, :64].copy().view(np.float32), (av @ bv.T)[~disabled], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("kind", "name"), [("f16", "f16"), ("tf32", "tf32")])
def test_scale_input_d(kind, name):
    rng = np.random.default_rng(15)
    (a, av), (b, bv) = random_operand(rng, name, 128), random_operand(rng, name, 64)
    d = start_d(rng, 128, 64)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, :64] = f32_words(d)
    issue = mma_text(
        f".cta_group::1.kind::{kind}", 0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction(kind, 128, 64, name, name), tail="%p3, 3",
    )  # fmt: skip
    expect(rig.run(issue, images(a, b, K128, K128), tmem), d_cells(128, 64), 0, av @ bv.T + d / 8)


def test_ashift_takes_the_next_row_but_for_the_last():
    rng = np.random.default_rng(16)
    (a, av), (b, bv) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    tmem = np.zeros((128, 512), np.uint32)
    tmem[:, 300:308] = a.view(np.uint32)
    issue = mma_text(
        ".cta_group::1.kind::f16.ashift.collector::a::lastuse", 0, 300, K128.descriptor(rig.BASE + B_AT),
        instruction("f16", 128, 64, "f16", "f16"), a_tmem=True, accumulate=False,
    )  # fmt: skip
    shifted = np.concatenate([av[1:], av[-1:]])
    expect(rig.run(issue, images(a, b, K128, K128), tmem), d_cells(128, 64), 0, shifted @ bv.T)


# The four examples of PTX ISA 9.7.16.4.3, bit 0 first; x repeats the pattern to the sub-mask's end.
def repeated(first: str, period: str, n: int) -> str:
    return (first + period * n)[:n]


MASKS = [
    (128, {"skip": 4, "use": 3}, [repeated("", "0", 64)]),
    (128, {"nonzero": 1, "skip": 2, "use": 3}, [repeated("", "0000111", 64)]),
    (
        64,
        {"nonzero": 1, "skip": 2, "use": 3, "first": 0b01},
        [repeated("111", "0000111", 32), repeated("", "0000111", 32)],
    ),
    (
        32,
        {"nonzero": 1, "skip": 2, "use": 3, "first": 0b0011, "start": 0x01020100, "shift": 2},
        [repeated(x, "0000111", 16) for x in ("111", "11", "00111", "000111")],
    ),
]


@pytest.mark.parametrize(("m", "fields", "parts"), MASKS)
def test_zero_column_masks(m, fields, parts):
    rng = np.random.default_rng(17)
    shift = fields.get("shift", 0)
    (a, av), (b, bv) = random_operand(rng, "f16", m), random_operand(rng, "f16", 72)
    word = fields.get("start", 0) | fields.get("first", 0) << 32 | fields.get("nonzero", 0) << 39
    word |= fields["skip"] << 40 | fields["use"] << 48 | shift << 56
    issue = registers(("%rd3", word)) + mma_text(
        ".ws.cta_group::1.kind::f16.collector::b2::fill",
        0, K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT),
        instruction("f16", m, 64, "f16", "f16", shift=2), tail="%p3, %rd3", accumulate=False,
    )  # fmt: skip
    used = bv[shift : shift + 64].copy()
    used[np.array([c == "1" for c in "".join(parts)])] = 0
    outcome = rig.run(issue, images(a, b, K128, K128))
    assert outcome.rules == []
    expect(outcome, d_cells(m, 64, ws=True), 0, av @ used.T)
