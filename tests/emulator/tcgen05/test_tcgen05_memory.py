"""Tensor memory: tcgen05.ld and .st in every shape, tcgen05.cp and .shift, allocation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.tcgen05.test_tcgen05_mma import registers
from tests.emulator.tcgen05_numbers import containers, k_major, pack

WORDS = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512) * np.uint32(2654435761)
SIZES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def position(shape: str, lane: int, register: int) -> tuple[int, int]:
    """(lane, column) of a register, from the bits of the thread's index (figures of PTX ISA 9.7.16.2.3.1)."""
    t0, t1, high = lane & 1, lane >> 1 & 1, lane >> 2
    if shape == "32x32b":
        return lane, register
    if shape == "16x64b":
        return high + 8 * t0, t1 + 2 * register
    if shape == "16x128b":
        return high + 8 * (register & 1), (lane & 3) + 4 * (register >> 1)
    if shape == "16x256b":
        return high + 8 * (register >> 1 & 1), (register & 1) + 2 * (lane & 3) + 8 * (register >> 2)
    return lane & 15, register  # 16x32bx2


LOAD_COLUMN = 8
CASES = [(shape, n) for shape, size in SIZES.items() for n in (1, 2, 4, 8, 16, 32, 64, 128) if n * size <= 128]


def transfer(shape: str, n: int, packed: bool, split: int, *, column: int, half: int) -> tuple[str, int]:
    """A load of `shape` that is stored back as 32x32b from column 256 on: (text, registers)."""
    count = n * SIZES[shape]
    names = ", ".join(f"%v{k}" for k in range(count))
    middle = f", {split}" if shape == "16x32bx2" else ""
    text = (
        registers(("%r20", half << 16))
        + f"""
    add.s32 %r21, %lanes, %r20;
    tcgen05.ld.sync.aligned.{shape}.x{n}{".pack::16b" if packed else ""}.b32 {{{names}}}, [%r21+{column}]{middle};
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%lanes+256], {{{names}}};
    tcgen05.wait::st.sync.aligned;
    """
    )
    return text, count


def fits(shape: str, n: int, packed: bool) -> bool:
    """Whether a load from LOAD_COLUMN on ends within tensor memory."""
    width = max(position(shape, lane, n * SIZES[shape] - 1)[1] for lane in range(32)) + 1
    return LOAD_COLUMN + (2 if packed else 1) * width <= 500


@pytest.mark.parametrize(
    ("shape", "n", "packed"), [(*case, packed) for case in CASES for packed in (False, True) if fits(*case, packed)]
)
def test_ld(shape, n, packed):
    half, column, split = 0 if shape == "32x32b" else 16, LOAD_COLUMN, 100
    step = 2 if packed else 1
    text, count = transfer(shape, n, packed, split, column=column, half=half)
    outcome = rig.run("", tmem=WORDS, warps=text)
    assert outcome.rules == []
    for warp in range(4):
        for lane in range(32):
            for k in range(count):
                row, at = position(shape, lane, k)
                at = column + step * at + (split if shape == "16x32bx2" and lane >= 16 else 0)
                words = WORDS[32 * warp + half + row, at : at + step]
                want = words[0] if not packed else (words[0] & 0xFFFF) | words[1] << np.uint32(16)
                assert outcome.tmem[32 * warp + lane, 256 + k] == want, (warp, lane, k)


@pytest.mark.parametrize(("shape", "n"), [case for case in CASES if case[1] in (1, 4, 16)])
@pytest.mark.parametrize("packed", [False, True])
def test_st(shape, n, packed):
    half, column, split, step = 0, 200, 40, 2 if packed else 1
    count = n * SIZES[shape]
    names = ", ".join(f"%v{k}" for k in range(count))
    middle = f" {split}," if shape == "16x32bx2" else ""
    outcome = rig.run("", tmem=WORDS, warps=f"""
    tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{names}}}, [%lanes];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.{shape}.x{n}{".unpack::16b" if packed else ""}.b32 [%lanes+{column}],{middle} {{{names}}};
    tcgen05.wait::st.sync.aligned;
    """)  # fmt: skip
    assert outcome.rules == []
    want = WORDS.copy()
    for warp in range(4):
        for lane in range(32):
            for k in range(count):
                row, at = position(shape, lane, k)
                row, at = 32 * warp + half + row, column + step * at
                at += split if shape == "16x32bx2" and lane >= 16 else 0
                value = WORDS[32 * warp + lane, k]
                want[row, at : at + step] = [value & 0xFFFF, value >> np.uint32(16)] if packed else value
    assert (outcome.tmem == want).all()


