"""Descriptor bit fields against the PTX ISA's tables, packed here a second time and by hand."""

import itertools
import subprocess
from collections.abc import Callable

import pytest

SWIZZLES = {"kNone": 0, "k128BytesAtom32": 1, "k128Bytes": 2, "k64Bytes": 4, "k32Bytes": 6}


def pack(*fields: tuple[int, int, int]) -> int:
    """Each field is (first bit, last bit, value), as the tables print them."""
    word = 0
    for first, last, value in fields:
        assert 0 <= value < 1 << (last - first + 1), f"{value} does not fit bits {first}-{last}"
        word |= value << first
    return word


def smem_descriptor(address: int, leading: int, stride: int, swizzle: int) -> int:
    return pack((0, 13, address >> 4), (16, 29, leading >> 4), (32, 45, stride >> 4), (46, 48, 1), (61, 63, swizzle))


def instruction_descriptor(m: int, n: int, d: int, a: int, b: int, a_major: int, b_major: int) -> int:
    return pack(
        (4, 5, d), (7, 9, a), (10, 12, b), (15, 15, a_major), (16, 16, b_major), (17, 22, n >> 3), (24, 28, m >> 4)
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluate(host_compile: Callable[[str], subprocess.CompletedProcess[str]]) -> Callable[[list[str]], list[int]]:
    """The values of C++ constant expressions."""

    def run(expressions: list[str]) -> list[int]:
        lines = ['#include "descriptors.cuh"', "#include <cinttypes>", "#include <cstdio>", "using namespace fmha;"]
        lines += ["int main() {"]
        for expression in expressions:
            lines += [f'    {{ constexpr uint64_t value = {expression}; std::printf("%" PRIu64 "\\n", value); }}']
        result = host_compile("\n".join([*lines, "}"]))
        assert result.returncode == 0, result.stderr
        return [int(line) for line in result.stdout.split()]

    return run


def test_smem_descriptor_fields(evaluate: Callable[[list[str]], list[int]]) -> None:
    cases = list(itertools.product((0, 16, 0x400, 0x3FFF0), (0, 16, 16384, 0x3FFF0), (0, 1024, 0x3FFF0), SWIZZLES))
    got = evaluate([f"smem_descriptor({a}, {lead}, {s}, Swizzle::{name})" for a, lead, s, name in cases])
    assert got == [smem_descriptor(a, lead, s, SWIZZLES[name]) for a, lead, s, name in cases]


def test_instruction_descriptor_fields(evaluate: Callable[[list[str]], list[int]]) -> None:
    shapes = [(64, 8), (64, 256), (128, 16), (128, 64), (128, 128), (128, 256), (256, 256)]
    cases = [(*shape, *flags) for shape in shapes for flags in itertools.product((0, 1), repeat=5)]
    got = evaluate(
        [
            f"instruction_descriptor({m}, {n}, Accumulator({d}), Operand({a}), Operand({b}), Major({am}), Major({bm}))"
            for m, n, d, a, b, am, bm in cases
        ]
    )
    assert got == [instruction_descriptor(*case) for case in cases]


def test_values_derived_by_hand(evaluate: Callable[[list[str]], list[int]]) -> None:
    """Worked out bit by bit on paper, so that a slip common to both packers would show."""
    operands = "Accumulator::kF32, Operand::kBf16, Operand::kBf16"
    got = evaluate(
        [
            # Q at 0x400: 0x40 · stride 1024 is 0x40 at bit 32 · bit 46 · swizzle 2 is bit 62
            "smem_descriptor(0x400, 0, 1024, Swizzle::k128Bytes)",
            # V at 0xa400: 0xa40 · leading 16384 is 0x400 at bit 16
            "smem_descriptor(0xa400, 16384, 1024, Swizzle::k128Bytes)",
            # Hopper's code for 128 bytes would have set bit 61 or 63
            "smem_descriptor(0, 0, 0, Swizzle::k64Bytes)",
            "smem_descriptor(0, 0, 0, Swizzle::k32Bytes)",
            # S: 0x490 · 128/8 = 16 at bit 17 · 128/16 = 8 at bit 24
            f"instruction_descriptor(128, 128, {operands}, Major::kK, Major::kK)",
            # O: 0x490 · 64/8 = 8 at bit 17 · 8 at bit 24 · B is MN-major, bit 16
            f"instruction_descriptor(128, 64, {operands}, Major::kK, Major::kMn)",
        ]
    )
    assert [f"{value:#x}" for value in got] == [
        "0x4000404000000040",
        "0x4000404004000a40",
        "0x8000400000000000",
        "0xc000400000000000",
        "0x8200490",
        "0x8110490",
    ]


def test_advance_changes_the_start_address_alone(evaluate: Callable[[list[str]], list[int]]) -> None:
    base = "smem_descriptor(0x1c400, 16384, 1024, Swizzle::k128Bytes)"
    steps = [0, 32, 96, 2048, 14336]
    got = evaluate([f"advance_descriptor({base}, {step})" for step in steps])
    assert got == [smem_descriptor(0x1C400 + step, 16384, 1024, 2) for step in steps]
