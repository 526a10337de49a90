from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.harness.config import load
from fmha.harness.config.__main__ import page
from fmha.harness.config.loader import interpret
from fmha.harness.config.ours import Ours
from fmha.harness.config.yaml_lines import parse
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.metrics import METRICS

EMPTY = "head_dim: 64, t: 5, s_k: 70, heads: 2, kv_lens: empty"


@pytest.fixture(scope="module")
def text(repository: Path) -> str:
    return (repository / "matrix.yaml").read_text()


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        interpret(text, "matrix.yaml", "0" * 64)
    assert str(caught.value).splitlines() == list(caught.value.problems)
    return caught.value.problems


def line_of(text: str, needle: str) -> int:
    return text[: text.index(needle)].count("\n") + 1


def test_suites_are_what_they_are_known_for(repository: Path) -> None:
    matrix = load(repository)
    assert all(matrix.suites.values())
    assert min(len(matrix.suites[name]) for name in ("cover", "cover-sm90")) > 200
    assert {name: suite.cases for name, suite in matrix.random_suites.items()} == {"random": 50}
    assert matrix.default_suite == "seed,cover,layouts,paged"
    assert Counter(item.mask for item in matrix.suites["seed"]) == {"none": 64, "causal": 4, "window": 4}
    assert set(matrix.suites["proven"]) <= set(matrix.suites["seed"])


def test_the_guard_comes_first_and_ids_are_unique(repository: Path) -> None:
    matrix = load(repository)
    for items in matrix.suites.values():
        ids = [item.id for item in items]
        assert len(set(ids)) == len(ids)
        proven = [len(item.id.split("_")) == 3 and item.head_dim == 64 for item in items]
        assert proven == sorted(proven, reverse=True)
        assert proven == [matrix.is_guard(item) for item in items]


def test_order_is_that_of_the_file(repository: Path) -> None:
    ids = [item.id for item in load(repository).suites["seed"]]
    assert ids[:2] == ["hd64_t1_sk128", "hd64_t1_sk256"]
    assert ids[15:17] == ["hd64_t128_sk512", "hd128_t1_sk128"]
    assert ids[64:66] == ["hd64_t32_sk384_causal", "hd64_t32_sk384_window128"]


def test_every_configuration_of_the_seed_suite_is_held_to_the_figure_it_was_proved_with(repository: Path) -> None:
    matrix = load(repository)
    assert {matrix.thresholds_for(item).limits["cosine"] for item in matrix.suites["seed"]} == {0.999996}
    assert {matrix.thresholds_for(item).limits["lse_error"] for item in matrix.suites["seed"]} == {1e-4}


