"""What a launch counts: instructions by class, bytes copied, bank conflicts of shared memory."""

from __future__ import annotations

import pytest

from tests.emulator.micro import run_micro


def counted(body: str) -> dict[str, float]:
    """Of one warp."""
    return run_micro(body, block=32)[0].stats


def conflicts(body: str) -> float:
    return counted(body)["bank_conflicts"]


@pytest.mark.parametrize(
    ("stride", "vector", "expected"),
    [
        (0, "b32", 0),  # all lanes the same word
        (4, "b32", 0),
        (8, "b32", 1),  # lanes l and l + 16 share a bank
        (16, "b32", 3),
        (128, "b32", 31),  # all lanes one bank
        (132, "b32", 0),  # a padded row
        (2, "b16", 0),  # two lanes a word
        (8, "v2.b32", 0),
        (16, "v2.b32", 2),  # two passes of 16 lanes, of which each takes two turns
        (16, "v4.b32", 0),
        (128, "v4.b32", 28),  # four passes of 8 lanes in the same four banks
        (144, "v4.b32", 0),
    ],
)
def test_bank_conflicts_of_a_stride(stride: int, vector: str, expected: int) -> None:
    values = {"b16": "%h0", "b32": "%r2", "v2.b32": "{%r2, %r3}", "v4.b32": "{%r2, %r3, %r4, %r5}"}[vector]
    body = f"""
        mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b16 %h0, 0;
        mov.u32 %r0, tile;
        mad.lo.u32 %r0, %lane, {stride}, %r0;
        st.shared.{vector} [%r0], {values};
    """
    assert conflicts(body) == expected


def test_lanes_that_take_no_part_are_in_nobody_s_way() -> None:
    body = """
        mov.u32 %r0, tile;
        mad.lo.u32 %r0, %lane, 128, %r0;
        setp.lt.u32 %p0, %lane, 3;
        mov.b32 %r2, 0;
        @%p0 st.shared.b32 [%r0], %r2;
    """
    assert conflicts(body) == 2


@pytest.mark.parametrize(("stride", "expected"), [(16, 0), (128, 7), (144, 0)])
def test_bank_conflicts_of_a_matrix_s_rows(stride: int, expected: int) -> None:
    body = f"""
        mov.u32 %r0, tile;
        and.b32 %r1, %lane, 7;
        mad.lo.u32 %r0, %r1, {stride}, %r0;
        mov.b32 %r2, 0;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r0], {{%r2}};
    """
    assert conflicts(body) == expected


def test_instructions_are_counted_by_class() -> None:
    """One more of each, and nothing else changes."""
    plain = counted("mov.u32 %r0, tile; mov.f32 %f0, 0f3F800000; mov.b32 %r2, 0;")
    more = {
        "integer": "add.u32 %r3, %r2, 1;",
        "floating": "add.f32 %f1, %f0, %f0;",
        "transcendental": "ex2.approx.ftz.f32 %f1, %f0;",
        "conversion": "cvt.rzi.s32.f32 %r3, %f0;",
        "control": "nanosleep.u32 0;",
        "exchange": "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;",
        "shared_memory": "st.shared.b32 [%r0], %r2;",
        "global_memory": "ld.global.b32 %r3, [%out];",
        "other_memory": "ld.param.b64 %d0, [out];",
        "barrier": "bar.warp.sync -1;",
    }
    for name, instruction in more.items():
        found = counted(f"mov.u32 %r0, tile; mov.f32 %f0, 0f3F800000; mov.b32 %r2, 0; {instruction}")
        changed = {key for key in found if key.endswith("_instructions") and found[key] != plain[key]}
        assert changed == {f"{name}_instructions", "warp_instructions"}, name
        assert found[f"{name}_instructions"] == plain[f"{name}_instructions"] + 1
