"""Bulk copies without tensor maps, bulk groups, and what copies refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmha.emulator import Device, PtxError, load_ptx
from tests.emulator.bulk_rig import FENCE, FILL, STORED, numbers, tiled
from tests.emulator.clusterlab import CLUSTER_SYNC, Run, init_barriers, run, source, wait
from tests.emulator.micro import run_micro


@pytest.mark.parametrize(
    ("op", "np_type", "combine"),
    [
        ("add.u32", np.uint32, np.add), ("add.f32", np.float32, np.add), ("add.noftz.f16", np.float16, np.add),
        ("min.s32", np.int32, np.minimum), ("max.u64", np.uint64, np.maximum), ("or.b32", np.uint32, np.bitwise_or),
        ("xor.b64", np.uint64, np.bitwise_xor), ("add.f64", np.float64, np.add), ("min.noftz", None, None),
    ],
)  # fmt: skip
def test_bulk_reductions(op: str, np_type: Any, combine: Any) -> None:
    rng = np.random.default_rng(5)
    if np_type is None:
        text = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.f16 [%d1], [%r1], 16;"
        with pytest.raises(PtxError, match="noftz"):
            Device().launch(load_ptx(source(text, {}, {})), "kernel", (1, 1, 1), (1, 1, 1), [])
        return
    low = 0 if np.dtype(np_type).kind == "u" else -90
    data, out = (rng.integers(low, 90, 64).astype(np_type) for _ in range(2))
    body = f"""{FILL.format(words=data.nbytes // 4)} {FENCE}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%out], [%r40], {data.nbytes}; {STORED}"""
    done = run(body, {"data": data, "out": out}, block=1).clean()
    np.testing.assert_array_equal(done.arrays["out"], combine(out, data))


def test_a_sum_of_f64_leaves_a_nan_as_it_is() -> None:
    """As an H200: signalling ones as well, and of two what is added counts."""
    words = (0x7FF8000000000123, 0xFFF8000000ABC000, 0x7FF0000000000001, 0xFFF4000000000456, 0x3FF0000000000000)
    values = np.array(words, np.uint64)
    out, data = np.repeat(values, len(values)), np.tile(values, len(values))
    out, data = np.append(out, values[:1]), np.append(data, values[:1])  # pairs of 16 bytes
    body = f"""{FILL.format(words=data.nbytes // 4)} {FENCE}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f64 [%out], [%r40], {data.nbytes}; {STORED}"""
    done = run(body, {"data": data, "out": out}, block=1).clean()
    nan = [np.isnan(a.view(np.float64)) for a in (out, data)]
    want = np.where(nan[1], data, np.where(nan[0], out, np.uint64(0x4000000000000000)))
    np.testing.assert_array_equal(done.arrays["out"], want)


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
@pytest.mark.parametrize("mask", [0xFFFF, 0x5555, 0x0001, 0x8000, 0xF0F1, 0])
def test_stores_of_some_bytes_of_every_sixteen(mask: int, schedule: Any) -> None:
    data, out = numbers((64,), np.uint32), np.full(64, 0x77777777, np.uint32)
    store = "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [%r40], 256, "
    chosen = np.tile([bool(mask >> k & 1) for k in range(16)], 16)
    want = np.where(chosen, data.view(np.uint8), out.view(np.uint8)).view(np.uint32)
    hinted = store.replace(".cp_mask", ".L2::cache_hint.cp_mask") + "%policy, "
    policy = ".reg .b64 %policy; createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;"
    for before, line in (("", f"{store}{mask:#x};"), ("", f"{store}%h1;"), (policy, f"{hinted}%h1;")):
        body = f"{FILL.format(words=64)} {FENCE} mov.b16 %h1, {mask:#x}; {before} {line} {STORED}"
        done = run(body, {"data": data, "out": out}, block=1, schedule=schedule).clean()
        np.testing.assert_array_equal(done.arrays["out"], want)


@pytest.mark.parametrize(("mask", "rules"), [(0x00FF, set()), (0x01FF, {"global-out-of-bounds"}), (0, set())])
def test_what_a_mask_leaves_out_may_lie_outside_the_allocation(mask: int, rules: set[str]) -> None:
    """Nor has it to be written in shared memory."""
    body = f"""mov.b32 %r40, tile; st.shared.v2.u32 [%r40], {{%tid, %tid}}; {FENCE} mov.b16 %h1, {mask:#x};
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [%r40], 16, %h1; {STORED}"""
    done = run(body, {"data": numbers((4,), np.uint32), "out": np.zeros(2, np.uint32)}, block=1)
    assert done.rules == rules


def test_a_copy_of_no_bytes_is_none_that_a_phase_waits_for() -> None:
    body = f"""{init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile; mov.b32 %r7, 0;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r8], [%data], %r7, [%r9];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r7;
    {wait()}"""
    run(body, {"data": numbers((4,), np.uint32)}, block=1).clean()


def ignoring(left: int, right: int, start: int = 0, nbytes: int = 64, words: int = 16) -> str:
    """Copies `nbytes` of `data` from byte `start` on, less what is ignored, and `words` of the copy to `out`."""
    return f"""{init_barriers()}
    mov.b32 %r40, tile; mov.b32 %r41, {left}; mov.b32 %r42, {right}; add.u64 %d1, %data, {start};
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
    @%leader cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob
        [%r40], [%d1], {nbytes}, %r41, %r42, [bar];
    {wait()}
    shl.b32 %r43, %tid, 2; add.u32 %r40, %r40, %r43; cvt.u64.u32 %d2, %r43; add.u64 %d2, %d2, %out;
    setp.lt.u32 %p1, %tid, {words}; @%p1 ld.shared.u32 %r44, [%r40]; @%p1 st.global.u32 [%d2], %r44;"""


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
@pytest.mark.parametrize(("start", "left", "right"), [(0, 0, 0), (0, 12, 4), (16, 15, 0), (0, 0, 15), (32, 3, 15)])
def test_copies_that_ignore_their_ends(start: int, left: int, right: int, schedule: Any) -> None:
    """In shared memory what is left out is indeterminate: here, all ones."""
    data, size = numbers((16,), np.uint32), 64 - start
    body = ignoring(left, right, start, size, size // 4)
    done = run(body, {"data": data, "out": np.zeros(16, np.uint32)}, schedule=schedule).clean()
    want = np.full(size, 0xFF, np.uint8)
    want[left : size - right] = data.view(np.uint8)[start + left : 64 - right]
    np.testing.assert_array_equal(done.arrays["out"].view(np.uint8)[:size], want)


def test_a_copy_ignores_less_than_lies_before_an_array() -> None:
    body = ignoring(15, 0, -16)
    arrays = {"data": numbers((16,), np.uint32), "out": np.zeros(16, np.uint32)}
    assert run(body, arrays).rules == {"global-out-of-bounds"}


@pytest.mark.parametrize(("words", "right", "found"), [(13, 12, set()), (13, 8, {"global-out-of-bounds"})])
def test_a_copy_may_ignore_what_lies_behind_an_array(words: int, right: int, found: set[str]) -> None:
    data = numbers((words,), np.uint32)
    body = ignoring(0, right, words=words)
    done = run(body, {"data": data, "out": np.zeros(16, np.uint32)})
    assert done.rules == found
    if not found:
        np.testing.assert_array_equal(done.arrays["out"][:words], data)


@pytest.mark.parametrize(("left", "right"), [(16, 0), (0, 16), (0xFFFFFFFF, 0)])
def test_a_copy_ignores_at_most_fifteen_bytes(left: int, right: int) -> None:
    body = ignoring(left, right)
    arrays = {"data": numbers((16,), np.uint32), "out": np.zeros(16, np.uint32)}
    assert run(body, arrays).rules == {"bulk-copy-ignored"}


def test_stores_of_different_bytes_are_no_conflict() -> None:
    data, out = numbers((64,), np.uint32), np.zeros(64, np.uint32)
    halves = "shl.b32 %r5, %cta, 3; mov.b16 %h2, 0xFF; shl.b16 %h2, %h2, %r5;"
    body = f"""{FILL.format(words=64)} {FENCE} {{}}
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [%r40], 256, %h2; {STORED}"""
    arrays = {"data": data, "out": out}
    np.testing.assert_array_equal(run(body.format(halves), arrays, block=1, grid=2).clean().arrays["out"], data)
    overlapping = halves.replace("%cta, 3", "%cta, 2")
    assert run(body.format(overlapping), arrays, block=1, grid=2).rules == {"bulk-store-in-flight"}


def test_two_ctas_may_reduce_into_the_same_words() -> None:
    data, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    for op, rules in (("reduce.async.bulk.global.shared::cta.bulk_group.add.u32", set()),
                      ("async.bulk.global.shared::cta.bulk_group", {"bulk-store-in-flight"})):  # fmt: skip
        body = f"{FILL.format(words=64)} {FENCE} cp.{op} [%out], [%r40], 256; {STORED}"
        done = run(body, {"data": data, "out": out}, block=1, grid=3)
        assert done.rules == rules
        if not rules:
            np.testing.assert_array_equal(done.arrays["out"], 3 * data)


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
def test_plain_bulk_round_trip(schedule: Any) -> None:
    data, out = numbers((256,), np.uint32), np.zeros(256, np.uint32)
    body = f"""
    {init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile;
    cp.async.bulk.prefetch.L2.global [%data], 1024;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%data], 1024, [%r9];
    {wait()}
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 1024; {STORED}
    """
    done = run(body, {"data": data, "out": out}, block=1, schedule=schedule).clean()
    np.testing.assert_array_equal(done.arrays["out"], data)


def test_shared_to_the_shared_memory_of_a_peer() -> None:
    data, out = numbers((64,), np.uint32), np.zeros((2, 64), np.uint32)
    body = f"""
    {init_barriers(1)} {FILL.format(words=64)} {FENCE}
    mov.u32 %r9, bar; mov.u32 %r8, tile; xor.b32 %r1, %rank, 1;
    add.u32 %r8, %r8, 1024; mapa.shared::cluster.u32 %r10, %r8, %r1; mapa.shared::cluster.u32 %r11, %r9, %r1;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    {CLUSTER_SYNC}
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r40], 256, [%r11];
    {wait()}
    mul.wide.u32 %d2, %cta, 256; add.u64 %d2, %out, %d2;
    cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r8], 256; {STORED} {CLUSTER_SYNC}
    """
    done = run(body, {"data": data, "out": out}, block=1, grid=2, cluster=2).clean()
    np.testing.assert_array_equal(done.arrays["out"], np.stack([data, data]))
    # The source is not read any more only once the peer has said so.
    last = body.rfind(CLUSTER_SYNC)
    short = run(body[:last], {"data": data, "out": out}, block=1, grid=2, cluster=2)
    assert short.rules == {"exit-with-work-in-flight"}


# Bulk groups


def store_then(before: str, after: str, **options: Any) -> set[str]:
    return _store_then(before, after, **options).rules


def _store_then(before: str, after: str, **options: Any) -> Run:
    data, out = numbers((64,), np.uint32), np.zeros(128, np.uint32)
    body = f"""{FILL.format(words=64)} {before}
    cp.async.bulk.global.shared::cta.bulk_group [%out], [%r40], 256;
    cp.async.bulk.commit_group; {after}"""
    return run(body, {"data": data, "out": out}, block=1, **options)


def test_what_bulk_groups_order() -> None:
    read, everything = "cp.async.bulk.wait_group.read 0;\n", "cp.async.bulk.wait_group 0;\n"
    rewrite, look = "st.shared.u32 [%r40], 1;\n", "ld.global.u32 %r1, [%out];\n"
    for schedule in ("realistic", "early", "late", "random"):
        assert store_then(FENCE, read, schedule=schedule) == set()
        assert store_then(FENCE, read + rewrite, schedule=schedule) == set()
        assert store_then(FENCE, everything + rewrite + look, schedule=schedule) == set()
        assert store_then("", read, schedule=schedule) == {"missing-proxy-fence"}
        assert store_then(FENCE, read + look, schedule=schedule) == {"bulk-store-in-flight"}
        assert store_then(FENCE, rewrite + read, schedule=schedule) == {"bulk-store-in-flight"}
        assert store_then(FENCE, "cp.async.bulk.wait_group.read 1;\n" + rewrite + read) == {"bulk-store-in-flight"}
    assert "exit-with-work-in-flight" in store_then(FENCE, "")


def test_the_wait_that_does_not_cover_a_store_is_named() -> None:
    look, end = "ld.global.u32 %r1, [%out];\n", "cp.async.bulk.wait_group 0;\n"
    rewrite, read = "st.shared.u32 [%r40], 1;\n", "cp.async.bulk.wait_group.read 1;\n"
    left = "a wait for all but the last group, which the store is still in"
    for waits, then, said, lacks in (
        (
            "cp.async.bulk.wait_group.read 0;\n",
            look,
            "covers the reads of the store's source and not its writes",
            "its thread has waited for its reads alone, by wait_group.read",
        ),
        ("cp.async.bulk.wait_group 1;\n", look, left, "the wait in between leaves its group pending"),
        (read, rewrite, left, "the wait in between leaves its group pending"),
        ("", look, "", "no cp.async.bulk.wait_group by its thread in between"),
        ("", rewrite, "", "no cp.async.bulk.wait_group{.read} by its thread in between"),
    ):
        (found,) = _store_then(FENCE, waits + then + end).report.findings
        assert found.rule == "bulk-store-in-flight"
        assert found.message.endswith(f" it: {lacks}")
        assert [said in text for _, text in found.details] == ([True] if said else [])


@pytest.mark.parametrize(("wait", "then"), [("", "ld.global.u32 %r1, [%out];"), (".read", "st.shared.u32 [tile], 1;")])
def test_a_bulk_store_that_its_own_thread_has_waited_for_lacks_a_barrier(wait: str, then: str) -> None:
    body = f"""mov.b32 %r9, tile; @%first st.shared.v4.b32 [tile], {{7, 7, 7, 7}}; fence.proxy.async; bar.sync 0;
    @%first cp.async.bulk.global.shared::cta.bulk_group [%out], [%r9], 16; @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group{wait} 0; setp.eq.u32 %p1, %thread, 32; @%p1 {then}
    @%first cp.async.bulk.wait_group 0;"""
    (found,) = run_micro(body, profile="lenient", schedule="early")[0].findings
    assert found.rule == "bulk-store-in-flight"
    assert found.message.endswith(" it: no barrier after the wait for it in between")
    assert found.remedy.startswith("A barrier")


def test_empty_groups_hold_nothing() -> None:
    read, empty = "cp.async.bulk.wait_group.read 0;\n", "cp.async.bulk.commit_group;\n"
    rewrite = "st.shared.u32 [%r40], 1;\n"
    assert store_then(FENCE + empty, read + rewrite) == set()
    assert store_then(FENCE, empty + "cp.async.bulk.wait_group.read 1;\n" + rewrite + read) == set()
    # A group from before the first store is none that a wait may leave pending, or has to wait for.
    one_left = store_then(FENCE + empty, "cp.async.bulk.wait_group.read 1;\n" + rewrite + read)
    assert one_left == {"bulk-store-in-flight"}
    assert "exit-with-work-in-flight" in store_then(FENCE + empty, empty)
    # Nor one that is committed after the last wait.
    assert store_then(FENCE, read + empty) == set()
    # Nothing is read by lanes that have only committed.
    assert run(empty, {"out": np.zeros(1, np.uint32)}, block=32).rules == set()


@pytest.mark.parametrize("schedule", ["realistic", "late"])
def test_who_has_waited_for_a_store_reads_what_it_has_written(schedule: Any) -> None:
    """A wait for the reads of its source alone would be over before."""
    end = "cp.async.bulk.wait_group 0; ld.global.u32 %r1, [%out]; st.global.u32 [%out+256], %r1;"
    assert _store_then(FENCE, end, schedule=schedule).clean().arrays["out"][64] == 1


def test_an_exit_with_one_store_that_nothing_waits_for() -> None:
    """Told of its lane, which has not waited, and not only of the store, where that is still under way."""
    found = _store_then(FENCE, "").report.findings
    assert {each.rule for each in found} == {"exit-with-work-in-flight"}
    assert any("exits with bulk stores that may still read shared memory" in each.message for each in found)


def test_a_copy_of_the_phase_before_is_none_of_this_one() -> None:
    """Two phases end with a copy of their own in flight, the second when the first one's copy has come."""
    copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{}], [%data], 256, [%r9];"
    body = f"""{init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile;
    {copy.format("%r8")} mbarrier.arrive.shared::cta.b64 _, [bar];
    {copy.format("%r8+512")} mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256; {wait(parity=1)}"""
    found = run(body, {"data": numbers((64,), np.uint32)}, block=1).report.findings
    early = [each.message for each in found if each.rule == "mbarrier-early-completion"]
    assert [phase in text for phase, text in zip(("phase 0 with 1", "phase 1 with 1"), early, strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("fence", "rules"),
    [("shared::cta", {"missing-proxy-fence"}), ("global", set()), ("shared::cluster", {"missing-proxy-fence"})],
)
def test_a_proxy_fence_of_shared_memory_is_none_of_global_memory(fence: str, rules: set[str]) -> None:
    body = f"""{init_barriers(1)} mov.u32 %r9, bar; mov.u32 %r8, tile; st.global.u32 [%data], 5;
    fence.proxy.async.{fence};
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r8], [%data], 256, [%r9]; {wait()}"""
    assert run(body, {"data": numbers((64,), np.uint32)}, block=1).rules == rules


def test_a_wait_leaves_the_newest_groups_pending() -> None:
    second = """add.u64 %d1, %out, 256; add.u32 %r1, %r40, 256;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 256;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;\n"""
    end = "cp.async.bulk.wait_group.read 0;\n"
    high = FILL.replace("FILL", "FILL2").replace("tile;", "tile; add.u32 %r40, %r40, 256;")
    fill = high.format(words=64)
    fill += "sub.u32 %r40, %r40, 256;" + FENCE
    assert store_then(fill, second + "st.shared.u32 [%r40], 1;\n" + end) == set()
    assert store_then(fill, second + "st.shared.u32 [%r40+256], 1;\n" + end) == {"bulk-store-in-flight"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 24;", "misaligned"),
        ("add.u32 %r8, %r8, 8; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 16;", "misaligned"),
        ("add.u64 %d1, %out, 8; cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r8], 16;", "misaligned"),
        ("cp.async.bulk.global.shared::cta.bulk_group [%out], [%r8], 4096;", "global-out-of-bounds"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%map, {0}], [%r8+64];", "misaligned"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {0, 0}], [%r8];", "tensor-map"),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%out, {0}], [%r8];", "tensor-map"),
        ("cp.reduce.async.bulk.tensor.1d.global.shared::cta.inc.bulk_group [%map, {0}], [%r8];", "bulk-reduction"),
    ],
)
def test_faults(text: str, rule: str) -> None:
    out = np.zeros(64, np.float32)
    body = "mov.u32 %r8, tile;\n" + text
    assert run(body, {"out": out}, {"map": tiled("out", (64,), (16,), "f32")}, block=1).rules == {rule}


