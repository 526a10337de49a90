"""Descriptors and tensor maps in words."""

from __future__ import annotations

import pytest

from fmha import emulator
from fmha.emulator.debug import descriptors

GOOD = 2 << 61 | 1 << 46 | 64 << 32 | 1 << 16 | 0x40


def test_a_shared_memory_descriptor():
    lines, good = descriptors.matrix(GOOD)
    assert good
    assert lines[1] == "  starts at shared 0x400, 128B swizzle"
    assert lines[2] == "  leading dimension byte offset 16, stride byte offset 1024"
    assert not [line for line in lines if "doubtful" in line]


@pytest.mark.parametrize(
    ("bits", "says"),
    [
        (GOOD & ~(1 << 46), "bits 46-48 are 0, sm_100 needs 1"),
        (GOOD & ~(7 << 61) | 3 << 61, "swizzle code 3 is invalid"),
        (GOOD | 1 << 14, "reserved bits are set"),
    ],
)
def test_what_is_wrong_with_one(bits, says):
    lines, good = descriptors.matrix(bits)
    assert not good
    assert says in lines[1]
    assert "stride: 1024 bytes" in "\n".join(lines)


@pytest.mark.parametrize(
    ("bits", "says"),
    [
        (GOOD & ~(0x3FFF << 32) | 20 << 32, "a stride of 320 is no multiple"),
        (GOOD + 8, "it starts 128 bytes into a pattern of 1024"),
        (GOOD & ~(0x3FFF << 32), "a stride of 0"),
    ],
)
def test_what_is_doubtful_about_one(bits, says):
    lines, good = descriptors.matrix(bits)
    assert good
    assert any(line.startswith(f"  doubtful: {says}") for line in lines)


def test_an_instruction_descriptor():
    plain = {"ws": False, "pair": False, "a_tmem": False, "sparse": False}
    lines, good = descriptors.instruction(0x08200490, "f16", **plain)
    assert good
    assert lines[1:] == ["  M = 128, N = 128, K = 16", "  A: bf16, K-major", "  B: bf16, K-major", "  D: f32"]
    lines, good = descriptors.instruction(0x08200490, "tf32", **plain)
    assert not good
    assert lines[1] == "  wrong: 0x08200490: A type 1, B type 1; kind::tf32 has no such type"


def test_a_tensor_map():
    raw = emulator.encode_tiled(
        dtype="bf16", address=0x1000, global_dim=(64, 384), global_strides=(128,), box_dim=(64, 128), swizzle="128B"
    )
    lines, good = descriptors.tensor_map(raw)
    assert good
    assert lines[1:3] == ["  dimension 0: 64, box 64", "  dimension 1: 384, 128 bytes apart, box 128"]
    lines, good = descriptors.tensor_map(raw[:20] + b"\xff" + raw[21:])
    assert not good
    assert lines[1].startswith("  wrong: ")
