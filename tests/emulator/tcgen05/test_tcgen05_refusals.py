"""What the tcgen05 family refuses: modifiers at decoding, descriptors and addresses at the instruction."""

from __future__ import annotations

import pytest

from fmha.emulator import PtxError
from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import B_AT, SIZE, mma_text, registers
from tests.emulator.tcgen05_numbers import instruction, k_major, mn_major

K128 = k_major(128)
A, B = K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT)


def fault(
    mods: str, idesc: int, *, a: int = A, b: int = B, d: int = 0, a_tmem: bool = False, tail: str = "%p3", pre="", **kw
):
    text = pre + mma_text(mods, d, a, b, idesc, a_tmem=a_tmem, tail=tail, accumulate=False)
    report = rig.run(text, bytes(SIZE), **kw).report
    return report.findings[-1]


F16 = ".cta_group::1.kind::f16"
F8 = ".cta_group::1.kind::f8f6f4"
WS = ".ws.cta_group::1.kind::f16"


def f16(m: int, n: int, **fields: int) -> int:
    return instruction("f16", m, n, "f16", "f16", **fields)


def f8(m: int, n: int, a: str, b: str = "e4m3", **fields: int) -> int:
    return instruction("f8f6f4", m, n, a, b, **fields)


INSTRUCTIONS = [
    (F16, f16(96, 64), "M = 96"),
    (F16, f16(32, 64), "M = 32"),
    (F16, f16(256, 64), "M = 256"),
    (F16, f16(128, 0), "N = 0"),
    (F16, f16(128, 264), "N = 264"),
    (WS, f16(64, 96), "N = 96"),
    (F16, f16(128, 64, shift=1), "maximum shift belongs to .ws"),
    (F16, f16(128, 64) | 1 << 2, "sparsity"),
    (F16, f16(128, 64) | 1, "sparsity selector"),
    (F16, f16(128, 64, saturate=1), "saturation belongs to kind::i8"),
    (F16, f16(128, 64) | 1 << 23, "reserved"),
    (F16, instruction("f16", 128, 64, "tf32", "f16"), "A type 2"),
    (F16, instruction("f16", 128, 64, "f16", "f16", "s32"), "D type 2"),
    (".cta_group::1.kind::tf32", instruction("tf32", 128, 64, "tf32", "tf32", "f16"), "D type 0"),
    (".cta_group::1.kind::i8", instruction("i8", 128, 64, "u8", "u8", "s32", negate_a=1), "does not negate"),
    (".cta_group::1.kind::i8", instruction("i8", 128, 40, "u8", "u8", "s32"), "N = 40"),
    (F8, f8(128, 64, "e2m3", a_mn=1), "K-major"),
    (F8, f8(128, 64, "e4m3", "e2m1", b_mn=1), "K-major"),
    (F8, f8(128, 24, "e4m3", b_mn=1), "steps of 16"),
    (F8, f8(128, 64, "e4m3") | 2 << 7, "A type 2"),
]


@pytest.mark.parametrize(("mods", "idesc", "text"), INSTRUCTIONS)
def test_instruction_descriptors(mods, idesc, text):
    finding = fault(mods, idesc)
    assert finding.rule == "instruction-descriptor"
    assert text in finding.message


SCALED = [
    ("mxf8f6f4.block_scale", instruction("mxf8f6f4", 128, 64, "e4m3", "e4m3", e8m0=0), "type ue8m0"),
    ("mxf8f6f4.block_scale", instruction("mxf8f6f4", 128, 64, "e4m3", "e4m3") | 1 << 31, "reserved"),
    ("mxf8f6f4.block_scale", instruction("mxf8f6f4", 256, 64, "e4m3", "e4m3"), "M = 256"),
    ("mxf4.block_scale", instruction("mxf4", 128, 64, "fp4", "fp4", id_a=1), "scale factor id 1"),
    ("mxf4.block_scale", instruction("mxf4", 128, 64, "fp4", "fp4") | 1 << 31, "sm_103a"),
    ("mxf4.block_scale", instruction("mxf4", 128, 64, "fp4", "fp4", b_mn=1), "K-major"),
    ("mxf4nvf4.block_scale.block16", instruction("mxf4nvf4", 128, 64, "fp4", "fp4", id_b=2), "scale factor id 2"),
    ("mxf4nvf4.block_scale.block32", instruction("mxf4nvf4", 128, 64, "fp4", "fp4", e8m0=0), "type ue8m0"),
]


