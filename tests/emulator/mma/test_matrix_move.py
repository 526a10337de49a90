"""ldmatrix, stmatrix, movmatrix against matrices written out row by row."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha import emulator
from tests.emulator import matrix_rig as rig

RNG = np.random.default_rng(11)
SHARED = ".shared .align 128 .b8 smem[8192];"

# A thread fills its row of 16 bytes, 48 bytes apart, so that rows are neither adjacent nor in one swizzle.
FILL = """
mov.u32 %r60, smem;
mad.lo.u32 %r61, %lane0, 48, %r60;
mad.wide.u32 %rd0, %lane0, 16, %p_rows;
ld.global.v4.b32 {%r50, %r51, %r52, %r53}, [%rd0];
st.shared.v4.b32 [%r61], {%r50, %r51, %r52, %r53};
bar.warp.sync -1;
"""


def _load(mnemonic: str, registers: int, rows: NDArray[np.uint8], address: str = "%r61") -> NDArray[np.uint8]:
    """[lane, register, byte] of an ldmatrix over 32 rows of 16 bytes."""
    vector = "{" + ", ".join(f"%r{k}" for k in range(registers)) + "}"
    body = FILL + f"{mnemonic} {vector}, [{address}];\nmad.wide.u32 %rd1, %lane0, {4 * registers}, %p_out;\n"
    body += "\n".join(f"st.global.b32 [%rd1+{4 * k}], %r{k};" for k in range(registers))
    out = rig.run(body, {"rows": rows, "out": 128 * registers}, declarations=SHARED)
    assert out.rules == []
    return out.buffers["out"].reshape(32, registers, 4)


def _rows() -> NDArray[np.uint8]:
    return RNG.integers(0, 256, (32, 16), dtype=np.uint8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("space", [".shared", ".shared::cta"])
def test_ldmatrix_b16(count: int, trans: bool, space: str) -> None:
    rows = _rows()
    got = _load(f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}{space}.b16", count, rows)
    matrices = rows.reshape(4, 128).view(np.uint16).reshape(4, 8, 8)
    for r in range(count):
        m = matrices[r].T if trans else matrices[r]
        for lane in range(32):
            pair = got[lane, r].view(np.uint16)
            assert tuple(pair) == (m[lane // 4, 2 * (lane % 4)], m[lane // 4, 2 * (lane % 4) + 1])


def test_ldmatrix_through_a_generic_address() -> None:
    rows = _rows()
    body = (
        FILL
        + """
    cvt.u64.u32 %rd2, %r61;
    cvta.shared.u64 %rd2, %rd2;
    ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%rd2];
    mad.wide.u32 %rd1, %lane0, 4, %p_out;
    st.global.b32 [%rd1], %r0;
    """
    )
    out = rig.run(body, {"rows": rows, "out": 128}, declarations=SHARED)
    assert out.rules == []
    np.testing.assert_array_equal(out.buffers["out"].reshape(8, 16), rows[:8])


@pytest.mark.parametrize(
    "address", ["%r61", "%rd2", "%rd2+0"], ids=["32 bits", "a shared address in 64 bits", "with an offset"]
)
def test_shared_addresses_where_a_generic_one_is_meant(address: str) -> None:
    """ptxas takes the low half of what ldmatrix and stmatrix without .shared are given: public kernels rely on it."""
    rows = _rows()
    body = (
        FILL
        + f"""
    cvt.u64.u32 %rd2, %r61;
    ldmatrix.sync.aligned.m8n8.x1.b16 {{%r0}}, [{address}];
    bar.warp.sync -1;
    not.b32 %r0, %r0;
    stmatrix.sync.aligned.m8n8.x1.b16 [{address}], {{%r0}};
    bar.warp.sync -1;
    ld.shared.v4.b32 {{%r50, %r51, %r52, %r53}}, [%r61];
    mad.wide.u32 %rd1, %lane0, 16, %p_out;
    st.global.v4.b32 [%rd1], {{%r50, %r51, %r52, %r53}};
    """
    )
    out = rig.run(body, {"rows": rows, "out": 512}, declarations=SHARED)
    assert out.rules == []
    expected = np.concatenate([~rows[:8], rows[8:]])
    np.testing.assert_array_equal(out.buffers["out"].reshape(32, 16), expected)


def _packed(rows: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """16 elements a row as bytes, from 4- or 6-bit fields: 4-bit ones in bits 2-5."""
    row_bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : 16 * bits].reshape(-1, 16, bits)
    values = (row_bits * (1 << np.arange(bits))).sum(axis=2)
    return (values << (2 if bits == 4 else 0)).astype(np.uint8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("fmt", "bits"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
def test_ldmatrix_m8n16(count: int, fmt: str, bits: int) -> None:
    rows = _rows()
    got = _load(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{fmt}", count, rows)
    want = _packed(rows, bits).reshape(4, 8, 4, 4)
    for r in range(count):
        np.testing.assert_array_equal(got[:, r], want[r].reshape(32, 4))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("suffix", "bits"), [("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)])
def test_ldmatrix_m16n16(count: int, suffix: str, bits: int) -> None:
    """A lane has four rows of two columns. CuTe's SM100_U8x8_LDSM_T moves two bytes of each of the instruction's
    registers into each of its own, and those it describes."""
    rows = _rows()
    got = _load(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{suffix}", 2 * count, rows)
    data = rows if bits == 8 else _packed(rows, bits)
    first, second = got[:, ::2], got[:, 1::2]
    reordered = np.empty_like(got)
    reordered[:, ::2] = np.concatenate([first[..., :2], second[..., :2]], axis=2)
    reordered[:, 1::2] = np.concatenate([first[..., 2:], second[..., 2:]], axis=2)
    for r in range(2 * count):
        matrix = data[16 * (r // 2) : 16 * (r // 2) + 16]
        for lane in range(32):
            for byte in range(4):
                # Logical bit of (thread, value): (4, 8), (8, 2, 2, 2) : (256, 8), (1, 128, 64, 1024).
                at = lane % 4 * 256 + lane // 4 * 8 + byte % 2 * 128 + byte // 2 * 64 + r % 2 * 1024
                row, column = at // 128, at % 128 // 8
                # The row that lane i names: (2, 2, 4) : (128, 1024, 256).
                provider = row % 2 + row // 8 * 2 + row % 8 // 2 * 4
                assert reordered[lane, r, byte] == matrix[provider, column]


def _store(mnemonic: str, registers: int, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The 32 rows after an stmatrix of [lane, register, byte], the untouched ones as 0xEE."""
    names = [f"%r{k}" for k in range(registers)]
    body = "mov.u32 %r60, smem;\nmad.lo.u32 %r61, %lane0, 48, %r60;\nmov.b32 %r50, 0xEEEEEEEE;\n"
    body += "st.shared.v4.b32 [%r61], {%r50, %r50, %r50, %r50};\nbar.warp.sync -1;\n"
    body += f"mad.wide.u32 %rd1, %lane0, {4 * registers}, %p_values;\n"
    body += "\n".join(f"ld.global.b32 {name}, [%rd1+{4 * k}];" for k, name in enumerate(names))
    body += f"\n{mnemonic} [%r61], {{{', '.join(names)}}};\nbar.warp.sync -1;\n"
    body += "ld.shared.v4.b32 {%r50, %r51, %r52, %r53}, [%r61];\nmad.wide.u32 %rd0, %lane0, 16, %p_rows;\n"
    body += "st.global.v4.b32 [%rd0], {%r50, %r51, %r52, %r53};\n"
    out = rig.run(body, {"values": values, "rows": 512}, declarations=SHARED)
    assert out.rules == []
    return out.buffers["rows"].reshape(32, 16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_stmatrix_b16(count: int, trans: bool) -> None:
    values = RNG.integers(0, 256, (32, count, 4), dtype=np.uint8)
    got = _store(f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16", count, values)
    for r in range(count):
        m = np.ascontiguousarray(values[:, r]).view(np.uint16).reshape(8, 8)
        np.testing.assert_array_equal(got[8 * r : 8 * r + 8].view(np.uint16), m.T if trans else m)
    assert np.all(got[8 * count :] == 0xEE)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_m16n8(count: int) -> None:
    """A register holds rows (g, g + 8) and columns (2t, 2t + 1) of a 16 x 8 matrix of bytes, stored transposed."""
    values = RNG.integers(0, 256, (32, count, 4), dtype=np.uint8)
    got = _store(f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8", count, values)
    for r in range(count):
        m = np.zeros((16, 8), np.uint8)
        for lane in range(32):
            for byte in range(4):
                m[lane // 4 + 8 * (byte // 2), lane % 4 * 2 + byte % 2] = values[lane, r, byte]
        np.testing.assert_array_equal(got[8 * r : 8 * r + 8], m.T)


def test_movmatrix() -> None:
    values = RNG.integers(0, 2**32, 32, dtype=np.uint32)
    body = """
    mad.wide.u32 %rd0, %lane0, 4, %p_x;
    ld.global.b32 %r0, [%rd0];
    movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;
    st.global.b32 [%rd0], %r0;
    """
    out = rig.run(body, {"x": values})
    assert out.rules == []
    np.testing.assert_array_equal(out.array("x", np.uint16).reshape(8, 8), values.view(np.uint16).reshape(8, 8).T)


def test_rows_are_aligned() -> None:
    body = FILL + "add.u32 %r61, %r61, 8;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r61];"
    assert rig.run(body, {"rows": _rows()}, declarations=SHARED).rules == ["misaligned"]


def test_rows_lie_in_shared_memory() -> None:
    body = FILL + "mov.u32 %r61, 65536;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r61];"
    assert rig.run(body, {"rows": _rows()}, declarations=SHARED).rules == ["shared-out-of-bounds"]
    body = FILL + "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%p_rows];"
    assert rig.run(body, {"rows": _rows()}, declarations=SHARED).rules == ["address-space"]


def test_unwritten_rows() -> None:
    """Only the rows that take part are read: .x1 reads eight, of which the last is not written."""
    body = """
    mov.u32 %r60, smem;
    mad.lo.u32 %r61, %lane0, 16, %r60;
    setp.lt.u32 %p0, %lane0, WRITTEN;
    mov.b32 %r0, 0;
    @%p0 st.shared.v4.b32 [%r61], {%r0, %r0, %r0, %r0};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r61];
    """
    assert rig.run(body.replace("WRITTEN", "8"), {"x": 4}, declarations=SHARED).rules == []
    assert rig.run(body.replace("WRITTEN", "7"), {"x": 4}, declarations=SHARED).rules == ["uninitialised-shared"]


RACE = """
mov.u32 %r60, smem;
and.b32 %r10, %tid0, 31;
mad.lo.u32 %r61, %r10, 16, %r60;
setp.ge.u32 %p0, %tid0, 32;
mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;
@%p0 bra $second;
FIRST
$second:
BARRIER
@!%p0 bra $end;
SECOND
$end:
"""


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("writer", ["st.shared.v4.b32", "stmatrix.sync.aligned.m8n8.x4.shared.b16"])
def test_race_between_warps(barrier: bool, writer: str) -> None:
    body = RACE.replace("FIRST", f"{writer} [%r61], {{%r0, %r1, %r2, %r3}};")
    body = body.replace("SECOND", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r61];")
    body = body.replace("BARRIER", "bar.sync 0;" if barrier else "")
    out = rig.run(body, {"x": 4}, declarations=SHARED, block=(64, 1, 1))
    assert out.rules == ([] if barrier else ["race"])


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r0,%r1,%r2,%r3}, [%r9]", "sm_100a", "x1 and .x2"),
        ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r0,%r1}, [%r9]", "sm_100a", "mandatory"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%r9]", "sm_90a", "sm_100a"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [%r9]", "sm_90a", "2 registers"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r0}, [%r9]", "sm_100a", "does not go"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b8 {%r0}, [%r9]", "sm_100a", "b16 is missing"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r9], {%r0}", "sm_100a", "mandatory"),
    ],
)
def test_refused(text: str, target: str, message: str) -> None:
    with pytest.raises(emulator.PtxError, match=message):
        rig.run(f"{text};", {"x": 4}, target=target)