@pytest.mark.parametrize("shape", ["32x32b", "16x32bx2"])
@pytest.mark.parametrize(
    ("op", "type_name", "reduce"),
    [
        ("max", "f32", lambda x: np.fmax.reduce(x)),
        ("min.abs", "f32", lambda x: np.fmin.reduce(np.abs(x))),
        ("max.NaN", "f32", lambda x: np.max(x)),
        ("min", "u32", np.min),
        ("max", "s32", np.max),
    ],
)
def test_ld_red(shape, op, type_name, reduce):
    """.red is for sm_101a and sm_103a; its reductions run over one lane's columns."""
    dtype = {"f32": np.float32, "u32": np.uint32, "s32": np.int32}[type_name]
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**32, (128, 512), dtype=np.uint32)
    if dtype is np.float32:
        words = rng.normal(size=(128, 512)).astype(np.float32)
        words[5, 3] = words[40, :4] = np.nan
        words = words.view(np.uint32)
    middle = ", 60" if shape == "16x32bx2" else ""
    text = f"""
    tcgen05.ld.red.sync.aligned.{shape}.x4.{op}.{type_name} {{%v0, %v1, %v2, %v3}}, %v4, [%lanes]{middle};
    tcgen05.wait::ld.sync.aligned;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%lanes+256], {{%v4}};
    tcgen05.wait::st.sync.aligned;
    """
    got = rig.run("", tmem=words, warps=text).tmem[:, 256].copy().view(dtype)
    for lane in range(128):
        second = shape == "16x32bx2" and lane % 32 >= 16
        row = lane - 16 * second
        with np.errstate(invalid="ignore"):
            want = reduce(words[row, 60 * second : 60 * second + 4].copy().view(dtype))
        np.testing.assert_equal(got[lane], want)


# cp