TX = "mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.{TX} [%r1], [%d1, {{0, 0, 0}}], [%r2], {{0, 0}};",
         "along W alone"),
        (f"cp.async.bulk.tensor.4d.shared::cta.global.im2col.{TX} [%r1], [%d1, {{0, 0, 0, 0}}], [%r2], {{0}};",
         "2 im2col offsets"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.im2col_no_offs.bulk_group [%d1, {0, 0}], [%r1];", "three to five"),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r1], 16;", "4 operands"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.cp_mask.add.u32 [%d1], [%r1], 16, %h1;", "cp_mask"),
        (f"cp.async.bulk.tensor.3d.shared::cta.global.tile::gather4.{TX} [%r1], [%d1, {{0, 0, 0, 0, 0}}], [%r2];",
         "two-dimensional"),
        (f"cp.async.bulk.tensor.1d.shared::cta.global.tile.{TX}.multicast::cluster [%r1], [%d1, {{0}}], [%r2], %h1;",
         "shared::cluster"),
        ("cp.async.bulk.wait_group %r1;", "constant"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.s32 [%d1], [%r1], 16;", "not modelled here"),
    ],
)  # fmt: skip
def test_refused_forms(text: str, message: str) -> None:
    module = load_ptx(source(text, {}, {}))
    with pytest.raises(PtxError, match=message):
        Device().launch(module, "kernel", (1, 1, 1), (1, 1, 1), [])


