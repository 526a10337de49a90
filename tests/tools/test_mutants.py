"""The library of mistakes in the CUDA source, and the tool that runs it."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.config import Matrix, load
from fmha.harness.errors import ExitCode
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.identity import CORE
from fmha.harness.kernel_side.variants import VARIANTS
from tests.forked import fmha
from tests.harness.support import git
from tools.mutants import library, mutants_page
from tools.mutants.__main__ import DRAWN, default_runs, main
from tools.mutants.campaign import CampaignError, CampaignPlan, _Running, cases_of, kept_of, part_of, run, run_cases
from tools.mutants.examine import Kill, MutantExamination, Suite, copy_kernel, lay_out
from tools.mutants.kept_verdicts import CaseOutcome, MutantCase
from tools.mutants.learn import known, learn
from tools.mutants.library import DoesNotApplyError, Edit, LibraryError, Mutant
from tools.mutants.mutant_builds import built
from tools.mutants.mutant_order import SLOW, Hints, KernelFacts, by_variant, changed_lines, ordered

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "results" / "mutants.json"
SAMPLE = 8  # recorded kills that are seen again
# What every suite before `cover` let pass, but a random one, and what is said of it.
PASSED_BEFORE = {
    "rescale-dropped": "cosine",
    "heads-reversed": "cosine",
    "key-batch": "cosine",
    "sink-ignored": "cosine",
    "output-doubled": "max_error",
    "threshold-126": "nonfinite_mismatches",
    "mask-unless-seen-left": "row_sum_error",
    "combine-heads-64": "cosine",
    "causal-dropped": "cosine",
    "positions-32": "nonfinite_mismatches",
    "output-offsets-32": "global-out-of-bounds",
    "lists-32": "global-out-of-bounds",
    "partial-offsets-32": "global-out-of-bounds",
}
MUTANTS = {mutant.name: mutant for mutant in library.load()}


def recorded() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return data


def sample() -> list[Mapping[str, Any]]:
    """Recorded kills of mutants that are what they were, always the same ones."""
    killed = [case for case in recorded()["cases"] if case["default"] and case["name"] in MUTANTS]
    same = [case for case in killed if MUTANTS[case["name"]].digest == case["digest"]]
    return sorted(same, key=lambda case: sha256(f"{case['name']} {case['arch']}".encode()).digest())[:SAMPLE]


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load(ROOT)


@pytest.fixture(scope="module")
def kept(build_cache: Path) -> Path:
    """Where all tests of this file build, each kernel once for each state of its sources."""
    return build_cache.with_name("mutants")


def plan(matrix: Matrix, kept: Path, *names: str, drawn: int | None = None, **others: Any) -> CampaignPlan:
    default = Suite("default", tuple(parse_id(name) for name in names), drawn)
    return CampaignPlan(ROOT, matrix, dict.fromkeys(library.ARCHES, default), (), kept, jobs=2, **others)


# The library


def test_every_mutant_applies() -> None:
    assert library.refused(list(MUTANTS.values()), ROOT) == []


def test_there_are_enough_of_them() -> None:
    of = {arch: [m for m in MUTANTS.values() if arch in m.arches] for arch in library.ARCHES}
    assert len(MUTANTS) >= 200
    assert len(of["sm_100a"]) >= 130
    assert len(of["sm_90a"]) >= 70
    assert {mutant.kind for mutant in MUTANTS.values()} == set(library.CLASSES)


def test_those_held_out_are_the_lowest_by_hash() -> None:
    held = library.held_out(MUTANTS.values())
    assert len(held) == library.HELD_OUT
    largest = max(sha256(name.encode()).hexdigest() for name in held)
    assert all(sha256(name.encode()).hexdigest() > largest for name in MUTANTS.keys() - held)


@pytest.mark.parametrize("text", ["f(a, b + c);", "f(a,\n      b  + c);\n", "  f(a, b+c);  // why\n"])
def test_an_edit_survives_another_layout(text: str) -> None:
    assert Edit("x", "f(a, b + c)", "g()").applied(text) == text.replace(text.strip().split(";")[0], "g()")


@pytest.mark.parametrize("text", ["f(a, b - c);", "f(a, b + c); f(a, b + c);", "ff(a, b + c)x"])
def test_an_edit_that_does_not_apply_says_so(text: str) -> None:
    edit = Edit("sm100/x.cuh", "f(a, b + c);", "g();")
    with pytest.raises(DoesNotApplyError, match=r"found [02] times in sm100/x\.cuh, not once"):
        edit.applied(text)


def test_an_edit_within_a_function() -> None:
    text = "void a() {\n    wait();\n}\nvoid b() {\n    wait();\n}\n"
    assert Edit("x", "wait();", "", "void b()").applied(text) == "void a() {\n    wait();\n}\nvoid b() {\n    \n}\n"
    with pytest.raises(DoesNotApplyError, match="found 2 times in x, not once: 'void'"):
        Edit("x", "wait();", "", "void").applied(text)


def test_a_mutant_whose_place_has_gone_is_named(tmp_path: Path) -> None:
    mine = [mutant for mutant in MUTANTS.values() if not mutant.of_kernel_side]
    copy_kernel(ROOT, tmp_path, {"common/softmax.cuh": "// rewritten\n"})
    reasons = library.refused(mine, tmp_path)
    touching = {m.name for m in MUTANTS.values() if any(e.file == "common/softmax.cuh" for e in m.edits)}
    assert {reason.partition(":")[0] for reason in reasons} == touching


def test_what_is_not_a_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- {name: a, did: b, class: nonsense, edits: []}\n")
    with pytest.raises(LibraryError, match=r"a\.yaml, entry 1: no class 'nonsense'"):
        library.load(tmp_path)


def test_a_library_in_one_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    with pytest.raises(LibraryError, match=r"mine\.yaml: .*No such file"):
        library.load(mine)
    mine.write_text("- {name: a, did: b, edits: []}\n")
    with pytest.raises(LibraryError, match=r"mine\.yaml, entry 1: no 'class'"):
        library.load(mine)
    mine.write_text("name: a\n")
    with pytest.raises(LibraryError, match=r"mine\.yaml: not a list of mutants"):
        library.load(mine)


# The order


def test_who_noticed_before_comes_first_then_who_executes_the_change_then_the_cheapest() -> None:
    names = ("hd64_t1_sk128", "hd64_t4_sk128", "hd64_t32_sk128", "hd128_t4_sk128", "hd128_t1_sk128")
    kernels = by_variant([parse_id(name) for name in names], "sm_100a")
    executed = {name: {"sm100/x.cuh": frozenset({7} if name in names[2:4] else ())} for name in names}
    facts = KernelFacts(dict(zip(names, (1, 2, 9, 5, 3), strict=True)), executed)
    changed = {"sm100/x.cuh": frozenset({6, 7})}

    def order(killer: str, near: Counter[str]) -> list[str]:
        found = ordered(kernels, changed, facts, killer, near, lambda variant: variant.head_dim or 0)
        return [item.id for mine in found.values() for item in mine]

    assert order("", Counter()) == [names[place] for place in (2, 0, 1, 3, 4)]
    assert order("", Counter({names[3]: 1})) == [names[place] for place in (3, 4, 2, 0, 1)]
    assert order(names[4], Counter()) == [names[place] for place in (4, 3, 2, 0, 1)]
    assert KernelFacts.read(json.loads(json.dumps(facts.as_json()))) == facts
    del executed[names[1]]  # nobody has looked at it: it may execute both lines
    assert order("", Counter()) == [names[place] for place in (1, 2, 0, 3, 4)]


def test_hints_are_what_noticed_a_mutant_and_what_is_near_it() -> None:
    edit = Edit("common/row_output.cuh", "ptx::log2(sum) * kLn2", "ptx::log2(sum)")
    mutants = [Mutant("a", "", "statistics", (edit,)), Mutant("b", "", "sink", (replace(edit, old="sum + sink"),))]
    kill = {"kind": "gate", "by": ["cosine"], "configuration": "c"}
    cases: list[dict[str, Any]] = [
        {"name": "a", "arch": "sm_90a", "default": kill},
        {"name": "b", "arch": "sm_90a", "default": {**kill, "configuration": "d"}},
        {"name": "gone", "arch": "sm_90a", "default": kill},
        {"name": "a", "arch": "sm_100a", "default": None},
        {"name": "b", "arch": "sm_100a", "default": {"kind": "timeout", "by": [SLOW], "configuration": "e"}},
    ]
    hints = Hints.of(cases, mutants, ROOT)
    assert hints.killer == {("a", "sm_90a"): "c", ("b", "sm_90a"): "d", ("gone", "sm_90a"): "c"}
    (line,) = changed_lines(mutants[0], ROOT)["common/row_output.cuh"]
    assert hints.near("sm_90a", {"common/row_output.cuh": frozenset({line + 1})}) == Counter({"c": 1})
    assert hints.near("sm_100a", {"common/row_output.cuh": frozenset({line})}) == Counter()


def test_which_functions_an_edit_changes() -> None:
    text = (
        "template <int N>\nint f(int a,\n      int b) {\n    return a + b;\n}\n"
        "constexpr int g() {\n    return 1;\n}\nint k = 2;\n"
    )
    assert Edit("x", "a + b", "a").function(text) == frozenset({2, 3, 4, 5})
    assert Edit("x", "int b", "int c").function(text) is None  # its head may be anybody's
    assert Edit("x", "return 1", "return 2").function(text) is None  # the compiler may have evaluated it
    assert Edit("x", "k = 2", "k = 3").function(text) is None


# The record


def test_the_page_has_the_record_s_tables() -> None:
    text = (ROOT / "docs/reference/mutants.md").read_text(encoding="utf-8")
    assert text.endswith(mutants_page.tables(recorded())), "run `make mutants`"


def test_the_score_counts_what_is_not_argued() -> None:
    kill = {"kind": "gate", "by": ["cosine"], "configuration": "c"}
    cases: list[dict[str, Any]] = [
        {"equivalent": "", "default": kill, "others": {}},
        {"equivalent": "", "default": None, "others": {"long": kill}},
        {"equivalent": "", "default": None, "others": {"long": None}},
        {"equivalent": "why", "default": None, "others": {}},
    ]
    assert mutants_page.score(cases) == {"cases": 3, "killed": 1, "others_only": 1, "argued": 1, "share": 0.3333}


def test_a_record_says_what_need_not_be_run_again(matrix: Matrix, tmp_path: Path) -> None:
    """What a folder of outcomes says, in a checkout that has the record alone."""
    names = ("lse-base-2", "prefetch-dropped", "sparse-beyond", "sinks-written")
    cases = cases_of([MUTANTS[name] for name in names], ["sm_100a"])
    small = plan(matrix, tmp_path, "hd64_t4_sk128")
    silent = {"default": small.silence(small.default["sm_100a"])}
    same = {"default": small.silence(small.default["sm_100a"], ran=False)}
    noticed = Kill("gate", ("lse_error",), "hd64_t4_sk128", "seed 3")
    said = [
        CaseOutcome("killed", {"default": noticed}),
        CaseOutcome("survived", {"default": None}, silent),
        CaseOutcome("same-code", {}, same),
        CaseOutcome(
            "killed", {"default": replace(noticed, configuration="hd64_t4_sk256")}
        ),  # which is not run any more
    ]
    outcomes = list(zip(cases, said, strict=True))
    data = json.loads(json.dumps(mutants_page.record(outcomes, small, "sources", list(MUTANTS.values()))))
    recorded = replace(small, recorded=mutants_page.outcomes_of(data, small))
    assert list(kept_of(cases, recorded, tmp_path)) == outcomes[:3]
    assert not list(kept_of(cases, small, tmp_path))


# Running


def test_what_python_has_compiled_is_no_other_kernel_side(matrix: Matrix, tmp_path: Path) -> None:
    """Else no outcome of a mistake there is ever found again."""
    side = tmp_path / "harness" / "kernel_side"
    (side / "__pycache__").mkdir(parents=True)
    (side / "choice.py").write_text("ROWS = 64\n")
    of = replace(plan(matrix, tmp_path), repository=tmp_path)
    case = next(case for case in cases_of(list(MUTANTS.values()), library.ARCHES) if case.mutant.of_kernel_side)
    key = of.key(case)
    (side / "__pycache__" / "choice.cpython-312.pyc").write_bytes(b"of today")
    assert of.key(case) == key
    (side / "choice.py").write_text("ROWS = 128\n")
    assert of.key(case) != key


@pytest.mark.nvcc
@pytest.mark.slow
def test_mutants_are_killed_each_in_its_way_and_not_run_twice(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    names = (
        "lse-base-2",
        "proxy-fence",
        "parity-key-full",
        "launch-control-bytes",
        "prefetch-dropped",
        "sparse-beyond",
    )
    cases = cases_of([MUTANTS[name] for name in names], ["sm_100a"])
    told: list[str] = []
    small = plan(matrix, kept, "hd64_t32_sk384", "hd64_t128_sk384")
    outcomes = list(run(cases, small, tmp_path, lambda case, outcome: told.append(case.mutant.name)))
    assert sorted(told) == sorted(names)
    kills = {case.mutant.name: outcome.suites["default"] for case, outcome in outcomes}
    said = {name: (kill.kind, kill.by) if kill else None for name, kill in kills.items()}
    assert said["lse-base-2"] == ("gate", ("lse_error", "lse_bias"))
    assert said["proxy-fence"] == ("hazard", ("mbarrier-missing-fence",))
    assert said["parity-key-full"] is not None
    assert said["parity-key-full"][0] == "timeout"
    assert "deadlock" in said["parity-key-full"][1]
    assert (said["launch-control-bytes"] or ("",))[0] == "build"
    assert said["prefetch-dropped"] is None
    assert {case.mutant.name: outcome.status for case, outcome in outcomes}["sparse-beyond"] == "survived"
    told.clear()
    again = list(run(cases, small, tmp_path, lambda case, outcome: told.append(case.mutant.name)))
    assert told == []
    assert [outcome for _, outcome in again] == [outcome for _, outcome in outcomes]
    # Another suite: a kill by a configuration that is still there holds, silence does not.
    list(
        run(cases, plan(matrix, kept, "hd64_t32_sk384"), tmp_path, lambda case, outcome: told.append(case.mutant.name))
    )
    assert sorted(told) == ["prefetch-dropped", "sparse-beyond"]


@pytest.mark.nvcc
@pytest.mark.slow
def test_only_kernels_that_read_what_is_changed_are_compiled(matrix: Matrix, tmp_path: Path) -> None:
    """Halves of P are joined at head_dim 512 alone, and where P goes through tensor memory."""
    case = MutantCase(MUTANTS["join-barrier"], "sm_100a")
    small = plan(matrix, tmp_path / "builds", "hd64_t4_sk128", "hd512_t4_sk300_p-tmem")
    told: list[CaseOutcome] = []
    run_cases([case], small, lambda case, outcome: told.append(outcome))
    assert told[0].status == "killed"
    there = Counter(path.stem for path in (tmp_path / "builds").glob("*/*.ptx"))
    assert there == {"sm100_hd64_ptmem": 1, "sm100_hd512_ptmem": 2}
    before = sorted((tmp_path / "builds").iterdir())
    run_cases([case], small, lambda case, outcome: told.append(outcome))
    assert (told[1].suites, sorted((tmp_path / "builds").iterdir())) == (told[0].suites, before)


@pytest.mark.nvcc
@pytest.mark.slow
def test_what_the_default_run_draws_notices_as_well(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    cases = cases_of([MUTANTS["waits-once"]], ["sm_100a"])
    ((_, silent),) = run(cases, plan(matrix, kept, "hd64_t32_sk384"), tmp_path, lambda case, outcome: None)
    assert silent.status == "survived"  # a wait suspends until there is something to be had
    drawn = plan(matrix, kept, "hd64_t32_sk384", drawn=5)
    ((_, outcome),) = run(cases, drawn, tmp_path, lambda case, outcome: None)
    kill = outcome.suites["default"]
    assert kill is not None
    assert kill.under.partition(":")[0] in ("random", "pct", "spurious")
    assert list(kept_of(cases, drawn, tmp_path)) == [(cases[0], outcome)]


@pytest.mark.nvcc
@pytest.mark.slow
def test_all_that_notice_are_told_where_they_are_asked_for(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    names = ("hd64_t1_sk128", "hd64_t4_sk128", "hd64_t32_sk384")
    cases = cases_of([MUTANTS["lse-base-2"]], ["sm_100a"])
    ((_, one),) = run(cases, plan(matrix, kept, *names), tmp_path, lambda case, outcome: None)
    assert one.killers == {}
    ((_, outcome),) = run(cases, plan(matrix, kept, *names, whole=True), tmp_path, lambda case, outcome: None)
    assert sorted(outcome.killers["default"]) == sorted(names)


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_case_that_needs_more_time_stays_open(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    cases = cases_of([MUTANTS["prefetch-dropped"]], ["sm_100a"])
    told: list[str] = []
    small = plan(matrix, kept, "hd64_t4_sk128", within=0.0)
    assert list(run(cases, small, tmp_path, lambda case, outcome: told.append(outcome.status))) == []
    assert told == ["open"]


@pytest.mark.nvcc
@pytest.mark.slow
def test_what_kernels_execute_is_learned_once(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    (suite, *_) = plan(matrix, kept, "hd64_t4_sk128", "hd64_t4_sk128_causal").suites("sm_100a")
    assert known(ROOT, matrix, "sm_100a", tmp_path) is None
    facts = learn(ROOT, matrix, "sm_100a", suite, kept, tmp_path, 1)
    assert known(ROOT, matrix, "sm_100a", tmp_path) == facts
    plain, causal = (facts.lines[c.id]["common/softmax.cuh"] for c in suite.configurations)
    assert plain < causal  # which masks
    assert all(cost > 0 for cost in facts.costs.values())


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "configuration", "kind"),
    [
        ("sinks-written", "hd64_t4_sk128_sink-finite", "written"),
        ("glue-causal-forgotten", "hd64_t4_sk128_causal", "gate"),
        ("glue-window-of-nothing-left", "hd64_t32_sk384", ""),
        pytest.param(
            "glue-strides-of-keys-for-values",
            "hd64_t1_sk300_b3_h40_kvh5_lens-ragged_sink-mixed_out-bf16_splits3_layout-bhsd",
            "gate",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_inputs_that_are_written_and_the_launcher(
    matrix: Matrix, kept: Path, tmp_path: Path, name: str, configuration: str, kind: str
) -> None:
    cases = cases_of([MUTANTS[name]], ["sm_100a"])
    ((_, outcome),) = run(cases, plan(matrix, kept, configuration), tmp_path, lambda case, outcome: None)
    kill = outcome.suites["default"]
    assert (kill.kind if kill else "") == kind


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_list_of_somebody_else_s_from_the_command_line(tmp_path: Path, kept: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "- name: theirs\n  did: the maximum counts twice in LSE\n  class: statistics\n  edits:\n"
        "    - {file: common/row_output.cuh, old: 'max + ptx::log2(sum)', new: '2 * max + ptx::log2(sum)'}\n"
    )
    before = RECORD.read_bytes()
    options = ["--file", str(mine), "--arch", "sm_100a", "--folder", str(tmp_path / "outcomes"), "--jobs", "1"]
    assert main([*options, "--default-only", "--record", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    assert [(case["name"], case["default"]["kind"]) for case in record["cases"]] == [("theirs", "gate")]
    assert RECORD.read_bytes() == before


@pytest.mark.nvcc
@pytest.mark.slow
def test_builds_are_kept_by_content_and_say_what_they_read(kept: Path) -> None:
    variant = next(item for item in VARIANTS if item.name == "sm100_hd64_ptmem")
    made = built(kept, ROOT, variant)
    assert {"sm100/fmha_fwd.cu", "common/work.cuh", "include/fmha_params.h", "common/ptx/grid.cuh"} <= made.reads
    assert not [name for name in made.reads if name.startswith("sm90")]
    written = made.ptx.stat().st_mtime_ns
    assert built(kept, ROOT, variant).ptx.stat().st_mtime_ns == written


@pytest.mark.nvcc
@pytest.mark.slow
def test_parts_that_share_a_folder_are_the_whole(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    cases = cases_of([MUTANTS[name] for name in ("lse-base-2", "proxy-fence", "prefetch-dropped")], ["sm_100a"])
    small = plan(matrix, kept, "hd64_t32_sk384")
    told: list[str] = []

    for part in ("1/2", "2/2"):
        list(run(part_of(cases, part), small, tmp_path, lambda case, outcome: told.append(case.title), part))
    assert sorted(told) == sorted(case.title for case in cases)
    assert len(list(tmp_path.glob("outcomes.?-of-2.jsonl"))) == 2
    told.clear()
    assert [case for case, _ in run(cases, small, tmp_path, lambda case, outcome: told.append(case.title))] == cases
    assert told == []


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "/", "a/b", "-1/2"])
def test_what_is_no_part_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match="is no part"):
        part_of([], part)


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_configuration_that_takes_too_long_is_ended(matrix: Matrix, kept: Path) -> None:
    """A loop that ends, later than anybody waits: the kernel itself passes within the same time."""
    warp = "const int warp = threadIdx.x / 32;"
    loop = 'for (int i = 0; i < 1 << 30; ++i) asm volatile("" : "+r"(i));'
    late = Mutant("late", "a loop over nothing", "waits", (Edit("sm100/fmha_fwd.cu", warp, f"{warp}\n{loop}"),))
    told: list[CaseOutcome] = []
    small = plan(matrix, kept, "hd64_t4_sk128", seconds=2.0)
    run_cases([MutantCase(late, "sm_100a")], small, lambda case, outcome: told.append(outcome))
    assert told[0].suites["default"] == Kill("timeout", ("it takes too long",), "hd64_t4_sk128")


@pytest.mark.nvcc
@pytest.mark.slow
def test_time_that_the_kernel_itself_does_not_keep_says_nothing(matrix: Matrix, kept: Path) -> None:
    case = MutantCase(MUTANTS["prefetch-dropped"], "sm_100a")
    with pytest.raises(CampaignError, match=r"timeout.*it takes too long.*hd64_t4_sk128"):
        run_cases([case], plan(matrix, kept, "hd64_t4_sk128", seconds=1e-4), lambda *_: None)


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_process_that_somebody_ends_is_no_kill(matrix: Matrix, kept: Path) -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # a parent's own answer to it is not the child's
    try:
        case = MutantCase(MUTANTS["prefetch-dropped"], "sm_100a")
        large = plan(matrix, kept, "hd512_t128_sk16384")
        running = _Running(case, large, large.suites(case.arch))
    finally:
        signal.signal(signal.SIGTERM, before)
    running.pipe.poll(None)  # it has begun
    (child,) = multiprocessing.active_children()
    child.terminate()
    child.join()
    with pytest.raises(RuntimeError, match="prefetch-dropped on sm_100a: ended from outside, by SIGTERM"):
        [running.hear() for _ in range(4)]  # what it had said before, and that it has ended
    running.end()


@pytest.mark.nvcc
@pytest.mark.slow
def test_nothing_is_said_where_the_kernel_itself_is_red(matrix: Matrix, kept: Path, tmp_path: Path) -> None:
    beyond = replace(matrix.guard.thresholds, limits={**matrix.guard.thresholds.limits, "cosine": 1.1})
    strict = replace(matrix, guard=replace(matrix.guard, thresholds=beyond))
    cases = [MutantCase(MUTANTS["lse-base-2"], "sm_100a")]
    with pytest.raises(CampaignError, match="cosine"):
        list(run(cases, plan(strict, kept, "hd64_t4_sk128"), tmp_path, lambda case, outcome: None))


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_mutant_that_compiles_to_the_kernel_s_own_code_is_none(
    matrix: Matrix, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment = Edit("sm100/load.cuh", "const int lane = threadIdx.x % 32;", "const int lane = threadIdx.x & 31;\n\n")
    cases = [MutantCase(Mutant("the same", "nothing", "launch", (comment,)), "sm_100a")]
    small = plan(matrix, kept, "hd64_t4_sk128")
    ((_, outcome),) = run(cases, small, tmp_path, lambda case, outcome: None)
    assert outcome.status == "same-code"
    monkeypatch.setattr("tools.mutants.campaign.sources", lambda root: {CORE: "another emulator"})
    assert small.settles(cases[0], outcome)
    assert not small.settles(cases[0], replace(outcome, status="survived"))
    assert not plan(matrix, kept, "hd64_t4_sk128", "hd64_t32_sk384").settles(cases[0], outcome)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", PASSED_BEFORE)
def test_the_default_run_sees(matrix: Matrix, kept: Path, tmp_path: Path, name: str) -> None:
    """Suite `seed` does not, nor did the others by design; one kernel's part of `cover` is enough."""
    assert "cover" in matrix.named(matrix.default_suite)
    lay_out(ROOT, tmp_path, MUTANTS[name].sources(ROOT))
    mine = tuple(c for c in matrix.suites["cover"] if (c.head_dim, c.p_path) == (64, "tmem"))
    kill = MutantExamination(tmp_path, "sm_100a", matrix, kept).first(Suite("cover", mine))
    assert kill is not None
    assert PASSED_BEFORE[name] in kill.by


