"""What a later run lacks: because nobody asked, because it is gone from the suites, or because it could not be run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.errors import ExitCode
from fmha.harness.evidence.asked import asked
from fmha.harness.evidence.regress import BaselineVerdict
from fmha.harness.evidence.story import sentence, tell
from fmha.harness.judge.comparison.comparison import Comparison, Kind, compare
from fmha.harness.judge.status import Status
from tests.evidence.planted import changed, grown, guard_broken, later, plain_run


def of_suites(run: RunRecord) -> RunRecord:
    """head_dim 64 is suite `small`, all else `wide`."""
    items = [
        item.model_copy(update={"suites": ["small" if item.parameters.head_dim == 64 else "wide"]})
        for item in run.configurations
    ]
    selection = run.selection.model_copy(update={"suite": "small,wide", "suites": ["small", "wide"]})
    return run.model_copy(update={"configurations": items, "selection": selection})


BASE = of_suites(plain_run())
Part = Callable[[ConfigurationRecord], bool]


def part(run: RunRecord, keep: Part, **selection: Any) -> RunRecord:
    """A later run of a part, which was asked for so."""
    chosen = run.selection.model_copy(update=selection)
    items = [item for item in run.configurations if keep(item)]
    return later(run).model_copy(update={"configurations": items, "selection": chosen})


def small(item: ConfigurationRecord) -> bool:
    return item.parameters.head_dim == 64


def held(new: RunRecord, base: RunRecord = BASE) -> Comparison:
    return compare(base, new, asked(base, new))


def told(new: RunRecord, base: RunRecord = BASE) -> str:
    found = held(new, base)
    return sentence(tell(found, base, new), found.compared, found.unasked)


SMALL: Mapping[str, Any] = {"suite": "small", "suites": ["small"]}


def test_a_run_of_one_suite_is_held_to_that_alone() -> None:
    new = part(BASE, small, **SMALL)
    found = held(new)
    assert (found.regressions, found.compared, found.unasked) == ((), 36, 108)
    assert found.notes[0] == "only suite small was asked for: 108 configuration(s) of the earlier run are not compared"
    assert told(new) == "Nothing got worse in 36 configurations, all that was asked for; 108 more were not asked for"


def test_the_one_line_that_a_quiet_regress_says_has_what_was_not_asked_for() -> None:
    for keep, selection, said in (
        (small, SMALL, "36 configurations; 108 more were not asked for"),
        (lambda item: True, {}, "144 configurations"),
    ):
        new = part(BASE, keep, **selection)
        assert str(BaselineVerdict(BASE, new, None, held(new), frozenset(), ())).endswith(f", {said}")


def test_a_guard_that_was_added_is_not_counted_among_what_was_asked_for() -> None:
    items = part(BASE, small, **SMALL).configurations
    new = part(BASE, small, **SMALL).model_copy(
        update={"configurations": [items[0].model_copy(update={"selected": False}), *items[1:]]}
    )
    said = str(BaselineVerdict(BASE, new, None, held(new), frozenset(), ()))
    assert said.endswith(", 35 configurations and the guard; 108 more were not asked for")


def test_what_got_worse_in_a_part_comes_first() -> None:
    new = part(changed(BASE, small, grown("lse_error", 50, 60)), small, **SMALL)
    assert {item.kind for item in held(new).regressions} == {Kind.NUMBERS, Kind.HASH}
    assert told(new).startswith("LSE error at head_dim 64 grew ") or told(new).startswith("LSE error grew ")
    assert told(new).endswith("nothing else got worse; 108 more configurations were not asked for")


def test_what_a_suite_has_lost_is_gone_though_another_was_not_asked_for() -> None:
    new = part(BASE, lambda item: small(item) and item.parameters.t != 128, **SMALL)
    gone = [item for item in held(new).regressions if item.kind is Kind.NOT_RUN]
    assert len(gone) == 9
    assert all(item.what == "configuration" and "_t128_" in item.subject for item in gone)
    assert told(new).startswith("9 of 9 configurations at T = 128 are gone from the suites; ")


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("hd=64", small),
        ("hd=64|128,mask=causal", lambda item: item.parameters.head_dim < 256 and item.parameters.mask == "causal"),
        ("kernel=fmha,t=1", lambda item: item.parameters.t == 1),
        ("kvh=1", lambda item: True),
    ],
)
def test_a_filter_is_what_was_asked(text: str, keep: Part) -> None:
    new = part(BASE, keep, filter=text)
    assert asked(BASE, new) == {item.id for item in new.configurations}
    assert held(new).regressions == ()


def test_cases_by_name_and_one_a_variant_are_themselves() -> None:
    first = BASE.configurations[0].id
    for selection in ({"suite": "", "suites": []}, {"one_a_variant": True}):
        assert asked(BASE, part(BASE, lambda item: item.id == first, **selection)) == {first}


def test_of_a_baseline_that_does_not_know_its_suites_nothing_is_taken_for_gone() -> None:
    """As one from before version 7: but the same suites are the same suites."""
    items = [item.model_copy(update={"suites": []}) for item in BASE.configurations]
    old = BASE.model_copy(update={"configurations": items})
    assert held(part(BASE, small, **SMALL), old).regressions == ()
    assert {item.kind for item in held(part(BASE, small), old).regressions} == {Kind.NOT_RUN, Kind.JUDGE}
    everything = {"suite": "all", "suites": ["small", "wide", "other"]}
    assert {item.kind for item in held(part(BASE, small, **everything), old).regressions} >= {Kind.NOT_RUN}


def test_a_random_suite_is_what_one_seed_draws() -> None:
    base = BASE.model_copy(update={"selection": BASE.selection.model_copy(update={"random": {"wide": 108}})})
    for changes, gone in (
        ({"random": {"wide": 108}}, 108),
        ({"random": {"wide": 200}}, 108),
        ({"random": {"wide": 20}}, 0),
        ({"random": {"wide": 108}, "seed": 5}, 0),
    ):
        found = held(part(base, small, **changes), base).regressions
        assert sum(item.kind is Kind.NOT_RUN for item in found) == gone


def kept_from_running(withheld: str, guard: Status) -> RunRecord:
    """A run whose first configuration, the guard, has this status and whose others have not been run."""
    new = guard_broken(BASE, "its words", guard)
    items = [new.configurations[0]]
    items += [item.model_copy(update={"withheld": withheld}) for item in new.configurations[1:]]
    word, code = ("INFRASTRUCTURE", 3) if guard is Status.INFRA_ERROR else ("INCOMPLETE", 4)
    verdict = new.verdict.model_copy(update={"word": word, "exit_code": code})
    return new.model_copy(update={"configurations": items, "verdict": verdict})


def test_what_the_guard_kept_from_running_comes_behind_it() -> None:
    new = kept_from_running("guard", Status.CRASH)
    assert {(item.kind, item.what) for item in held(new).regressions} >= {(Kind.NOT_RUN, "guard")}
    first, second, *_ = told(new).split("; ")
    assert first == f"{new.configurations[0].id} crashes: its words"
    assert second == "143 of 144 configurations are not run, since the guard, which runs first, failed"
    assert told(new).endswith("nothing else was run")


@pytest.mark.parametrize(
    ("withheld", "guard", "code"),
    [("guard", Status.INFRA_ERROR, ExitCode.INFRASTRUCTURE), ("stopped", Status.PASS, ExitCode.INCOMPLETE)],
)
def test_a_machine_that_fails_and_a_run_that_is_stopped_are_no_regression(
    withheld: str, guard: Status, code: ExitCode
) -> None:
    new = kept_from_running(withheld, guard)
    found = held(new)
    assert found.regressions == ()
    assert any("143 configuration(s) were not come to" in note for note in found.notes)
    verdict = BaselineVerdict(BASE, new, None, found, frozenset(), ())
    assert verdict.exit_code is code
    assert str(verdict).startswith(new.verdict.word)
    if guard is Status.INFRA_ERROR:
        assert any("failed by no fault of the commit's" in note and "its words" in note for note in found.notes)


def test_what_no_kernel_runs_any_more_is_told_with_the_reason() -> None:
    new = changed(
        BASE, small, lambda item, _: {"status": Status.NOT_RUN, "metrics": None, "reasons": ["no kernel has 64"]}
    )
    assert told(new).startswith("36 of 36 configurations at head_dim 64 are not run any more: no kernel has 64; ")