COPIES = {  # shape -> rows, 16-byte chunks, the lanes of row r
    "128x256b": (128, 2, lambda r: [r]),
    "128x128b": (128, 1, lambda r: [r]),
    "64x128b.warpx2::02_13": (64, 1, lambda r: [r, r + 64]),
    "64x128b.warpx2::01_23": (64, 1, lambda r: [r % 32 + 64 * (r // 32) + 32 * k for k in range(2)]),
    "32x128b.warpx4": (32, 1, lambda r: [r + 32 * k for k in range(4)]),
    "4x256b": (4, 2, lambda r: [32 * r + 5]),
}


@pytest.mark.parametrize("shape", COPIES)
@pytest.mark.parametrize("layout", [k_major(0), k_major(32), k_major(128, 64)], ids=["none", "32", "128"])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("unpack", ["", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64"])
def test_cp(shape, layout, pair, unpack):
    rows, chunks, lanes = COPIES[shape]
    rng = np.random.default_rng(2)
    name = {"": "e4m3", ".b8x16.b6x16_p32": "e3m2", ".b8x16.b4x16_p64": "e2m1"}[unpack]
    bits = {"e4m3": 8, "e3m2": 6, "e2m1": 4}[name]
    codes = [rng.integers(0, 2**bits, (rows, 32)) for _ in range(1 + pair)]
    shared = [layout.place(pack(x, bits), 32768) for x in codes]
    at = 100 | (5 << 16 if shape == "4x256b" else 0)
    issue = registers(("%r8", at), ("%rd1", layout.descriptor(rig.BASE)))
    issue += f"\ntcgen05.cp.cta_group::{1 + pair}.{shape}{unpack} [%r8], %rd1;"
    outcome = rig.run(issue, shared, WORDS, pair=pair)
    assert set(outcome.rules) <= ({"mbarrier-race"} if pair else set())
    want = np.stack([WORDS] * (1 + pair))
    for cta, x in enumerate(codes):
        words = containers(x, name).view(np.uint32).reshape(rows, 8)[:, : 4 * chunks]
        for r in range(rows):
            for lane in lanes(r):
                want[cta, lane, 100 : 100 + 4 * chunks] = words[r]
    assert (outcome.tmem == (want if pair else want[0])).all()


@pytest.mark.parametrize("pair", [False, True])
def test_shift_moves_each_row_of_a_warp_to_the_one_before_it(pair):
    issue = registers(("%r8", 32 << 16 | 100)) + f"\ntcgen05.shift.cta_group::{1 + pair}.down [%r8];"
    outcome = rig.run(issue, tmem=WORDS, pair=pair)
    want = WORDS.copy()
    want[32:63, 100:108] = WORDS[33:64, 100:108]
    assert (outcome.tmem == want).all()


# Allocation

ALLOCATOR = """\
.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    .shared .align 16 .b8 where[64];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    shr.u32 %r1, %r0, 5;
    mov.u32 %r2, where;
    mov.u32 %r3, %cluster_ctarank;
{body}
    ret;
}}
"""


def allocate(body: str, *, block: int = 32, pair: bool = False, words: int = 4, **device):
    from fmha import emulator

    machine = emulator.Device(**device)
    out = machine.alloc(4 * words, "out")
    ctas = 1 + pair
    report = machine.launch(
        emulator.load_ptx(ALLOCATOR.format(body=body)),
        "k",
        (ctas, 1, 1),
        (block, 1, 1),
        [out.address],
        cluster=(ctas, 1, 1),
    )
    return machine.read(out.address, 4 * words).view(np.uint32), report


def test_alloc_waits_for_columns_that_another_warp_gives_back():
    body = """
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra SECOND;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 512;
    ld.shared.b32 %r4, [where];
    bar.sync 0;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 512;
    bra END;
SECOND:
    bar.sync 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where+16], 256;
    ld.shared.b32 %r4, [where+16];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 256;
    add.u32 %r4, %r4, 1;
    st.global.b32 [%rd0], %r4;
END:
    """
    for schedule in ("realistic", "early", "late"):
        words, report = allocate(body, block=64, schedule=schedule)
        assert words[0] == 1
        assert report.findings == ()


def test_a_blocked_alloc_is_a_deadlock_that_says_so():
    body = """
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 512;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 32;
    """
    _, report = allocate(body)
    assert report.findings[0].rule == "deadlock"
    assert "tensor memory that is still allocated" in str(report.findings[0])


MEET = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
PAIR = f"""
    {MEET}
    setp.ne.u32 %p0, %r3, {{late}};
    @%p0 bra GO;
    mov.u32 %r5, 0;
DELAY:
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, 3000;
    @%p1 bra DELAY;
GO:
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [where], 128;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [where+4], {{columns}};
    ld.shared.b32 %r4, [where];
    ld.shared.b32 %r6, [where+4];
    tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
    mul.wide.u32 %rd1, %r3, 8;
    add.s64 %rd0, %rd0, %rd1;
    st.global.v2.b32 [%rd0], {{{{%r4, %r6}}}};
    {MEET}
    {{second}}
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 128;
"""
FREE_SECOND = "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r6, 64;"


@pytest.mark.parametrize("late", [0, 1])
def test_a_pair_allocates_together_at_the_same_columns(late):
    words, report = allocate(PAIR.format(late=late, columns=64, second=FREE_SECOND), pair=True)
    assert words.tolist() == [0, 128, 0, 128]
    assert report.findings == ()


@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_pair_meets_before_it_allocates_and_between_that_and_its_end(profile):
    """PTX ISA 9.7.16.7.1; NVIDIA/cutlass#3316 and #3435."""
    body = PAIR.format(late=0, columns=64, second=FREE_SECOND)
    first, _, rest = body.partition(MEET)
    for broken, rule in (
        (first + rest, "tmem-pair-alloc"),
        (first + MEET + rest.replace(MEET, ""), "tmem-pair-dealloc"),
    ):
        _, report = allocate(broken, pair=True, profile=profile)
        assert {f.rule for f in report.findings} == {rule}


def test_a_pair_that_disagrees_is_a_fault():
    body = PAIR.format(late=0, columns="%r7", second="").replace(
        "GO:", "GO:\nadd.u32 %r7, %r3, 1;\nshl.b32 %r7, %r7, 5;"
    )
    _, report = allocate(body, pair=True)
    assert report.findings[0].rule == "cta-pair"
    assert "meets" in report.findings[0].message


def test_a_pair_that_holds_too_many_columns_itself_is_a_fault():
    body = PAIR.format(late=0, columns=64, second=FREE_SECOND)
    _, report = allocate(body.replace(", 128;", ", 512;"), pair=True)
    assert [f.rule for f in report.findings] == ["tmem-alloc-blocked"]
    _, report = allocate(body.replace(", 128;", ", 256;"), pair=True)
    assert report.findings == ()


def test_a_pair_that_leaks_or_a_missing_peer():
    _, report = allocate(PAIR.format(late=0, columns=64, second=""), pair=True)
    assert [f.rule for f in report.findings] == ["tmem-leak"]
    _, report = allocate(PAIR.format(late=0, columns=64, second=FREE_SECOND))
    assert report.findings[0].rule == "cta-pair"
    one = (
        f"{MEET} setp.eq.u32 %p0, %r3, 1;\n@%p0 bra END;" + PAIR.format(late=0, columns=64, second=FREE_SECOND) + "END:"
    )
    _, report = allocate(one, pair=True)
    assert report.findings[0].rule == "deadlock"
    assert "the peer CTA's tcgen05.alloc" in str(report.findings[0])


def test_alloc_rules():
    _, report = allocate("""
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 32;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where+4], 64;
    ld.shared.b32 %r4, [where];
    ld.shared.b32 %r5, [where+4];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 64;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    """)
    assert [f.rule for f in report.findings] == ["tmem-alloc-increase"]
    for columns in (31, 48, 1024):
        _, report = allocate(f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], {columns};")
        assert report.findings[0].rule == "tmem-alloc-size"


@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_lanes_that_name_their_own_rows(profile: str) -> None:
    """CUTLASS's mixed-input FMHA passes each thread's own lane; leniently, the first one's address counts."""
    tmem = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    text = """
    and.b32 %r20, %tid, 127; shl.b32 %r20, %r20, 16;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r20+7];
    tcgen05.wait::ld.sync.aligned;
    shl.b32 %r21, %warp, 21;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21+9], {%v0};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    """
    outcome = rig.run("", tmem=tmem, warps=text, profile=profile)
    assert outcome.rules == (["tmem-address"] if profile == "strict" else [])
    np.testing.assert_array_equal(outcome.tmem[:, 9], tmem[:, 7])


def test_a_relaxed_arrival_orders_tensor_memory() -> None:
    """The fences of tcgen05 need execution to be ordered, not memory: cuDNN's attention arrives with .relaxed."""
    before = "tcgen05.fence::before_thread_sync;"
    look = "AGAIN: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p5, [%bars+8], 0; @!%p5 bra AGAIN;"
    text = f"""
    setp.ne.u32 %p4, %warp, 1; @%p4 bra STORED;
    shl.b32 %r21, %warp, 21;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r21+9], {{%tid}};
    tcgen05.wait::st.sync.aligned;
    {before}
    bar.warp.sync -1;
    setp.eq.u32 %p5, %lane, 0;
    @%p5 mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%bars+8];
    STORED:
    setp.ne.u32 %p4, %tid, 0; @%p4 bra SHIFTED;
    {look}
    tcgen05.fence::after_thread_sync;
    mov.u32 %r22, {32 << 16 | 8};
    tcgen05.shift.cta_group::1.down [%r22];
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bars];
    SHIFTED: mbarrier.try_wait.parity.shared::cta.b64 %p6, [%bars], 1; @!%p6 bra SHIFTED;
    tcgen05.fence::after_thread_sync;
    """
    outcome = rig.run("", warps=text)
    assert outcome.rules == []
    assert (outcome.tmem[32:63, 9] == np.arange(33, 64)).all()
    assert "tmem-missing-fence-before" in rig.run("", warps=text.replace(before, "")).rules
    assert "tmem-race" in rig.run("", warps=text.replace(look, "")).rules
