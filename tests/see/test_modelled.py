"""Configurations on the timing model: rows of the roofline, the timeline, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fmha.emulator.timing.architecture import architecture
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.emulator.timing.shape import ClustersOfGrid, first_ctas, sampled_by
from fmha.harness.cli.roofline import table
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.kernel_side.launch import Call, forward_grid, tile_rows, walkers_of
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see import modelled
from fmha.harness.see.call_time import CallTime, model
from fmha.harness.see.lengths import given, lengths_of, pieces_of, seen_by, work_of
from fmha.harness.see.modelled_call import chosen
from fmha.harness.see.timelines import drawn
from fmha.harness.worker.compilers.build_kernels import build_variants
from tests.forked import fmha


def modelled_on_b200(repository: Path, cache: Path, item: Configuration) -> tuple[Configuration, Call, CallTime]:
    one = chosen(item, architecture("b200"))
    (built,) = build_variants(repository, [one.variant], cache, 300.0, 1, lambda line: None)
    return item, one.call, model("b200", one.variant, Path(built.ptx), one.call)


@pytest.fixture(scope="module")
def time(repository, build_cache):
    return modelled_on_b200(repository, build_cache, parse_id("hd64_t128_sk1024_out-bf16_splits2_p-tmem"))


def test_a_row_says_what_bounds_and_how_far_the_floor_is(time):
    row = modelled.row_of(*time, modelled.MeasuredCall(10.0, 2))
    assert row.forced == 0
    flop = 4 * 128 * 1024 * 64
    assert row.product_floor_us == pytest.approx(flop / 8192 / 148 / 1845)
    assert row.modelled_us > row.floor_us > 0
    assert row.error == pytest.approx(row.modelled_us / 10 - 1)


def test_a_row_asks_the_model_of_each_launch_once(time, monkeypatch) -> None:
    *_, timed = time
    asked, modelled_once = [], LaunchTiming.modelled
    monkeypatch.setattr(
        LaunchTiming, "modelled", lambda self, times=None: asked.append(self) or modelled_once(self, times)
    )
    row = modelled.row_of_launches("a call", timed)
    assert len(asked) == len(timed.timings) == 2
    assert row.modelled_us == timed.seconds() * 1e6


def test_a_row_is_modelled_with_the_splits_that_were_measured() -> None:
    item = parse_id("hd64_t1_sk8192_h16_out-bf16")
    today = chosen(item, architecture("h100")).call.splits

    def asked(splits: int | None) -> str:
        return modelled.as_measured(item, modelled.MeasuredCall(4.9, splits), "h100").id

    assert asked(today // 2) == f"{item.id}_splits{today // 2}"
    assert chosen(parse_id(asked(today // 2)), architecture("h100")).call.splits == today // 2
    assert asked(today) == asked(None) == asked(1) == item.id  # one split leaves the choice open: it is not compared


def test_what_was_measured_with_other_splits_is_said_and_not_compared(time):
    same, unknown, other = (modelled.row_of(*time, modelled.MeasuredCall(10.0, splits)) for splits in (2, None, 4))
    assert (same.other_call, unknown.other_call, other.other_call) == (False, False, True)
    assert other.error is None
    told = table([same, other])
    assert told[2].endswith("with 4 splits")
    assert told[-2] == "1 were measured with other splits than the call takes: another call, and not compared"
    assert told[-1].startswith("1 measured")


def test_a_row_says_what_it_gains_if_one_thing_were_free(time):
    *_, timed = time
    row = modelled.row_of(*time, free=True)
    assert list(row.free.values()) == sorted(row.free.values(), reverse=True)
    free = modelled.what_if(timed)
    assert row.free == {what: pytest.approx(1 - us / row.modelled_us) for what, us in free.items()}
    assert modelled.row_of(*time).free is None


def test_nothing_that_is_free_makes_a_call_slower(time):
    *_, timed = time
    whole = timed.seconds() * 1e6
    free = modelled.what_if(timed)
    assert set(free) == set(modelled.FREE)
    assert max(free.values()) <= whole * 1.02  # another order at a queue may cost a little
    assert min(free.values()) < 0.95 * whole


def test_the_timeline_has_every_role_and_what_works_beside_them(time):
    *_, timed = time
    timeline, sources = modelled.timeline_of(timed, 0)
    roles = {timeline.role(k) for k in range(len(timeline.warps))}
    assert roles == {"loads", "multiplies", "computes"}
    events = timeline.events(1845.0, sources)
    begun = {e["name"].split()[0] for e in events if e["ph"] == "b"}
    assert {"copy", "product", "tensor"} <= begun
    assert sum(e["ph"] == "b" for e in events) == sum(e["ph"] == "e" for e in events)
    waits = [e for e in events if e.get("cat") == "wait" and "product" in e["args"]["for"]]
    assert waits
    assert all("kernel/" in e["args"]["cuda"] for e in waits)


def test_a_trace_says_which_launch_it_is_of(tmp_path):
    """A call with splits has two, and of each there is a timeline."""
    cycles = {}
    for launch, entry in (([], "fmha_fwd_sm100_hd64_rows32"), (["--launch", "combine"], "fmha_combine")):
        arguments = ["trace", "hd64_t1_sk1024_out-bf16_splits4", "--output", str(tmp_path / "trace.json"), *launch]
        done = fmha(*arguments)
        assert done.returncode == 0, done.stderr
        first, second, *_ = done.stdout.splitlines()
        number = 1 + bool(launch)
        assert second.startswith(f"launch {number} of 2, {entry}; all of them: 1 fmha_fwd_sm100_hd64_rows32 ")
        cycles[entry] = int(first.partition(": ")[2].split()[0])
    assert cycles["fmha_combine"] < cycles["fmha_fwd_sm100_hd64_rows32"]
    done = fmha(*arguments[:-1], "merge")
    assert done.returncode == ExitCode.USAGE
    words = "--launch: 'merge' is of no launch; there are 1 fmha_fwd_sm100_hd64_rows32, 2 fmha_combine"
    assert done.stderr.splitlines()[-1] == f"fmha: {words}"


def test_the_timeline_is_drawn(time):
    *_, timed = time
    timeline, _ = modelled.timeline_of(timed, 0)
    assert 0 < timeline.busy["tensor"] <= 1
    picture = ElementTree.fromstring(drawn("a call", timeline))
    space = "{http://www.w3.org/2000/svg}"
    words = [text.text for text in picture.iter(f"{space}text")]
    assert {"a call", "critical path", "CTA 0, warp 5, loads", "products", "copies by TMA"} <= set(words)
    said = {title.text.partition(":")[0] for title in picture.iter(f"{space}title")}
    assert {"running", "tensor", "tma", "waits"} <= said
    rects = [rect for rect in picture.iter(f"{space}rect") if rect.find(f"{space}title") is not None]
    assert all(float(r.attrib["x"]) + float(r.attrib["width"]) <= 190 + 1000 + 1 for r in rects)
    assert len(rects) < 2000


def test_twice_the_keys_take_about_twice_as_long(repository, build_cache):
    items = [Configuration(64, 256, keys, heads=128, output="bf16") for keys in (2048, 4096)]
    short, long = (modelled_on_b200(repository, build_cache, item)[2].launches()[0].cycles for item in items)
    assert 1.6 < long / short < 2.1


@pytest.mark.nvcc
@pytest.mark.parametrize("head_dim", [64, 512])
def test_the_merge_is_a_small_part_of_a_long_row(repository: Path, build_cache: Path, head_dim: int) -> None:
    item = parse_id(f"hd{head_dim}_t1_sk131072_h16_out-bf16")
    row = modelled.row_of(*modelled_on_b200(repository, build_cache, item))
    (forward, own), (combine, merging) = row.launches
    assert (forward.startswith("fmha_fwd_sm100"), combine) == (True, "fmha_combine_many")
    assert own + merging <= row.modelled_us
    assert merging <= 0.15 * row.modelled_us


def test_splits_are_those_of_attention():
    decode = parse_id("hd64_t1_sk8192_b16_h128_out-bf16")
    assert chosen(decode, architecture("h200")).call.splits == 8
    assert chosen(decode, architecture("b200")).call.splits == 148 // 16


def test_rows_of_a_record_are_configurations(tmp_path):
    shape = {"head_dim": 128, "batch": 4, "heads": 32, "kv_heads": 2, "t": 8, "s_k": 512, "causal": True}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"rows": [shape | {"results": {"ours": {"median_us": 7.5}}}]}))
    assert modelled.measured(record) == {"hd128_t8_sk512_b8_h16_causal_out-bf16": modelled.MeasuredCall(7.5, None)}
    assert modelled.configuration_of(shape | {"head_dim": 512, "shared_kv": True}).kv == "shared"
    rows = [row | {"results": {"ours": {"median_us": 7.5}}} for row in (shape, shape | {"lengths": [8, 2]})]
    record.write_text(json.dumps({"rows": [*rows, rows[0] | {"by_token": True, "batch": 5}]}))
    said: list[str] = []
    assert len(modelled.measured(record, said.append)) == 1
    assert said == [
        "2 rows left out: no configuration's name says their lengths or layout",
        "of 1 rows the record has no splits: they may be other calls than those that are modelled",
    ]
    record.write_text(json.dumps({"rows": [shape | {"results": {"ours": {"median_us": 7.5, "splits": 8}}}]}))
    assert [one.splits for one in modelled.measured(record, said.append).values()] == [8]
    assert len(said) == 2
    record.write_text("{}")
    with pytest.raises(UserError, match="no record of"):
        modelled.measured(record)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["roofline"], "nothing is named; name a configuration, or give --suite or --measured"),
        (["roofline", "hd128"], "hd128: it has no t, s_k: names begin like hd64_t32_sk384"),
        (["trace", "hd64_t1_sk128", "--gpu", "mi300"], "--gpu: 'mi300' is not one of h200, h100, b200, gb200, gb300"),
        (
            ["roofline", "--gpu", "h200", "hd64_t4_sk128_top8_of64"],
            "hd64_t4_sk128_top8_of64: the timing model draws no lists of sparse keys on sm_90a",
        ),
    ],
)
def test_what_cannot_be_modelled_is_said_in_a_line(arguments, said):
    done = fmha(*arguments)
    assert (done.returncode, done.stderr) == (2, f"fmha: {said}\n")


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("hd64_t4_sk128_top8_of64_indices-holes", "lists of sparse keys"),
        ("hd64_t4_sk128_b2_lens-ragged_top8_of64", "lists of sparse keys"),
        ("hd64_t8_sk128_causal_offsets-zero", "query offsets"),
        ("hd64_t1_sk128_before3", "tensors with entries before the call's"),
    ],
)
@pytest.mark.parametrize("gpu", ["h200", "b200"])
def test_what_is_not_modelled_is_refused_and_never_left_out_of_the_time(name: str, absent: str, gpu: str) -> None:
    item = parse_id(name)
    with pytest.raises(UserError, match=f"the timing model draws no {absent}"):
        list(modelled.modelled(Path.cwd(), [item], gpu, lambda line: None))


def test_lists_are_drawn_and_their_rows_are_of_the_floor(repository: Path, build_cache: Path) -> None:
    """Of what the kernel reads as of what its floors are, each row that a query names counts, and once."""
    item = parse_id("hd64_t2_sk0_h16_top256_of1024_out-bf16")
    one = chosen(item, architecture("b200"))
    assert one.of is not None
    assert one.of.inputs.sparse is not None
    indices = one.of.inputs.sparse.indices
    assert all(np.unique(row).size == 256 for row in indices[0])
    (built,) = build_variants(repository, [one.variant], build_cache, 300.0, 1, lambda line: None)
    time = model("b200", one.variant, Path(built.ptx), one.call, of=one.of)
    assert time.flop == 4 * 2 * 256 * 16 * 64
    assert time.bytes == 2 * 64 * (2 * 2 * 16 + 2 * np.unique(indices).size)
    _, timing = time.timings[0]
    assert sum(timing.read.values()) >= 2 * 2 * 64 * np.unique(indices).size
    assert timing.modelled().forced == 0


RAGGED = parse_id("hd64_t1_sk2048_b8_lens-ragged_out-bf16_splits2")
LENGTHS = np.array([2048, 64, 64, 64, 512, 1024, 0, 100], np.int32)


def test_what_each_cta_has_to_do_is_its_part_of_the_keys_of_its_entry() -> None:
    one = chosen(RAGGED, architecture("h200"), keys=LENGTHS)
    assert one.of is not None
    keys = one.variant.shape.keys
    tiles = [-(-length // keys) for length in LENGTHS]
    assert work_of(one.variant, one.call, lengths_of(one.of)) == [x for n in tiles for x in (n // 2, n - n // 2)]
    alike = chosen(RAGGED, architecture("h200"), keys=np.full(8, 512, np.int32))
    assert alike.of is not None
    assert work_of(alike.variant, alike.call, lengths_of(alike.of)) == []


def test_the_last_row_tile_of_an_entry_comes_first_on_hopper_where_none_is_drawn() -> None:
    one = chosen(parse_id("hd64_t512_sk512_b2_causal_lens-ragged_out-bf16"), architecture("h200"), keys=LENGTHS[:2])
    assert one.of is not None
    work = work_of(one.variant, one.call, lengths_of(one.of))
    row_tiles = forward_grid(one.variant, one.call, draws=False)[0]
    chunks = [work[n : n + row_tiles] for n in range(0, len(work), row_tiles)]
    assert all(chunk == sorted(chunk, reverse=True) for chunk in chunks)
    assert chunks[0][0] > chunks[0][-1]


def test_row_tiles_that_are_drawn_under_a_mask_end_with_the_last_row() -> None:
    """So that the first one lacks rows: under a causal mask it has the fewest keys."""
    one = chosen(parse_id("hd64_t1024_sk1024_b256_causal_out-bf16"), architecture("h200"))
    assert one.variant.shape.rows == 192
    tiles = work_of(one.variant, one.call, [(1024, 1024)] * 256)[:6]
    assert tiles == [8, 7, 5, 4, 2, 1]  # of 128 keys, for rows up to 1024, 832, 640, 448, 256 and 64


def test_row_tiles_that_are_drawn_are_those_of_queries_that_there_are() -> None:
    packed = parse_id("hd64_t512_sk512_b8_h8_kvh8_lens-ragged_qlens-ragged_out-bf16_packed-both")
    one = chosen(packed, architecture("h200"))
    assert one.of is not None
    pairs = lengths_of(one.of)
    rows = tile_rows(one.variant, one.call)
    pieces = pieces_of(one.variant, one.call, pairs)
    assert len(pieces) == sum(8 * -(-queries // rows) for queries, keys in pairs if keys)
    assert max(pieces) == 1 + -(-512 // one.variant.shape.keys)


def test_keys_that_queries_see_are_counted_under_a_mask() -> None:
    causal = chosen(parse_id("hd64_t8_sk100_causal_out-bf16"), architecture("h200")).call
    assert seen_by(causal, 8, 100) == sum(range(93, 101))
    assert seen_by(causal, 8, 4) == 1 + 2 + 3 + 4
    whole = chosen(parse_id("hd64_t8_sk100_out-bf16"), architecture("h200")).call
    assert seen_by(whole, 3, 10) == 30


def test_lengths_that_nobody_gives_are_drawn_as_a_run_draws_them() -> None:
    inputs = given(RAGGED).inputs
    assert inputs.kv_lens is not None
    assert (inputs.kv_lens[1], inputs.kv_lens[5]) == (0, 2048)
    assert given(parse_id("hd64_t1_sk128_b2_lens-empty")).inputs.kv_lens is not None
    assert given(parse_id("hd64_t1_sk128_b2_page16")).inputs.kv_lens is None


@pytest.fixture
def cached(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        modelled, "build_variants", lambda root, variants, _, *how: build_variants(root, variants, build_cache, *how)
    )


@pytest.mark.nvcc
@pytest.mark.usefixtures("cached")
def test_a_call_with_short_entries_takes_less_time_and_reads_less(repository: Path) -> None:
    items = [
        parse_id("hd64_t1_sk8192_b64_out-bf16_splits2"),
        parse_id("hd64_t1_sk8192_b64_lens-ragged_out-bf16_splits2"),
    ]
    whole, ragged = (time for *_, time in modelled.modelled(repository, items, "h200", lambda line: None))
    assert ragged.bytes < 0.8 * whole.bytes
    assert 0.4 * whole.seconds() < ragged.seconds() <= whole.seconds()  # the longest entry lasts as long
    (found,) = [timing.shape for _, timing in ragged.timings if timing.shape.work]
    assert len(found.work) == found.clusters == 128


@pytest.mark.nvcc
@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize(
    "name",
    [
        "hd64_t1_sk2048_b4_out-bf16_page16",
        "hd64_t1_sk2048_b4_h4_kvh2_lens-ragged_out-bf16_splits8_merge-balanced",
        "hd64_t64_sk256_b2_h4_kvh2_out-bf16_layout-fused",
        "hd64_t512_sk512_b24_h8_kvh8_lens-ragged_qlens-ragged_out-bf16_packed-both",
    ],
)
def test_what_lies_elsewhere_or_is_divided_otherwise_has_a_time(repository: Path, name: str) -> None:
    ((_, call, time),) = modelled.modelled(repository, [parse_id(name)], "h200", lambda line: None)
    assert 1e-6 < time.seconds() < 1e-4
    assert all(launch.forced == 0 for launch in time.launches())
    assert (call.balance is not None) == ("balanced" in name)


@pytest.mark.nvcc
@pytest.mark.usefixtures("cached")
def test_few_row_tiles_that_many_ctas_draw_are_refused(repository: Path) -> None:
    """The launch lasts as its longest then, which the three that are recorded need not be."""
    few = parse_id("hd64_t512_sk512_b12_h8_kvh8_lens-ragged_qlens-ragged_out-bf16_packed-both")
    with pytest.raises(UserError, match="packed queries of 408 row tiles, which 264 CTAs draw"):
        list(modelled.modelled(repository, [few], "h200", lambda line: None))


def test_a_launch_of_uneven_work_is_looked_at_from_the_least_to_the_most() -> None:
    work = [5.0, 1.0, 9.0, 9.0, 3.0, 7.0, 1.0]
    assert sorted(work[n] for n in sampled_by(work)) == [1, 3, 5, 7, 9]
    assert len(sampled_by([2.0] * 9 + [3.0])) == 2
    shape = ClustersOfGrid(7, 1, 7, 1, 1, (1, 0, 2), None, first_ctas((7, 1, 1), (1, 1, 1)), tuple(work))
    assert shape.at_work(2, architecture("h200")) == pytest.approx(sum(work) / 9)
    assert shape.spread({1: 10.0, 0: 50.0, 2: 70.0}) == [50, 10, 70, 70, 30, 60, 10]


def test_how_far_the_model_may_be_off_is_told_of_every_gpu() -> None:
    assert set(modelled.WITHIN) == set(modelled.NAMES)


@pytest.mark.nvcc
def test_a_grid_of_ctas_that_draw_their_work_lasts_as_its_work_does(
    repository: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a persistent grid a few CTAs run. Should they draw the whole grid's work, it would seem to last for ever."""
    monkeypatch.setattr(
        modelled, "build_variants", lambda root, variants, _, *how: build_variants(root, variants, build_cache, *how)
    )
    names = ("hd64_t2048_sk256_b2_out-bf16", "hd64_t2048_sk256_b16_out-bf16", "hd64_t2048_sk256_b32_out-bf16")
    items = [parse_id(name) for name in names]
    few, drawn, twice = (time.seconds() for *_, time in modelled.modelled(repository, items, "h200", lambda line: None))
    assert walkers_of(variant_of(items[0]), chosen(items[0], architecture("h200")).call) == 0
    assert walkers_of(variant_of(items[1]), chosen(items[1], architecture("h200")).call) > 0
    assert few < drawn < 4 * few  # one wave, and two
    assert 1.2 * drawn < twice < 2.4 * drawn