def test_guard_thresholds_override_the_default(text: str) -> None:
    own = text.replace("guard:\n    cosine: 0.999996", "guard:\n    cosine: 0.9999975", 1)
    matrix = interpret(own, "matrix.yaml", "0" * 64)
    guard, other = matrix.suites["seed"][0], matrix.suites["seed"][-1]
    assert matrix.thresholds_for(guard).limits["cosine"] == 0.9999975
    assert matrix.thresholds_for(other).limits["cosine"] == 0.999996
    assert matrix.thresholds_for(guard).limits["lse_error"] == matrix.thresholds_for(other).limits["lse_error"] == 1e-4


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ("t: [1, 4, 32, 128]", "t: [1, 4, 0, 128]", "suites.proven.axes.t[2]", "must be at least 1, not 0"),
        ("t: [1, 4, 32, 128]", "t: [1, 4, 4, 128]", "suites.proven.axes.t[2]", "4 is repeated"),
        ("t: [1, 4, 32, 128]", "t: []", "suites.proven.axes.t", "must not be empty"),
        ("t: [1, 4, 32, 128]", "t: 4", "suites.proven.axes.t", "must be a list, not 4"),
        ("t: [1, 4, 32, 128]", "t: [1.5]", "suites.proven.axes.t[0]", "must be a whole number, not 1.5"),
        ("t: [1, 4, 32, 128]", "t: [true]", "suites.proven.axes.t[0]", "must be a whole number, not true"),
        ("t: [1, 4, 32, 128]", "t: ['4']", "suites.proven.axes.t[0]", "must be a whole number, not '4'"),
        ("t: [1, 4, 32, 128]", "t: [1]\n      T: [4]", "suites.proven.axes.T", "unknown key"),
        ("t: [1, 4, 32, 128]", "t: [1]\n      t: [4]", "suites.proven.axes.t", "key repeated, first on line"),
        ("t: [1, 4, 32, 128]", "t: [1]\n      64: [4]", "suites.proven.axes", "key '64' must be text"),
        ("t: [1, 4, 32, 128]", "t: &a [*a]", "suites.proven.axes.t[0]", "an alias inside its own anchor"),
        ("t: [1, 4, 32, 128]", "t: !!python/tuple [1]", "suites.proven.axes.t", "unknown tag"),
        (
            "default_suite: [seed, cover, layouts, paged]",
            "default_suite: other",
            "default_suite",
            "no suite is named 'other'",
        ),
        (EMPTY, f"{EMPTY}, mask: diagonal", "suites.ragged.extra[0].mask", "must be 'none', 'causal', 'window' or "),
        (EMPTY, f"{EMPTY}, mask: window", "suites.ragged.extra[0].window", "is required with mask window"),
        (EMPTY, f"{EMPTY}, window: 4", "suites.ragged.extra[0].window", "is required with mask window, and only then"),
        (EMPTY, f"{EMPTY}, left: 4", "suites.ragged.extra[0].left", "is for mask band only"),
        (EMPTY, f"{EMPTY}, s_sparse: 4", "suites.ragged.extra[0].s_sparse", "is for topk above 0 only"),
        (EMPTY, f"{EMPTY}, sink: mixed", "suites.ragged.extra[0].sink", "mixed needs at least 4 heads"),
        (EMPTY, f"{EMPTY}, splits: 0", "suites.ragged.extra[0].splits", "must be at least 1, not 0"),
        (f"{{{EMPTY}}}", "64", "suites.ragged.extra[0]", "must be a mapping, not 64"),
        (f"- {{{EMPTY}}}", f"- {{{EMPTY}}}\n      - {{{EMPTY}}}", "suites.ragged.extra[1]", "is in the suite already"),
        ("cases: 50", "cases: 0", "suites.random.random.cases", "must be at least 1, not 0"),
        ("  random:\n    random:", "  random:\n    axes: {}\n    random:", "suites.random.axes.t", "is required"),
        ("registers: 255", "registers: many", "gates.resources.registers", "must be a whole number, not 'many'"),
        ("cosine: 0.999996\n", "cosine: 1.5\n", "gates.guard.cosine", "must be at most 1.0, not 1.5"),
        ("cosine: 0.999996\n", "cosine: .nan\n", "gates.guard.cosine", "must be a number, not '.nan'"),
        (
            "gates:\n",
            "gates:\n  default: {lse_error: tiny}\n",
            "gates.default.lse_error",
            "must be a number, not 'tiny'",
        ),
        ("gates:\n", "gates:\n  default: {lse_error: }\n", "gates.default.lse_error", "must be a number, not nothing"),
        ("build_seconds: 300", "build_seconds: 0", "limits.build_seconds", "must be more than 0.0, not 0"),
        (
            "kind: emulator",
            "kind: abacus",
            "hosts.emulator.kind",
            ", not 'abacus'",
        ),
        ("  proven:\n", "  Proven One:\n", "suites.'Proven One'", "is no name"),
    ],
)
def test_a_problem_names_line_and_field(text: str, old: str, new: str, field: str, words: str) -> None:
    broken = text.replace(old, new, 1)
    assert broken != text
    found = [problem for problem in problems(broken) if f" {field}: " in problem and words in problem]
    assert found, problems(broken)
    line = int(re.match(r"matrix\.yaml:(\d+): ", found[0])[1])
    first = line_of(text, old)
    removed = not new
    assert (first - 10 < line <= first) if removed else (first <= line <= first + new.count("\n") + 1)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("", "matrix.yaml:1: the file is empty"),
        ("- 1\n", "matrix.yaml:1: the top level must be a mapping"),
        ("seed: 0\nsuites:\n\tproven: 1\n", "matrix.yaml:3: broken YAML: found character '\\t'"),
        ("seed: 0\nsuites: [1, 2\ngates: {}\n", "matrix.yaml:3: broken YAML: "),
        ("seed: 0\n--- \nseed: 1\n", "matrix.yaml:2: broken YAML: "),
        ("seed: 0\nhosts: \x07\n", "matrix.yaml:2: broken YAML: special characters are not allowed"),
        ("seed: 0\nhosts: *nowhere\n", "matrix.yaml:2: broken YAML: found undefined alias 'nowhere'"),
        ("[" * 600, "matrix.yaml:1: broken YAML: nested too deeply"),
    ],
)
def test_broken_yaml_is_one_line(broken: str, problem: str) -> None:
    (found,) = problems(broken)
    assert found.startswith(problem)
    assert "\n" not in found