# Each is wrong in few places, where once nothing looked: what notices it, and where.
IN_FEW_PLACES = {
    "a fence of P gone at 256": (
        "proxy-fence-p",
        "hd256_t1_sk64_top65_indices-invalid_p-smem",
        "hazard",
        "missing-proxy-fence",
    ),
    "a fence of P gone at 512": ("proxy-fence-p", "hd512_t33_sk704_data-steps_p-smem", "hazard", "missing-proxy-fence"),
    "causal dropped": ("causal-dropped", "hd512_t32_sk384_causal", "gate", "cosine"),
    "a wait for what never comes at T = 128": (
        "endless",
        "hd512_t128_sk64_h3_causal_sink-finite_out-fp32_p-smem",
        "timeout",
        "deadlock",
    ),
    "LSE + 3e-5 at 256": ("lse-larger", "hd256_t32_sk384", "gate", "lse_bias"),
    "one lane fences P": ("proxy-fence-one-lane", "hd512_t33_sk704_kvshared_data-steps_p-smem", "hazard", "lane-alone"),
    "nobody waits for an arrival": ("commit-nobody-waits-for", "hd64_t1_sk128", "hazard", "exit-with-work-in-flight"),
    "O without the splits that count for little one by one": (
        "combine-small-parts",
        "hd64_t1_sk2688_h3_data-sinkkey_scale-0.25_out-fp32_stats-lse_splits21_p-tmem",
        "gate",
        "relative_l2",
    ),
    "a scale that nobody reads": (
        "scale-ignored",
        "hd64_t33_sk385_causal_data-recency_scale-0.02_out-bf16_stats-none_p-tmem",
        "gate",
        "cosine",
    ),
    "the maximum alone is not stored": (
        "row-max-with-sum",
        "hd128_t33_sk385_causal_data-channels_scale-0.02_out-fp32_stats-max_p-tmem",
        "gate",
        "unwritten",
    ),
    "LSE alone is not stored": (
        "lse-with-the-maximum",
        "hd64_t1_sk2688_h3_data-sinkkey_scale-0.25_out-fp32_stats-lse_splits21_p-tmem",
        "gate",
        "unwritten",
    ),
    "on sm_90a first keys behind the first tile set no room": (
        "sm90-own-anchors-late-room",
        "hd64_t64_sk1000_window300",
        "gate",
        "cosine",
    ),
    "the reciprocal of a part of 2^127": (
        "sm90-part-most-scale",
        "hd128_t1_sk200_data-loud_out-bf16_splits2",
        "gate",
        "relative_l2",
    ),
    "on sm_90a lengths are read before the grid before is done": (
        "sm90-lengths-before-the-primary",
        "hd64_t5_sk65_window1_offsets-zero_lens-ragged_top1_of3_indices-holes_toplens-ragged_data-steps_out-fp32_splits2_rows64",
        "hazard",
        "launch-race",
    ),
    "on sm_90a the lists of batch entry 0 for all": (
        "sm90-list-batch-rows",
        "hd64_t1_sk293_b3_h4_window1_top200_of67_toplens-ragged_data-carried_splits40",
        "gate",
        "cosine",
    ),
    "on sm_90a no anchor from very negative logits": (
        "sm90-own-anchors-first-tile",
        "hd64_t33_sk1408_data-steps",
        "gate",
        "nonfinite_mismatches",
    ),
    "on sm_90a the count of drawn row tiles is not put back": (
        "walk-count-wraps-late",
        "hd64_t65_sk256_b138_kvshared_causal_lens-ragged_data-steps_out-fp32",
        "crash",
        "CountLeftError: the count of drawn row tiles was 0 before the launch and is 276 after it",
    ),
    "on sm_90a the last warp of those that merge forty splits is left out": (
        "many-meet-one-less",
        "hd64_t2_sk5120_h2_data-steps_out-bf16_splits40_merge-combine",
        "gate",
        "cosine",
    ),
}
LAST_WAIT = "ptx::mbarrier_wait(shared.output_full(), (work.tiles - 1) & 1);"
PLANTED = {
    "endless": Edit(
        "sm100/softmax_role.cuh",
        LAST_WAIT,
        f"{LAST_WAIT} if (params.t == 128) ptx::mbarrier_wait(shared.output_full(), work.tiles & 1);",
    ),
    "lse-larger": Edit("common/row_output.cuh", "ptx::log2(sum) * kLn2", "ptx::log2(sum) * kLn2 + 3e-5f"),
}


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("planted", IN_FEW_PLACES)
def test_a_mistake_in_few_places_is_red_for_its_reason(
    matrix: Matrix, kept: Path, tmp_path: Path, planted: str
) -> None:
    name, configuration, kind, by = IN_FEW_PLACES[planted]
    mutant = MUTANTS.get(name) or Mutant(name, planted, "ordering", (PLANTED[name],))
    lay_out(ROOT, tmp_path, mutant.sources(ROOT))
    (arch, *_) = mutant.arches
    known = parse_id(configuration)
    assert known in default_runs(matrix)[arch].configurations
    suite = Suite("planted", (known,))
    kill = MutantExamination(tmp_path, arch, matrix, kept).first(suite)
    assert kill is not None
    assert (kill.kind, by in kill.by) == (kind, True), kill


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("case", sample(), ids=lambda case: f"{case['name']}-{case['arch']}")
def test_what_the_record_says_is_seen_again(
    matrix: Matrix, kept: Path, tmp_path: Path, case: Mapping[str, Any]
) -> None:
    """Under the schedule or the seed that the record names, where it names one."""
    lay_out(ROOT, tmp_path, MUTANTS[case["name"]].sources(ROOT))
    recorded = Kill.read(case["default"])
    suite = Suite("recorded", (parse_id(recorded.configuration),), DRAWN if recorded.under else None)
    found = list(MutantExamination(tmp_path, case["arch"], matrix, kept).kills(suite))
    assert (recorded.kind, recorded.under) in {(kill.kind, kill.under) for kill in found}


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "status", "check"),
    [("lse-base-2", "fail", "lse_error"), ("proxy-fence", "hazard", "mbarrier-missing-fence")],
)
def test_a_mutant_committed_to_a_clone(tmp_path: Path, name: str, status: str, check: str) -> None:
    """From the command line, with the worker in a process of its own."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    copy_kernel(ROOT, origin, {})
    (origin / "matrix.yaml").write_text((ROOT / "matrix.yaml").read_text())
    (origin / ".gitignore").write_text(".fmha/\nresults/\n")
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "start")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    for file, text in MUTANTS[name].sources(ROOT).items():
        (clone / file).write_text(text)
    git(clone, "commit", "-q", "-a", "-m", name)
    ran = fmha("run-matrix", "--suite", "proven", "--json", "--quiet", cwd=clone)
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    record = json.loads(ran.stdout)
    assert record["commit"]["dirty"] is False
    assert record["verdict"]["word"] == "FAIL"
    assert {item["status"] for item in record["configurations"]} == {status}
    for item in record["configurations"]:
        assert check in {c["name"] for c in item["failed_checks"]} | {f["rule"] for f in item["findings"]}
