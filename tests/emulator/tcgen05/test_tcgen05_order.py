"""Which operations of the tensor core are pipelined with one another, and which have to wait: mma-unordered."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import tcgen05_rig as rig
from tests.emulator.micro import run_micro
from tests.emulator.tcgen05.test_tcgen05_mma import B_AT, K128, images, mma_text, registers
from tests.emulator.tcgen05.test_tcgen05_sparse import METADATA, sparse_text
from tests.emulator.tcgen05_numbers import instruction, random_operand

A, B = K128.descriptor(rig.BASE), K128.descriptor(rig.BASE + B_AT)
SCALES_A, SCALES_B = 300, 400
WAIT = """
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bars+8];
BETWEEN: mbarrier.try_wait.parity.shared::cta.b64 %ready, [%bars+8], 0;
@!%ready bra BETWEEN;
tcgen05.fence::after_thread_sync;
"""


def plain(d: int, n: int = 64, *, a_tmem: bool = False) -> str:
    idesc = instruction("f16", 128, n, "f16", "f16")
    return mma_text(".cta_group::1.kind::f16", d, 0 if a_tmem else A, B, idesc, a_tmem=a_tmem, accumulate=False)


def scaled(d: int, scales_a: int = SCALES_A, scales_b: int = SCALES_B) -> str:
    return registers(("%r11", scales_a), ("%r12", scales_b)) + mma_text(
        ".cta_group::1.kind::mxf8f6f4.block_scale", d, A, B, instruction("mxf8f6f4", 128, 64, "e4m3", "e4m3"),
        tail="[%r11], [%r12], %p3", accumulate=False,
    )  # fmt: skip


def sparse(d: int, metadata: int = METADATA) -> str:
    text = sparse_text(".sp.cta_group::1.kind::f16", A, B, instruction("f16", 128, 64, "f16", "f16"), at=metadata)
    return text.replace("mov.b32 %r8, 0;", f"mov.b32 %r8, {d};", 1)


def copy(column: int) -> str:
    return registers(("%r8", column), ("%rd1", A)) + "\ntcgen05.cp.cta_group::1.32x128b.warpx4 [%r8], %rd1;\n"


ORDERS = {
    "same accumulator and shape": (plain(0), plain(0), False),
    "columns of its own": (plain(0), plain(64), False),
    "another shape": (plain(0), plain(0, 32), True),
    "another accumulator": (plain(0), plain(32), True),
    "A from what the first writes": (plain(0), plain(128, a_tmem=True), True),
    "scales of A from what the first writes": (plain(256), scaled(0), True),
    "scales of B from what the first writes": (plain(384), scaled(0), True),
    "scales from elsewhere": (plain(128), scaled(0), False),
    "into the scales of A that the first reads": (scaled(0), plain(256), True),
    "into the scales of B that the first reads": (scaled(0), plain(384), True),
    "metadata from what the first writes": (plain(272), sparse(0), True),
    "into the metadata that the first reads": (sparse(0), plain(272), True),
    "into columns beside the metadata": (sparse(0), plain(METADATA + 2), False),
    "scales that a copy writes": (copy(SCALES_A), scaled(0), False),
    "a copy into scales that the first reads": (scaled(0), copy(SCALES_A), True),
    "a copy into metadata that the first reads": (sparse(0), copy(METADATA), True),
    "a copy into what the first writes": (plain(0), copy(60), True),
    "a copy elsewhere": (scaled(0), copy(SCALES_A + 4), False),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "unordered"), ORDERS.values(), ids=ORDERS)
def test_what_is_not_pipelined_is_reported_under_strict(first: str, second: str, unordered: bool) -> None:
    rng = np.random.default_rng(18)
    (a, _), (b, _) = random_operand(rng, "f16", 128), random_operand(rng, "f16", 64)
    shared = images(a, b, K128, K128)
    assert rig.run(first + second, shared).rules == (["mma-unordered"] if unordered else [])
    assert rig.run(first + WAIT + second, shared).rules == []
    assert rig.run(first + second, shared, profile="lenient").rules == []


@pytest.mark.parametrize(
    ("before", "between", "found"),
    [
        ("tcgen05.fence::before_thread_sync;", "bar.sync 0;", set()),
        ("", "bar.sync 0;", {"tmem-missing-fence-before"}),
        ("tcgen05.fence::before_thread_sync;", "", {"tmem-race", "tmem-deallocated"}),
    ],
)
def test_columns_are_given_back_behind_what_others_did_there(before: str, between: str, found: set[str]) -> None:
    """tcgen05.dealloc is synchronous: no fence::after_thread_sync stands before it."""
    body = f"""@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32; bar.sync 0;
    ld.shared.b32 %tm, [slot]; shl.b32 %quarter, %warp, 21; add.u32 %quarter, %quarter, %tm;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%quarter], {{%zero}}; tcgen05.wait::st.sync.aligned; {before} {between}
    @%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32;"""
    report, _, _ = run_micro(body, profile="strict")
    assert {finding.rule for finding in report.findings} == found