@pytest.mark.nvcc
@pytest.mark.usefixtures("cached")
def test_ctas_that_draw_two_row_tiles_do_those_that_they_are_taken_for(repository: Path) -> None:
    """What they read says so: it is as much as the CTAs read that have these row tiles for themselves."""
    item = parse_id("hd64_t500_sk500_b100_causal_out-bf16")
    ((_, call, time),) = modelled.modelled(repository, [item], "h200", lambda line: None)
    variant = chosen(item, architecture("h200")).variant
    (_, timing), (row_tiles, _, _) = time.timings[0], forward_grid(variant, call, draws=False)
    assert timing.pairs is not None
    drawn, pairs = timing.pairs
    alone, together = ({c["ordinal"]: c["read"] for c in t.clusters} for t in (timing, drawn))
    assert pairs
    assert sorted(timing.order) == list(range(row_tiles * 100))
    for cta, own in pairs:
        each = [alone[n % row_tiles] for n in own]
        for base in each[0]:
            assert together[cta][base] == each[0][base] + each[1][base]
    assert any(alone[a % row_tiles] != alone[b % row_tiles] for _, (a, b) in pairs)
    # A CTA that goes on begins the next row tile before it has ended one: the whole lasts less than its parts.
    whole = time.seconds()
    timing.pairs = None
    assert 0.7 * time.seconds() < whole < time.seconds()


def variant_of(item: Configuration) -> Variant:
    variant = variant_for(item, "sm_90a")
    assert not isinstance(variant, str)
    return variant