@pytest.mark.parametrize(
    "store",
    [
        "global.shared::cta.bulk_group [%out], [tile], 512",
        "tensor.2d.global.shared::cta.bulk_group [%map, {%zero, %zero}], [tile]",
    ],
)
@pytest.mark.parametrize("waiting", ["@%warp0", "@%first"])
def test_a_store_that_every_lane_issues_is_awaited_by_every_lane(store: str, waiting: str) -> None:
    """The strict profile reports that it is issued more than once."""
    body = f"""
    @%warp0 cp.async.bulk.{store};
    @%warp0 cp.async.bulk.commit_group;
    {waiting} cp.async.bulk.wait_group 0;
    @%warp0 ld.global.b32 %r0, [%out];
    """
    report, _, _ = run_micro(body, "tensor", profile="lenient")
    rules = {f.rule for f in report.findings}
    assert ("bulk-store-in-flight" in rules) == (waiting == "@%first"), rules


LOADS = {
    "plain": "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r40], [%data], 256, [bar];",
    "tensor": """
    cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r40], [%map, {%r41}], [bar];""",
}
OVERWRITE = "@%leader st.global.u32 [%data], %tid;"


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
@pytest.mark.parametrize("kind", LOADS)
def test_the_source_of_a_copy_is_read_until_its_phase_completes(kind: str, schedule: Any) -> None:
    """The warp that has issued the copy may overwrite its source behind the wait, and not before."""
    arrays, maps = {"data": numbers((64,), np.uint32)}, {"map": tiled("data", (64,), (64,))}
    begin = f"""{init_barriers()} mov.b32 %r40, tile; mov.b32 %r41, 0;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    @%leader {LOADS[kind].strip()}"""
    run(f"{begin}\n{wait()}\n{OVERWRITE}", arrays, maps, schedule=schedule).clean()
    early = run(f"{begin}\n{OVERWRITE}\n{wait()}", arrays, maps, schedule=schedule)
    assert early.rules == {"bulk-copy-in-flight"}
    assert "may still read it" in early.report.findings[0].message


def test_the_source_of_a_copy_to_a_peer_is_read_until_its_phase_completes() -> None:
    begin = f"""{init_barriers()} mov.b32 %r40, tile; mov.b32 %r41, bar; xor.b32 %r1, %rank, 1;
    shl.b32 %r5, %tid, 2; add.u32 %r6, %r40, %r5; st.shared.u32 [%r6], %tid; {FENCE}
    add.u32 %r44, %r40, 1024; mapa.shared::cluster.u32 %r42, %r44, %r1; mapa.shared::cluster.u32 %r43, %r41, %r1;
    @%leader mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
    {CLUSTER_SYNC}
    @%leader cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r42], [%r40], 128, [%r43];"""
    overwrite = "@%leader st.shared.u32 [%r40], 7;"
    run(f"{begin}\n{wait()}\n{CLUSTER_SYNC}\n{overwrite}\n{CLUSTER_SYNC}", {}, grid=2, cluster=2).clean()
    early = run(f"{begin}\n{overwrite}\n{wait()}\n{CLUSTER_SYNC}", {}, grid=2, cluster=2)
    assert early.rules == {"bulk-copy-in-flight"}
