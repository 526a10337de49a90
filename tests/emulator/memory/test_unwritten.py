"""Loads of shared memory that nothing has written: strictly a finding, leniently where something comes of the value."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator import Device, load_ptx
from fmha.emulator.device import Profile
from tests.emulator.clusterlab import run
from tests.emulator.micro import run_micro

OUT = {"out": np.zeros(64, np.uint32)}
# Lanes 16 to 31 load what nobody has written.
LOAD = """mov.u32 %r1, tile; shl.b32 %r2, %tid, 2; add.u32 %r1, %r1, %r2;
mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out;
setp.lt.u32 %p1, %tid, 16; @%p1 st.shared.u32 [%r1], %tid; bar.warp.sync -1;
ld.shared.u32 %r3, [%r1];
"""
HARMLESS = {
    "unused": "",
    "half of the lanes": "@%p1 st.global.u32 [%d1], %r3;",
    "selected away": "selp.u32 %r3, %r3, 0, %p1; st.global.u32 [%d1], %r3;",
    "overwritten": "add.u32 %r3, %r3, 1; mov.u32 %r3, 5; st.global.u32 [%d1], %r3;",
    "shuffled among those that have one": "shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; @%p1 st.global.u32 [%d1], %r4;",
    "shuffled, for its predicate": "shfl.sync.down.b32 %r4|%p2, %r3, 8, 31, -1; @%p2 st.global.u32 [%d1], %tid;",
    "shuffled from the written half": "and.b32 %r5, %tid, 15; shfl.sync.idx.b32 %r4, %r3, %r5, 31, -1;"
    "st.global.u32 [%d1], %r4;",
    "compared": "setp.eq.u32 %p2, %r3, 7; selp.u32 %r4, 1, 0, %p2; @%p1 st.global.u32 [%d1], %r4;",
    "converted with random bits": "cvt.rs.f16x2.f32 %r4, %r3, %r3, %tid; @%p1 st.global.u32 [%d1], %r4;",
    "the first of a vector": "ld.shared.v2.u32 {%r6, %r7}, [tile+56]; @%leader st.global.u32 [%out], %r6;",
    "put back": "st.shared.u32 [%r1], %r3; bar.warp.sync -1; ld.shared.u32 %r4, [%r1]; @%p1 st.global.u32 [%d1], %r4;",
    "put back by its generic address": "cvt.u64.u32 %d2, %r1; cvta.shared.u64 %d2, %d2; st.u32 [%d2], %r3;"
    "bar.warp.sync -1; ld.shared.u32 %r4, [%r1]; @%p1 st.global.u32 [%d1], %r4;",
    "put back, then written": "st.shared.u32 [%r1], %r3; st.shared.u32 [%r1], %tid; ld.shared.u32 %r4, [%r1];"
    "st.global.u32 [%d1], %r4;",
    "put back, then copied over": "st.shared.u32 [%r1], %r3; cp.async.ca.shared.global [%r1], [%d1], 4;"
    "cp.async.wait_all; ld.shared.u32 %r4, [%r1]; st.global.u32 [%d1], %r4;",
}
HARMFUL = {
    "stored": "st.global.u32 [%d1], %r3;",
    "stored by its generic address": "st.u32 [%d1], %r3;",
    "put back by its generic address": "cvt.u64.u32 %d2, %r1; cvta.shared.u64 %d2, %d2; st.u32 [%d2], %r3;"
    "bar.warp.sync -1; ld.shared.u32 %r4, [%r1]; st.global.u32 [%d1], %r4;",
    "summed": "add.u32 %r4, %r3, %tid; st.global.u32 [%d1], %r4;",
    "added by an atomic": "red.global.add.u32 [%out], %r3;",
    "handed to the other half": "shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; @%p1 st.global.u32 [%d1], %r4;",
    "handed down": "shfl.sync.down.b32 %r4, %r3, 8, 31, -1; add.u32 %r4, %r4, 1; @%p1 st.global.u32 [%d1], %r4;",
    "an address": "and.b32 %r3, %r3, 4; mul.wide.u32 %d2, %r3, 1; add.u64 %d2, %d2, %out; ld.global.u32 %r4, [%d2];",
    "a guard": "setp.eq.u32 %p2, %r3, 7; @%p2 st.global.u32 [%out], %tid;",
    "a vote": "setp.eq.u32 %p2, %r3, 7; vote.sync.any.pred %p3, %p2, -1;",
    "the second of a vector": "ld.shared.v2.u32 {%r6, %r7}, [tile+64]; @%leader st.global.u32 [%out], %r7;",
    "put back": "st.shared.u32 [%r1], %r3; bar.warp.sync -1; ld.shared.u32 %r4, [%r1]; st.global.u32 [%d1], %r4;",
    "put back for another lane": "st.shared.u32 [%r1+4], %r3; bar.warp.sync -1; ld.shared.u32 %r4, [tile+68];"
    "@%leader st.global.u32 [%out], %r4;",
    "put back, loaded by its generic address": "st.shared.u32 [%r1], %r3; cvt.u64.u32 %d2, %r1;"
    "cvta.shared.u64 %d2, %d2; ld.u32 %r4, [%d2]; st.global.u32 [%d1], %r4;",
}
# What reads without a register between is told where it reads: there is no load to name.
READ = {
    "an atomic": "st.shared.u32 [%r1], %r3; red.shared.add.u32 [tile+64], 1;",
    "a matrix": "st.shared.u32 [%r1], %r3; bar.warp.sync -1; mov.u32 %r5, tile; add.u32 %r5, %r5, 64;"
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r5];",
    "a bulk copy": "st.shared.u32 [%r1], %r3; fence.proxy.async; bar.warp.sync -1; mov.u32 %r5, tile;"
    "@%leader cp.async.bulk.global.shared::cta.bulk_group [%out], [%r5], 128; cp.async.bulk.commit_group;"
    "cp.async.bulk.wait_group 0;",
}


# nvcc puts bytes together for a dp2a that takes two of them, beside registers that nothing has written: %r8, %r9.
BYTES = "mov.b32 %r1, 0x0201; prmt.b32 %r2, %r1, {other}, {selector}; @%first st.global.u32 [%out], %r2;"


@pytest.mark.parametrize(
    ("other", "selector", "told"),
    [
        ("%r8", "0x5410", False),  # half of it, like a pack
        ("%r8", "0x0010", False),
        ("%r8", "0x7654", True),
        ("%r8", "%r9", True),
    ],
)
def test_bytes_beside_a_register_that_nothing_has_written(other: str, selector: str, told: bool) -> None:
    report, _, _ = run_micro(BYTES.format(other=other, selector=selector))
    assert {finding.rule for finding in report.findings} == ({"uninitialised-register"} if told else set())


def test_bytes_of_shared_memory_that_nobody_has_written() -> None:
    assert run(LOAD + "prmt.b32 %r4, %r3, %tid, 0x5410; st.global.u32 [%d1], %r4;", OUT, profile="lenient").rules == {
        "uninitialised-shared"
    }


@pytest.mark.parametrize("use", HARMLESS.values(), ids=HARMLESS)
def test_a_value_that_is_dropped(use: str) -> None:
    run(LOAD + use, OUT, profile="lenient").clean()
    assert "uninitialised-shared" in run(LOAD + use, OUT).rules


@pytest.mark.parametrize("use", HARMFUL.values(), ids=HARMFUL)
def test_a_value_that_something_comes_of(use: str) -> None:
    found = run(LOAD + use, OUT, profile="lenient").report.findings
    assert {f.rule for f in found} == {"uninitialised-shared"}
    assert found[0].other is not None  # the load
    assert found[0].other.ptx_text.startswith("ld.")
    assert "uninitialised-shared" in run(LOAD + use, OUT).rules


@pytest.mark.parametrize("use", READ.values(), ids=READ)
def test_a_value_put_back_that_something_reads(use: str) -> None:
    found = run(LOAD + use, OUT, profile="lenient").report.findings
    assert {f.rule for f in found} == {"uninitialised-shared"}
    assert "computed from shared memory that nothing has written" in found[0].message


def test_atomics_on_what_nothing_has_written() -> None:
    assert run("red.shared.add.u32 [word], 1;", OUT, profile="lenient").rules == {"uninitialised-shared"}


# Local memory: of 16 bytes the first four are written. A private array is its thread's own: what was never written is
# a finding in either profile, once something comes of it.
LOCAL = ".local .align 8 .b8 own[16]; st.local.u32 [own], %tid; mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out;\n"
LOCAL_HARMLESS = {
    "written": "ld.local.u32 %r3, [own]; st.global.u32 [%d1], %r3;",
    "dropped": "ld.local.u32 %r3, [own+4]; add.u32 %r3, %r3, 1;",
    "copied within": "ld.local.u32 %r3, [own+4]; st.local.u32 [own+8], %r3;",
    "copied by generic addresses": "mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.u32 %r3, [%d3+4];"
    "st.u32 [%d3+8], %r3; ld.volatile.u32 %r3, [%d3+4]; st.volatile.u32 [%d3+12], %r3;",
    "in part": "ld.local.u64 %d3, [own]; st.global.u64 [%out], %d3;",
    "the first of a vector": "ld.local.v2.u32 {%r3, %r4}, [own]; st.global.u32 [%d1], %r3;",
    "by another lane": "setp.eq.u32 %p1, %tid, 5; @%p1 st.local.u32 [own+4], %tid; ld.local.u32 %r3, [own+4];"
    "@%p1 st.global.u32 [%d1], %r3;",
    "a later write": "ld.local.u32 %r3, [own+4]; st.local.u32 [own+4], 7; ld.local.u32 %r3, [own+4];"
    "st.global.u32 [%d1], %r3;",
}
LOCAL_HARMFUL = {
    "stored": "ld.local.u32 %r3, [own+4]; st.global.u32 [%d1], %r3;",
    "by its generic address": "mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.u32 %r3, [%d3+4];"
    "st.global.u32 [%d1], %r3;",
    "volatile, by its generic address": "mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.volatile.u32 %r3, [%d3+4];"
    "st.global.u32 [%d1], %r3;",
    "copied by generic addresses": "mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.u32 %r3, [%d3+4];"
    "st.volatile.u32 [%d3], %r3; ld.u32 %r4, [%d3]; st.global.u32 [%d1], %r4;",
    "copied first": "ld.local.u32 %r3, [own+4]; st.local.u32 [own], %r3; ld.local.u32 %r4, [own];"
    "st.global.u32 [%d1], %r4;",
    "a guard": "ld.local.u32 %r3, [own+4]; setp.eq.u32 %p1, %r3, 7; @%p1 st.global.u32 [%d1], %tid;",
    "the second of a vector": "ld.local.v2.u32 {%r3, %r4}, [own]; st.global.u32 [%d1], %r4;",
    "another lane's": "setp.ne.u32 %p1, %tid, 5; @%p1 st.local.u32 [own+4], %tid; ld.local.u32 %r3, [own+4];"
    "st.global.u32 [%d1], %r3;",
}


@pytest.mark.parametrize("profile", ["strict", "lenient"])
@pytest.mark.parametrize("use", LOCAL_HARMLESS.values(), ids=LOCAL_HARMLESS)
def test_local_memory_of_which_nothing_unwritten_matters(use: str, profile: str) -> None:
    run(LOCAL + use, OUT, block=32, profile=profile).clean()


@pytest.mark.parametrize("profile", ["strict", "lenient"])
@pytest.mark.parametrize("use", LOCAL_HARMFUL.values(), ids=LOCAL_HARMFUL)
def test_local_memory_that_nothing_has_written(use: str, profile: str) -> None:
    found = run(LOCAL + use, OUT, block=32, profile=profile).report.findings
    assert {f.rule for f in found} == {"uninitialised-local"}
    assert found[0].other is not None  # the load


@pytest.mark.parametrize(
    ("combine", "found"),
    [
        ("and.pred %p3, %p2, %off;", False),
        ("and.pred %p3, %off, %p2;", False),
        ("or.pred %p3, %p2, %p1;", False),
        ("or.pred %p3, %p1, %p2;", False),
        ("and.pred %p3, %p2, %p1;", True),
        ("or.pred %p3, %off, %p2;", True),
    ],
)
@pytest.mark.parametrize("profile", ["strict", "lenient"])
def test_a_condition_that_one_side_decides_has_a_value(combine: str, found: bool, profile: Profile) -> None:
    # Of a local variable: lenient too.
    body = "ld.local.b32 %r2, [scratch]; setp.eq.s32 %p2, %r2, 5; setp.eq.s32 %p1, %zero, 0;"
    report, _, _ = run_micro(f"{body} {combine} @%p3 bra E; @%first st.global.b32 [%out], %zero;\nE:", profile=profile)
    assert {f.rule for f in report.findings} == ({"uninitialised-local"} if found else set())


# A struct of a bool, or a word, and a number of 64 bits, which CUB loads as two numbers of 64 bits.
STRUCT = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 structs)
{{
.shared .align 8 .b8 tile[512];
.reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;
ld.param.u64 %d1, [out]; ld.param.u64 %d2, [structs];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r2, %r1, 16, %r2;
mul.wide.u32 %d3, %r1, 16; add.u64 %d2, %d2, %d3; mul.wide.u32 %d3, %r1, 4; add.u64 %d1, %d1, %d3;
{put}
bar.sync 0;
{get}
cvt.u32.u64 %r4, %d4; and.b32 %r4, %r4, 255; st.global.u32 [%d1], %r4;
ret;
}}"""
AT = {"global": "%d2", "shared": "%r2"}


@pytest.mark.parametrize("space", AT)
@pytest.mark.parametrize(
    ("put", "told"),
    [
        ("st.{space}.u8 [{at}], %r1;", False),
        ("st.{space}.u32 [{at}], %r1;", False),
        ("st.{space}.u8 [{at}+8], %r1;", True),  # the other element's
        ("", True),
    ],
)
def test_a_gap_in_a_struct_that_is_copied(space: str, put: str, told: bool) -> None:
    module = load_ptx(
        STRUCT.format(put=put.format(space=space, at=AT[space]), get=f"ld.{space}.u64 %d4, [{AT[space]}];")
    )
    device = Device(profile="lenient")
    out, structs = device.alloc(128, "out"), device.alloc(512, "structs")
    report = device.launch(module, "kernel", 1, 32, [out.address, structs.address])
    assert {f.rule for f in report.findings} == ({f"uninitialised-{space}"} if told else set())
    if not told:
        assert list(device.read(out.address, 128)[::4]) == list(range(32))