def test_tabs_come_with_advice() -> None:
    assert problems("seed: 0\nsuites:\n\tproven: 1\n")[0].endswith("indent with spaces, not tabs")


def test_an_empty_suite_and_no_suites(text: str) -> None:
    head, tail = text[: text.index("suites:")], text[text.index("gates:") :]
    assert "matrix.yaml:6: suites.seed: the suite is empty; give it axes, grids, extra, cases or random" in problems(
        f"{head}suites: {{seed: {{}}}}\n{tail}"
    )
    assert "matrix.yaml:6: suites: must not be empty" in problems(f"{head}suites: {{}}\n{tail}")


def test_an_absurd_product_is_refused_before_it_is_expanded(text: str) -> None:
    huge = str(list(range(1, 1001)))
    broken = text.replace("t: [1, 4, 32, 128]", f"t: {huge}", 1).replace("s_k: [128, 256, 384, 512]", f"s_k: {huge}", 1)
    assert any("1000000 configurations; at most 10000" in line for line in problems(broken))


def test_what_all_suites_together_have_is_counted_before_any_is_made(text: str) -> None:
    """Each of them is allowed, and an alias makes another in nine characters."""
    grid = {"head_dim": [64], "t": list(range(1, 101)), "s_k": list(range(1, 101))}
    more = "".join(f"  s{number}: *large\n" for number in range(4000))
    (problem,) = problems(text.replace("suites:\n", f"suites:\n  large: &large\n    axes: {grid}\n{more}", 1))
    assert problem.endswith("suites.s1: with this suite the file has more than 20000 configurations")
    cases = ["hd64_t1_sk128"] * 20_001
    (problem,) = problems(text.replace("suites:\n", f"suites:\n  named: {{cases: {cases}}}\n", 1))
    assert problem.endswith("suites.named: with this suite the file has more than 20000 configurations")


def test_every_problem_is_reported_in_the_order_of_the_file(text: str) -> None:
    found = problems(text.replace("seed: 0", "seed: -1").replace("build_seconds: 300", "build_seconds: x"))
    assert [problem.split(": ")[1] for problem in found] == ["seed", "limits.build_seconds"]


def test_masks_and_windows_as_axes(text: str) -> None:
    axes = "mask: [none, window]\n      window: [64, 128]\n      t: [1, 4, 32, 128]"
    matrix = interpret(text.replace("t: [1, 4, 32, 128]", axes, 1), "matrix.yaml", "0" * 64)
    assert Counter((item.mask, item.window) for item in matrix.suites["proven"]) == {
        ("none", 0): 16,
        ("window", 64): 16,
        ("window", 128): 16,
    }


def test_an_axis_that_a_configuration_has_no_use_for_is_left_out(text: str) -> None:
    axes = "mask: [none, band]\n      left: [3, -1]\n      topk: [0, 8]\n      s_sparse: [20, 40]\n      t: [1]"
    matrix = interpret(text.replace("t: [1, 4, 32, 128]", axes, 1), "matrix.yaml", "0" * 64)
    names = [item.id.removeprefix("hd64_t1_sk128") for item in matrix.suites["proven"] if item.s_k == 128]
    masks, lists = ("", "_band3toall", "_bandalltoall"), ("", "_top8_of20", "_top8_of40")
    assert sorted(names) == sorted(mask + sparse for mask in masks for sparse in lists)