@pytest.mark.parametrize(("kind", "idesc", "text"), SCALED)
def test_block_scaled_instruction_descriptors(kind, idesc, text):
    finding = fault(f".cta_group::1.kind::{kind}", idesc, tail="[%r8], [%r8], %p3")
    assert finding.rule == "instruction-descriptor"
    assert text in finding.message


def test_block_scaled_m_128_over_a_pair_is_refused():
    idesc = instruction("mxf8f6f4", 128, 64, "e4m3", "e4m3")
    finding = fault(".cta_group::2.kind::mxf8f6f4.block_scale", idesc, tail="[%r8], [%r8], %p3", pair=True)
    assert "not modelled" in finding.message


MATRICES = [
    (A & ~(7 << 46), "bits 46-48"),
    (A | 1 << 14, "reserved"),
    (A | 1 << 53, "reserved"),
    (A | 1 << 52, "sm_103a"),
    (A & ~(7 << 61) | 3 << 61, "swizzle code 3"),
    (A & ~(7 << 61) | 5 << 61, "swizzle code 5"),
    (A & ~(7 << 61) | 7 << 61, "swizzle code 7"),
    (A & ~(7 << 61) | 1 << 61, "no K-major atom"),
]


@pytest.mark.parametrize(("descriptor", "text"), MATRICES)
def test_matrix_descriptors(descriptor, text):
    finding = fault(F16, f16(128, 64), a=descriptor)
    assert finding.rule == "matrix-descriptor"
    assert text in finding.message


def test_mn_major_needs_the_swizzle_of_its_element_size():
    tf32 = instruction("tf32", 128, 64, "tf32", "tf32", a_mn=1)
    finding = fault(".cta_group::1.kind::tf32", tf32, a=mn_major(128, 2, 128).descriptor(rig.BASE))
    assert "32-bit elements" in finding.message
    finding = fault(F16, f16(128, 64, a_mn=1), a=mn_major(1, 4, 128).descriptor(rig.BASE))
    assert "32-byte atoms" in finding.message


def test_operands_outside_shared_memory():
    assert fault(F16, f16(128, 64), a=K128.descriptor(0)).rule == "shared-out-of-bounds"
    assert fault(F16, f16(128, 64), b=K128.descriptor(rig.BASE + SIZE)).rule == "shared-out-of-bounds"


ADDRESSES = [
    (F16, f16(128, 64), {"d": 16 << 16}, "lane 16"),
    (F16, f16(64, 64), {"d": 32 << 16}, "lane 32"),
    (F16, f16(128, 64), {"a_tmem": True, "a": 16 << 16 | 300}, "same lane alignment"),
    (F16, f16(64, 64), {"a_tmem": True, "a": 300, "d": 16 << 16}, "same lane alignment"),
    (F16, f16(128, 256), {"d": 300}, "not all allocated"),
    (F16, f16(128, 64), {"a_tmem": True, "a": 508}, "not all allocated"),
    (F16, f16(128, 64), {"d": 0xFFFF}, "not all allocated"),
    (F16, f16(128, 64, a_mn=1), {"a_tmem": True, "a": 300}, "transpose bit"),
]


@pytest.mark.parametrize(("mods", "idesc", "changes", "text"), ADDRESSES)
def test_tensor_memory_addresses(mods, idesc, changes, text):
    assert text in fault(mods, idesc, **changes).message


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (1 << 36, "reserved"),
        (1 << 62, "reserved"),
        (9 << 56, "column shift 9"),
        (1 << 39 | 3 << 48 | 4, "start count 4"),
    ],
)
def test_zero_column_masks(word, text):
    finding = fault(WS, f16(128, 64, shift=1), pre=registers(("%rd3", word)), tail="%p3, %rd3")
    assert finding.rule == "zero-column-mask"
    assert text in finding.message


def test_cp_and_shift_addresses():
    def last(issue: str) -> str:
        return rig.run(registers(("%rd1", A), ("%r8", 1 << 16)) + issue, bytes(4096)).report.findings[-1].message

    assert "starts at lane 0" in last("tcgen05.cp.cta_group::1.128x128b [%r8], %rd1;")
    assert "multiple of 32" in last("tcgen05.shift.cta_group::1.down [%r8];")
    assert "[0x400" in last("mov.b32 %r8, 0;\ntcgen05.cp.cta_group::1.128x128b [%r8], %rd1;")


