"""Wide, hinted and strong loads and stores, cache control (PTX ISA 9.7.9.8-9.7.9.19)."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator
from tests.emulator.clusterlab import source

_MODULE = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .b64 in, .param .b64 out, .param .align 4 .b8 bytes[4])
{{
.reg .b64 %in, %out, %d<9>; .reg .b32 %i, %r<17>; .reg .b16 %h<9>; .reg .b128 %q<3>; .reg .pred %p<3>;
.shared .align 32 .b8 tile[2048];
ld.param.b64 %in, [in]; ld.param.b64 %out, [out]; mov.u32 %i, %tid.x;
mad.wide.u32 %in, %i, 32, %in; mad.wide.u32 %out, %i, 32, %out;
{body}
ret;
}}
"""
_EIGHT = "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}"
_COPIES = [
    f"ld.global.v8.b32 {_EIGHT}, [%in]; st.global.v8.b32 [%out], {_EIGHT};",
    (
        f"ld.relaxed.gpu.global.L1::no_allocate.v8.b32 {_EIGHT}, [%in];"
        f"st.relaxed.cta.global.L1::no_allocate.v8.b32 [%out], {_EIGHT};"
    ),
    (
        "ld.global.nc.L1::no_allocate.L2::evict_normal.L2::256B.v4.u64 {%d1, %d2, %d3, %d4}, [%in];"
        "st.v4.b64 [%out], {%d1, %d2, %d3, %d4};"
    ),
    (
        "ld.global.b128 %q1, [%in]; ld.volatile.global.b128 %q2, [%in+16];"
        "st.global.cs.b128 [%out], %q1; st.release.gpu.global.b128 [%out+16], %q2;"
    ),
    (
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %d5, 0.5;"
        "ld.global.L2::cache_hint.v4.b64 {%d1, %d2, %d3, %d4}, [%in], %d5;"
        "st.global.L1::evict_last.L2::cache_hint.v4.b64 [%out], {%d1, %d2, %d3, %d4}, %d5;"
    ),
    (
        "ldu.global.v4.b32 {%r1, %r2, %r3, %r4}, [%in]; ldu.v2.u64 {%d1, %d2}, [%in+16];"
        "st.global.v4.b32 [%out], {%r1, %r2, %r3, %r4}; st.global.v2.b64 [%out+16], {%d1, %d2};"
    ),
    (
        f"ld.mmio.relaxed.sys.global.b32 %r1, [%in]; ld.lu.global.v8.b32 {_EIGHT}, [%in];"
        f"prefetch.global.L2 [%in]; prefetchu.L1 [%in]; st.wt.global.v8.b32 [%out], {_EIGHT};"
    ),
]


def _run(body: str, data: np.ndarray) -> tuple[emulator.Report, np.ndarray]:
    device = emulator.Device()
    source, out = device.alloc(data.nbytes, "in"), device.alloc(data.nbytes, "out")
    device.write(source.address, data)
    module = emulator.load_ptx(_MODULE.format(body=body))
    report = device.launch(module, "k", (1, 1, 1), (64, 1, 1), [source.address, out.address, b"\x01\x82\x03\x84"])
    return report, device.read(out.address, data.nbytes)


@pytest.mark.parametrize("body", _COPIES)
def test_wide_and_hinted_copies(body: str) -> None:
    data = np.random.default_rng(1).integers(0, 256, 2048).astype(np.uint8)
    report, out = _run(body, data)
    assert not report.findings
    np.testing.assert_array_equal(out, data)


def test_sinks_skip_elements() -> None:
    data = np.arange(512, dtype=np.uint32)
    report, out = _run("ld.global.v4.b32 {_, %r2, _, %r4}, [%in]; st.global.v2.b32 [%out], {%r2, %r4};", data)
    assert not report.findings
    np.testing.assert_array_equal(out.view(np.uint32).reshape(64, 8)[:, :2], data.reshape(64, 8)[:, [1, 3]])


def test_b128_through_shared_memory_and_bytes_of_parameters() -> None:
    body = """mov.b32 %r1, tile; mad.lo.u32 %r1, %i, 16, %r1; ld.global.b128 %q1, [%in];
st.weak.shared::cta.b128 [%r1], %q1; ld.shared.b128 %q2, [%r1]; st.global.b128 [%out], %q2;
ld.param.v2.b8 {%h1, %h2}, [bytes]; ld.param.b8 %h3, [bytes+3]; ld.param.s8 %h4, [bytes+1];
st.global.v4.b16 [%out+16], {%h1, %h2, %h3, %h4};"""
    data = np.random.default_rng(2).integers(0, 256, 2048).astype(np.uint8)
    report, out = _run(body, data)
    assert not report.findings
    rows = out.reshape(64, 32)
    np.testing.assert_array_equal(rows[:, :16], data.reshape(64, 32)[:, :16])
    assert rows[5, 16:24].view(np.uint16).tolist() == [0x01, 0x82, 0x84, 0xFF82]