def test_limits_are_those_of_a_configuration_s_nature(repository: Path) -> None:
    matrix = load(repository)
    plain = Configuration(128, 1, 128)
    bf16, extreme = replace(plain, output="bf16"), replace(plain, data="extreme")
    ours = matrix.kernels["ours"]
    assert isinstance(ours, Ours)
    assert matrix.thresholds_for(plain) == ours.gates.thresholds
    assert matrix.thresholds_for(bf16) == ours.natures["bf16"]
    assert matrix.thresholds_for(extreme) == ours.natures["extreme"]
    assert matrix.thresholds_for(replace(plain, data="steps")) == ours.natures["steps"]
    assert matrix.thresholds_for(replace(plain, data="onesign")) == ours.gates.thresholds
    for statistics in ("all", "lse", "none"):
        asked = replace(bf16, statistics=statistics)
        limits = ours.natures["bf16"].limits
        assert matrix.thresholds_for(asked).limits == {
            name: limits[name] for name in limits if name not in asked.unmeasured
        }
    both = matrix.thresholds_for(replace(bf16, data="extreme"))
    assert both.limits["lse_error"] == ours.natures["extreme"].limits["lse_error"]
    assert both.limits["max_error"] == max(
        ours.natures["bf16"].limits["max_error"], ours.natures["extreme"].limits["max_error"]
    )
    assert both.limits["cosine"] == min(ours.natures["bf16"].limits["cosine"], ours.natures["extreme"].limits["cosine"])


def test_a_scale_is_written_as_the_number_it_is(text: str) -> None:
    head = "suites:\n"
    mine = "  mine:\n    axes: {head_dim: [64], t: [1], s_k: [9], scale: [root, 0.02, 0.25]}\n"
    matrix = interpret(text.replace(head, head + mine, 1), "matrix.yaml", "0" * 64)
    assert [item.id for item in matrix.suites["mine"]] == [
        "hd64_t1_sk9", "hd64_t1_sk9_scale-0.02", "hd64_t1_sk9_scale-0.25",
    ]  # fmt: skip
    (problem,) = problems(text.replace(head, head + mine.replace("0.25", "0.3"), 1))
    assert "0.3" in problem
    assert "0.25" in problem


def test_a_metric_s_limit_is_its_own_unless_the_file_has_another(text: str) -> None:
    said = text.replace("gates:\n", "gates:\n  default: {lse_error: 3e-4}\n", 1)
    usual, other = (interpret(each, "matrix.yaml", "0" * 64).kernels["ours"] for each in (text, said))
    assert isinstance(usual, Ours)
    assert isinstance(other, Ours)
    limits = {name: metric.limit for name, metric in METRICS.items()}
    assert usual.gates.thresholds.limits == limits
    assert other.gates.thresholds.limits == limits | {"lse_error": 3e-4}
    assert other.natures["bf16"].limits == usual.natures["bf16"].limits | {"lse_error": 3e-4}


def test_random_cases_depend_on_the_seed_and_more_of_them_begin_with_the_fewer(repository: Path) -> None:
    matrix = load(repository)
    few, many, others = (matrix.configurations("random", seed, cases) for seed, cases in ((3, 20), (3, 60), (4, 20)))
    assert set(few) <= set(many)
    assert len(set(many)) == 60
    assert not set(few) & set(others)


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"matrix\.yaml: cannot be read: No such file.*run fmha in a checkout"):
        load(tmp_path)
    (tmp_path / "matrix.yaml").write_bytes(b"seed: 0\nname: \xff\n")
    with pytest.raises(ConfigError, match=r"^matrix\.yaml:2: broken YAML: not UTF-8$"):
        load(tmp_path)


def test_a_file_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    """A commit's matrix.yaml may be a link to what ends when memory does."""
    (tmp_path / "matrix.yaml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"^matrix\.yaml:1: has more than 1048576 bytes$"):
        load(tmp_path)


def test_scalars_follow_yaml_1_2() -> None:
    document = parse("[1e-4, 0.5, 010, no, on, 1:30, 2020-01-01, true, ~, .5, 1., 'x', 12e3]", "f")
    assert document.data == [1e-4, 0.5, 10, "no", "on", "1:30", "2020-01-01", True, None, 0.5, 1.0, "x", 12e3]


@given(st.text(max_size=200))
def test_no_text_is_anything_but_a_config_error(text: str) -> None:
    assert all(re.match(r"matrix\.yaml:\d+: ", problem) for problem in problems(text))


def test_the_page_of_keys_is_current(repository: Path) -> None:
    assert (repository / "docs/reference/matrix-keys.md").read_text() == page()
