"""The library of mistakes in the CUDA source, and the tool that runs it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.config import Matrix, load
from fmha.harness.contract.protocol import BuildResult, Variant
from fmha.harness.errors import ExitCode
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.identity import CORE
from fmha.harness.kernel_side.recipe import flags
from fmha.harness.worker.compilers.nvcc import find_nvcc
from fmha.harness.worker.compilers.sources import hash_sources
from tests.forked import fmha
from tests.harness.support import git
from tools.mutants import library, page
from tools.mutants.__main__ import default_runs
from tools.mutants.campaign import CampaignError, Case, Outcome, Plan, _Running, cases_of, part_of, run, run_cases
from tools.mutants.examine import Examination, Suite, compile_ptx, copy_kernel
from tools.mutants.library import DoesNotApplyError, Edit, LibraryError, Mutant

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


@pytest.fixture(scope="module", autouse=True)
def compiled_once(build_cache: Path) -> Iterator[None]:
    """nvcc compiles the same sources for the same variant once for all tests of this file, in whichever worker: the
    kernel as it is ten times otherwise. What it refuses is not kept."""
    folder = build_cache.with_name("mutants")

    def once(root: Path, variant: Variant, target: Path) -> BuildResult:
        facts = (hash_sources(root), variant.name, find_nvcc().version, *flags(variant))
        kept = folder / f"{sha256(repr(facts).encode()).hexdigest()}.ptx"
        if kept.exists():
            shutil.copyfile(kept, target)
            return BuildResult(variant, str(target), "", None, "", "", (), 0.0, cached=True)
        built = compile_ptx(root, variant, target)
        folder.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        shutil.copyfile(target, partial)
        partial.rename(kept)
        return built

    with pytest.MonkeyPatch.context() as patch:
        for user in ("examine", "campaign"):
            patch.setattr(f"tools.mutants.{user}.compile_ptx", once)
        yield


def plan(matrix: Matrix, *names: str, seconds: float = 60.0, others: tuple[Suite, ...] = ()) -> Plan:
    default = Suite("default", tuple(parse_id(name) for name in names))
    return Plan(ROOT, matrix, dict.fromkeys(library.ARCHES, default), others, every=False, seconds=seconds, jobs=2)


# The library


def test_every_mutant_applies() -> None:
    assert library.refused(list(MUTANTS.values()), ROOT / "kernel") == []


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
    copy_kernel(ROOT, tmp_path, {"common/softmax.cuh": "// rewritten\n"})
    reasons = library.refused(list(MUTANTS.values()), tmp_path / "kernel")
    touching = {m.name for m in MUTANTS.values() if any(e.file == "common/softmax.cuh" for e in m.edits)}
    assert {reason.partition(":")[0] for reason in reasons} == touching


def test_what_is_not_a_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- {name: a, did: b, class: nonsense, edits: []}\n")
    with pytest.raises(LibraryError, match=r"a\.yaml, entry 1: no class 'nonsense'"):
        library.load(tmp_path)


# The record


def test_the_page_has_the_record_s_tables() -> None:
    text = (ROOT / "docs/reference/mutants.md").read_text(encoding="utf-8")
    assert text.endswith(page.tables(recorded())), "run `make mutants`"


def test_the_score_counts_what_is_not_argued() -> None:
    kill = {"kind": "gate", "by": ["cosine"], "configuration": "c"}
    cases = [
        {"equivalent": "", "default": kill, "others": {}},
        {"equivalent": "", "default": None, "others": {"long": kill}},
        {"equivalent": "", "default": None, "others": {"long": None}},
        {"equivalent": "why", "default": None, "others": {}},
    ]
    assert page.score(cases) == {"cases": 3, "killed": 1, "others_only": 1, "argued": 1, "share": 0.3333}


# Running


@pytest.mark.nvcc
@pytest.mark.slow
def test_mutants_are_killed_each_in_its_way_and_not_run_twice(matrix: Matrix, tmp_path: Path) -> None:
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
    small = plan(matrix, "hd64_t32_sk384", "hd64_t4_sk128")
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
    list(run(cases, plan(matrix, "hd64_t32_sk384"), tmp_path, lambda case, outcome: told.append(case.mutant.name)))
    assert sorted(told) == ["prefetch-dropped", "sparse-beyond"]


@pytest.mark.nvcc
@pytest.mark.slow
def test_parts_that_share_a_folder_are_the_whole(matrix: Matrix, tmp_path: Path) -> None:
    cases = cases_of([MUTANTS[name] for name in ("lse-base-2", "proxy-fence", "prefetch-dropped")], ["sm_100a"])
    small = plan(matrix, "hd64_t32_sk384")
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
def test_a_configuration_that_takes_too_long_is_ended(matrix: Matrix, tmp_path: Path) -> None:
    case = Case(MUTANTS["prefetch-dropped"], "sm_100a")
    small = plan(matrix, "hd64_t32_sk384", seconds=1e-4)
    bench: list[tuple[Case, Outcome]] = []
    run_cases([case], small, {}, lambda case, outcome: bench.append((case, outcome)))
    kill = bench[0][1].suites["default"]
    assert kill is not None
    assert (kill.kind, kill.configuration) == ("timeout", "hd64_t32_sk384")


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_process_that_somebody_ends_is_no_kill(matrix: Matrix) -> None:
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # a parent's own answer to it is not the child's
    try:
        case = Case(MUTANTS["prefetch-dropped"], "sm_100a")
        running = _Running(case, plan(matrix, "hd512_t128_sk16384"), {})
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
def test_nothing_is_said_where_the_kernel_itself_is_red(matrix: Matrix, tmp_path: Path) -> None:
    beyond = replace(matrix.guard.thresholds, limits={**matrix.guard.thresholds.limits, "cosine": 1.1})
    strict = replace(matrix, guard=replace(matrix.guard, thresholds=beyond))
    cases = [Case(MUTANTS["lse-base-2"], "sm_100a")]
    with pytest.raises(CampaignError, match="cosine"):
        list(run(cases, plan(strict, "hd64_t4_sk128"), tmp_path, lambda case, outcome: None))


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_mutant_that_compiles_to_the_kernel_s_own_code_is_none(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comment = Edit("sm100/load.cuh", "const int lane = threadIdx.x % 32;", "const int lane = threadIdx.x & 31;\n\n")
    cases = [Case(Mutant("the same", "nothing", "launch", (comment,)), "sm_100a")]
    small = plan(matrix, "hd64_t4_sk128")
    ((_, outcome),) = run(cases, small, tmp_path, lambda case, outcome: None)
    assert outcome.status == "same-code"
    monkeypatch.setattr("tools.mutants.campaign.sources", lambda root: {CORE: "another emulator"})
    assert small.settles(cases[0], outcome)
    assert not small.settles(cases[0], replace(outcome, status="survived"))
    assert not plan(matrix, "hd64_t4_sk128", "hd64_t32_sk384").settles(cases[0], outcome)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", PASSED_BEFORE)
def test_the_default_run_sees(matrix: Matrix, tmp_path: Path, name: str) -> None:
    """Suite `seed` does not, nor did the others by design; one kernel's part of `cover` is enough."""
    assert "cover" in matrix.named(matrix.default_suite)
    copy_kernel(ROOT, tmp_path, MUTANTS[name].sources(ROOT / "kernel"))
    mine = tuple(c for c in matrix.suites["cover"] if (c.head_dim, c.p_path) == (64, "tmem"))
    kill = Examination(tmp_path, "sm_100a", matrix, {}, 60.0).run(Suite("cover", mine))
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
    "a fence of P gone at 512": ("proxy-fence-p", "hd512_t32_sk384", "hazard", "missing-proxy-fence"),
    "causal dropped": ("causal-dropped", "hd512_t32_sk384_causal", "gate", "cosine"),
    "a wait for what never comes at T = 128": ("endless", "hd512_t128_sk128", "timeout", "deadlock"),
    "LSE + 3e-5 at 256": ("lse-larger", "hd256_t32_sk384", "gate", "lse_bias"),
    "one lane fences P": ("proxy-fence-one-lane", "hd512_t1_sk128", "hazard", "lane-alone"),
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
def test_a_mistake_in_few_places_is_red_for_its_reason(matrix: Matrix, tmp_path: Path, planted: str) -> None:
    name, configuration, kind, by = IN_FEW_PLACES[planted]
    mutant = MUTANTS.get(name) or Mutant(name, planted, "ordering", (PLANTED[name],))
    copy_kernel(ROOT, tmp_path, mutant.sources(ROOT / "kernel"))
    (arch, *_) = mutant.arches
    known = parse_id(configuration)
    assert known in default_runs(matrix)[arch].configurations
    suite = Suite("planted", (known,))
    kill = Examination(tmp_path, arch, matrix, {}, 60.0).run(suite)
    assert kill is not None
    assert (kill.kind, by in kill.by) == (kind, True), kill


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("case", sample(), ids=lambda case: f"{case['name']}-{case['arch']}")
def test_what_the_record_says_is_seen_again(matrix: Matrix, tmp_path: Path, case: Mapping[str, Any]) -> None:
    mutant = MUTANTS[case["name"]]
    copy_kernel(ROOT, tmp_path, mutant.sources(ROOT / "kernel"))
    suite = Suite("recorded", (parse_id(case["default"]["configuration"]),))
    kill = Examination(tmp_path, case["arch"], matrix, {}, 60.0).run(suite)
    assert kill is not None
    assert kill.kind == case["default"]["kind"]


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
    for file, text in MUTANTS[name].sources(ROOT / "kernel").items():
        (clone / "kernel" / file).write_text(text)
    git(clone, "commit", "-q", "-a", "-m", name)
    ran = fmha("run-matrix", "--suite", "proven", "--json", "--quiet", cwd=clone)
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    record = json.loads(ran.stdout)
    assert record["commit"]["dirty"] is False
    assert record["verdict"]["word"] == "FAIL"
    assert {item["status"] for item in record["configurations"]} == {status}
    for item in record["configurations"]:
        assert check in {c["name"] for c in item["failed_checks"]} | {f["rule"] for f in item["findings"]}
