"""What is selected: suites, cases by name, one configuration of every kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.config import Matrix, load, parse_filter
from fmha.harness.errors import UserError
from fmha.harness.stages.plan import Plan, RunSelection, make_plan
from tests.harness.support import ScriptedHost


@pytest.fixture(scope="module")
def matrix(repository: Path) -> Matrix:
    return load(repository)


def plan(matrix: Matrix, suite: str = "seed", filters: str = "", **changes: object) -> Plan:
    accepted = parse_filter([filters] if filters else [])
    return make_plan(matrix, RunSelection(suite, accepted, seed=0, **changes), ScriptedHost())


def ids(plan: Plan) -> list[str]:
    return [step.configuration.id for step in plan.steps if step.selected]


def test_cases_by_name_take_the_place_of_a_suite(matrix: Matrix) -> None:
    names = ("hd128_t3_sk77_h5_causal", "hd64_t1_sk9")
    chosen = plan(matrix, cases=names)
    assert ids(chosen) == ["hd64_t1_sk9", "hd128_t3_sk77_h5_causal"]
    assert chosen.suite == ""
    assert [step.guard for step in chosen.steps] == [True, False]


def test_a_name_that_is_none_is_refused_with_its_reason(matrix: Matrix) -> None:
    with pytest.raises(UserError, match="--case hd64_t1: it has no s_k: names begin like"):
        plan(matrix, cases=("hd64_t1",))


def test_a_number_of_cases_is_for_random_suites(matrix: Matrix) -> None:
    assert len(ids(plan(matrix, "random", random_cases=7))) == 7
    with pytest.raises(UserError, match="--cases: suite seed is not random; use one of random"):
        plan(matrix, random_cases=7)


def test_one_a_variant_is_the_one_with_most_keys(matrix: Matrix) -> None:
    chosen = plan(matrix, one_a_variant=True)
    assert ids(chosen) == [f"hd{head_dim}_t128_sk512" for head_dim in (64, 128, 256, 512)]


def test_a_masked_configuration_of_the_guard_s_head_dim_is_no_guard(matrix: Matrix) -> None:
    chosen = plan(matrix, filters="hd=64,mask=causal")
    assert [(step.configuration.id, step.guard, step.selected) for step in chosen.steps] == [
        ("hd64_t32_sk256", True, False),
        ("hd64_t32_sk384_causal", False, True),
    ]


def test_several_suites_are_one_selection_and_what_they_share_runs_once(matrix: Matrix) -> None:
    chosen = plan(matrix, "proven,seed,cover")
    assert chosen.suite == "proven,seed,cover"
    suites = {item.id for name in ("proven", "seed", "cover") for item in matrix.suites[name]}
    assert len(ids(chosen)) == len(set(ids(chosen)))
    assert set(ids(chosen)) == suites
    guards = [step.guard for step in chosen.steps]
    assert guards == sorted(guards, reverse=True)
    assert guards[0]


def test_all_is_every_suite(matrix: Matrix) -> None:
    every = {item.id for suite in matrix.suites.values() for item in suite}
    assert set(ids(plan(matrix, "all"))) >= every
    with pytest.raises(UserError, match="no suite is named 'sead'"):
        plan(matrix, "seed,sead")
