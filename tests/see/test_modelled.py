"""Configurations on the timing model: rows of the roofline, the timeline, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fmha.emulator.timing.architecture import architecture
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.kernel_side.launch import Call, walkers_of
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see import modelled
from fmha.harness.see.call_time import CallTime, call_for, model
from fmha.harness.see.timelines import drawn
from fmha.harness.worker.compilers.build import build_variants
from tests.forked import fmha


def modelled_on_b200(repository: Path, cache: Path, item: Configuration) -> tuple[Configuration, Call, CallTime]:
    call = call_for(item, architecture("b200"))
    variant = variant_for(replace(item, splits=call.splits), "sm_100a")
    assert not isinstance(variant, str)
    (built,) = build_variants(repository, [variant], cache, 300.0, 1, lambda line: None)
    return item, call, model("b200", variant, Path(built.ptx), call)


@pytest.fixture(scope="module")
def time(repository, build_cache):
    return modelled_on_b200(repository, build_cache, parse_id("hd64_t128_sk1024_out-bf16_splits2_p-tmem"))


def test_a_row_says_what_bounds_and_how_far_the_floor_is(time):
    row = modelled.row_of(*time, measured_us=10.0)
    assert row.forced == 0
    flop = 4 * 128 * 1024 * 64
    assert row.product_floor_us == pytest.approx(flop / 8192 / 148 / 1845)
    assert row.modelled_us > row.floor_us > 0
    assert row.error == pytest.approx(row.modelled_us / 10 - 1)


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
@pytest.mark.parametrize(("head_dim", "part"), [(64, 0.25), (512, 0.15)])
def test_the_merge_is_a_small_part_of_a_long_row(
    repository: Path, build_cache: Path, head_dim: int, part: float
) -> None:
    """At 64 the forward kernel takes 5.6 us, and no merge less than one."""
    item = parse_id(f"hd{head_dim}_t1_sk131072_h16_out-bf16")
    row = modelled.row_of(*modelled_on_b200(repository, build_cache, item))
    (forward, own), (combine, merging) = row.launches
    assert (forward.startswith("fmha_fwd_sm100"), combine) == (True, "fmha_combine_many")
    assert own + merging <= row.modelled_us
    assert merging <= part * row.modelled_us


def test_splits_are_those_of_attention():
    decode = parse_id("hd64_t1_sk8192_b16_h128_out-bf16")
    assert call_for(decode, architecture("h200")).splits == 8
    assert call_for(decode, architecture("b200")).splits == 148 // 16


def test_rows_of_a_record_are_configurations(tmp_path):
    shape = {"head_dim": 128, "batch": 4, "heads": 32, "kv_heads": 2, "t": 8, "s_k": 512, "causal": True}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"rows": [shape | {"results": {"ours": {"median_us": 7.5}}}]}))
    assert modelled.measured(record) == {"hd128_t8_sk512_b8_h16_causal_out-bf16": 7.5}
    assert modelled.configuration_of(shape | {"head_dim": 512, "shared_kv": True}).kv == "shared"
    rows = [row | {"results": {"ours": {"median_us": 7.5}}} for row in (shape, shape | {"lengths": [8, 2]})]
    record.write_text(json.dumps({"rows": [*rows, rows[0] | {"by_token": True, "batch": 5}]}))
    said: list[str] = []
    assert len(modelled.measured(record, said.append)) == 1
    assert said == ["2 rows left out: the timing model draws no packed sequences or other layouts"]
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
            ["roofline", "hd64_t4_sk128_top8_of64"],
            "hd64_t4_sk128_top8_of64: the timing model draws no lists of sparse keys",
        ),
    ],
)
def test_what_cannot_be_modelled_is_said_in_a_line(arguments, said):
    done = fmha(*arguments)
    assert (done.returncode, done.stderr) == (2, f"fmha: {said}\n")


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("hd64_t1_sk128_b2_lens-ragged", "lengths of batch entries"),
        ("hd64_t1_sk128_b2_lens-empty", "lengths of batch entries"),
        ("hd64_t1_sk128_b2_page16", "pages and no packed sequences"),
        ("hd64_t1_sk128_b2_packed-k", "pages and no packed sequences"),
        ("hd64_t8_sk128_causal_offsets-zero", "query offsets"),
        ("hd64_t1_sk128_b2_splits2_merge-balanced", "balanced splits"),
        ("hd64_t1_sk128_splits2_merge-cluster", "splits that a cluster merges"),
        ("hd64_t1_sk128_h2_layout-bhsd", "tensors in other layouts"),
        ("hd64_t1_sk128_before3", "tensors with entries before the call's"),
    ],
)
@pytest.mark.parametrize("gpu", ["h200", "b200"])
def test_what_is_not_modelled_is_refused_and_never_left_out_of_the_time(name: str, absent: str, gpu: str) -> None:
    item = parse_id(name)
    with pytest.raises(UserError, match=f"the timing model draws no {absent}"):
        list(modelled.modelled(Path.cwd(), [item], gpu, lambda line: None))


def test_how_far_the_model_may_be_off_is_told_of_every_gpu() -> None:
    assert set(modelled.WITHIN) == set(modelled.NAMES)


@pytest.mark.nvcc
def test_a_grid_of_ctas_that_draw_their_work_lasts_as_its_work_does(
    repository: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a persistent grid five CTAs run. Should they draw the whole grid's work, it would seem to last for ever."""
    monkeypatch.setattr(
        modelled, "build_variants", lambda root, variants, _, *how: build_variants(root, variants, build_cache, *how)
    )
    names = ("hd64_t2048_sk256_b2_out-bf16", "hd64_t2048_sk256_b16_out-bf16", "hd64_t2048_sk256_b32_out-bf16")
    items = [parse_id(name) for name in names]
    few, drawn, twice = (time.seconds() for *_, time in modelled.modelled(repository, items, "h200", lambda line: None))
    assert walkers_of(variant_of(items[0]), call_for(items[0], architecture("h200"))) == 0
    assert walkers_of(variant_of(items[1]), call_for(items[1], architecture("h200"))) > 0
    assert few < drawn < 4 * few  # one wave, and two
    assert 1.2 * drawn < twice < 2.4 * drawn


def variant_of(item: Configuration) -> Variant:
    variant = variant_for(item, "sm_90a")
    assert not isinstance(variant, str)
    return variant