def test_a_wide_access_is_aligned_to_its_size() -> None:
    report, _ = _run(f"ld.global.v8.b32 {_EIGHT}, [%in+16];", np.zeros(2048, np.uint8))
    assert [f.rule for f in report.findings] == ["misaligned"]


@pytest.mark.parametrize("line", ["ld.acquire.global.b32 %r1, [%in];", "st.acquire.gpu.global.b32 [%in], %r1;"])
def test_ordering_needs_its_scope_and_its_direction(line: str) -> None:
    with pytest.raises(emulator.PtxError, match=line.split(".")[0]):
        _run(line, np.zeros(2048, np.uint8))


def test_bulk_stores_of_zeros() -> None:
    """st.bulk over bytes 8 to 55 of the array that warp 0 has filled (PTX ISA 9.7.9.13)."""
    fill = "mul.lo.u32 %r1, %i, 4; mov.b32 %r2, tile; add.u32 %r2, %r2, %r1; not.b32 %r3, 0; st.shared.b32 [%r2], %r3;"
    bulk = "setp.eq.u32 %p1, %i, 0; mov.b64 %d1, 48; @%p1 st.bulk.weak.shared::cta [tile+8], %d1, 0;"
    generic = "mov.b64 %d2, tile; cvta.shared.u64 %d2, %d2; @%p1 st.bulk [%d2+64], 8, 0;"
    read = "bar.sync 0; ld.shared.b32 %r4, [%r2]; st.global.b32 [%out], %r4;"
    body = f"{fill} bar.sync 0; {bulk} {generic} {read}"
    report, out = _run(body, np.zeros(2048, np.uint8))
    assert not report.findings
    words = out.view(np.uint32)[::8]
    zero = {*range(2, 14), 16, 17}
    np.testing.assert_array_equal(words, [0 if k in zero else 0xFFFFFFFF for k in range(64)])
    other = bulk.replace("%i, 0", "%i, 32")  # the other warp, with no barrier before
    assert {f.rule for f in _run(f"{fill} {other} {read}", np.zeros(2048, np.uint8))[0].findings} == {"race"}


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("st.bulk.weak.shared::cta [tile+4], 48, 0;", "misaligned"),
        ("st.bulk.weak.shared::cta [tile], 44, 0;", "misaligned"),
        ("st.bulk.weak.shared::cta [tile], 1048576, 0;", "shared-out-of-bounds"),
    ],
)
def test_bulk_stores_that_fault(statement: str, rule: str) -> None:
    report, _ = _run(statement, np.zeros(2048, np.uint8))
    assert [f.rule for f in report.findings] == [rule]


def test_bulk_stores_of_something_else_do_not_exist() -> None:
    with pytest.raises(emulator.PtxError, match="constant 0"):
        _run("st.bulk.weak.shared::cta [tile], 8, 1;", np.zeros(2048, np.uint8))


def test_the_shared_address_of_a_null_pointer() -> None:
    """Made by compilers for what is never accessed; an access faults."""
    make = "mov.b64 %d1, 0; cvta.to.shared.u64 %d2, %d1;"
    assert not _run(make, np.zeros(2048, np.uint8))[0].findings
    used, _ = _run(f"{make} ld.shared.b32 %r1, [%d2];", np.zeros(2048, np.uint8))
    assert [f.rule for f in used.findings] == ["shared-out-of-bounds"]
    other, _ = _run("cvta.to.shared.u64 %d2, %in;", np.zeros(2048, np.uint8))
    assert [f.rule for f in other.findings] == ["address-space"]


def test_elements_of_arrays() -> None:
    """`a[1]` where an address is asked for, in every space that ptxas takes it in."""
    body = """
    .shared .align 8 .b64 slots[4]; .local .align 4 .b32 mine[4];
    mov.b32 %r1, 11; st.shared.b32 slots[2], %r1; mov.b32 %r2, slots[2]; ld.shared.b32 %r3, [%r2];
    mov.b32 %r1, 22; st.local.b32 mine[3], %r1; mov.b64 %d1, mine[2]; ld.local.b32 %r4, [%d1+4];
    mov.u64 %d2, numbers[3]; ld.global.b32 %r5, [%d2]; ld.global.b32 %r6, numbers[1]; ld.const.b32 %r7, fixed[2];
    ld.param.b32 %r8, out[0]; cvt.u32.u64 %r9, %out; sub.u32 %r8, %r8, %r9;
    st.global.v4.b32 [%out], {%r3, %r4, %r5, %r6}; st.global.v2.b32 [%out+16], {%r7, %r8};
    """
    arrays = {"out": np.zeros(6, np.uint32)}
    declared = ".global .b32 numbers[4] = {1, 2, 3, 4};\n.const .b32 fixed[4] = {5, 6, 7, 8};\n"
    text = source(body, arrays, {}).replace(".visible .entry", f"{declared}.visible .entry")
    device = emulator.Device()
    out = device.alloc(24, "out")
    report = device.launch(emulator.load_ptx(text), "kernel", (1, 1, 1), (1, 1, 1), [out.address])
    assert not report.findings
    np.testing.assert_array_equal(device.read(out.address, 24).view(np.uint32), [11, 22, 4, 2, 7, 0])