def test_an_mma_by_a_whole_warp():
    text = mma_text(F16, 0, A, B, f16(128, 64), accumulate=False)
    assert rig.run("", bytes(SIZE), warps=text).report.findings[-1].rule == "mma-issued-by-many"


def test_the_reserved_bit_that_cudnn_sets_is_reported_under_strict():
    text = mma_text(F16, 0, A, B, f16(128, 64) | 1 << 29, accumulate=False)
    assert rig.run(text, bytes(SIZE)).rules == ["instruction-descriptor"]
    assert rig.run(text, bytes(SIZE), profile="lenient").rules == []


def test_mixed_cta_groups_are_reported_under_strict():
    text = registers(("%rd1", A), ("%r8", 0)) + "\ntcgen05.cp.cta_group::1.128x128b [%r8], %rd1;"
    shared = bytes(32768)
    assert "mixed-cta-group" in rig.run(text, shared, pair=True).rules
    assert "mixed-cta-group" not in rig.run(text, shared, pair=True, profile="lenient").rules


DECODING = [
    ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r8], %rd1, %rd2, %r10, %p3;", "6 to 8 operands"),
    ("tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r8], %rd1, %rd2, %r10, %r11, %p3;", "tensor-memory address"),
    ("tcgen05.mma.ws.cta_group::2.kind::f16 [%r8], %rd1, %rd2, %r10, %p3;", "cta_group::1 only"),
    ("tcgen05.mma.ws.cta_group::1.kind::mxf4.block_scale [%r8], %rd1, %rd2, %r10, [%r8], [%r8], %p3;", "no kind::mxf4"),
    ("tcgen05.mma.cta_group::1.kind::f64 [%r8], %rd1, %rd2, %r10, %p3;", "kind::f16"),
    ("tcgen05.mma.cta_group::1.kind::mxf4 [%r8], %rd1, %rd2, %r10, [%r8], [%r8], %p3;", "block_scale"),
    (
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%r8], %rd1, %rd2, %r10, [%r8], [%r8], %p3;",
        "needs its scale",
    ),
    ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16 [%r8], %rd1, %rd2, %r10, [%r8], [%r8], %p3;", "block16"),
    ("tcgen05.mma.cta_group::1.kind::f16.block_scale [%r8], %rd1, %rd2, %r10, %p3;", "block_scale"),
    ("tcgen05.mma.cta_group::1.kind::f16.collector::b0::fill [%r8], %rd1, %rd2, %r10, %p3;", "collector::b0::fill"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.collector::a::fill [%r8], %rd1, %rd2, %r10, %p3;", "collector::a::fill"),
    ("tcgen05.mma.cta_group::1.kind::f16.ashift [%r8], %rd1, %rd2, %r10, %p3;", "tensor memory"),
    ("tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use [%r8], [%r9], %rd2, %r10, %p3;", "ashift"),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4 [%r8], %rd1, %rd2, %r10, %p3, 2;", "no scale-input-d"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd1, %rd2, %r10, %p3, 16;", "0..15"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd1, %rd2, %r10, {%r1, %r2}, %p3;", "4 registers"),
    ("tcgen05.cp.cta_group::1.64x128b [%r8], %rd1;", "warpx2::02_13"),
    ("tcgen05.cp.cta_group::1.128x256b.warpx4 [%r8], %rd1;", "no multicast"),
    ("tcgen05.cp.cta_group::1.128x256b.b8x16 [%r8], %rd1;", "b6x16_p32"),
    ("tcgen05.shift.cta_group::1 [%r8];", "down"),
    ("tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1}, [%r8];", "128 registers"),
    ("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1}, [%r8];", "2 registers"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r8];", "operands"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r8], %r2;", "immHalfSplitoff"),
    ("tcgen05.ld.red.sync.aligned.32x32b.x1.max.f32 {%r1}, %r2, [%r8];", "at least .x2"),
    ("tcgen05.ld.red.sync.aligned.16x64b.x2.max.f32 {%r1, %r2}, %r3, [%r8];", "32x32b"),
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.multicast::cluster.b64 [%rd1];", "operands"),
]


@pytest.mark.parametrize(("text", "message"), DECODING)
def test_decoding(text, message):
    with pytest.raises(PtxError, match=message.replace(".", r"\.").replace("[", r"\[")):
        rig.run(text)
