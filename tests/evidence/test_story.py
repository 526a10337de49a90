"""What is said of regressions: one sentence with what changed and where, by the smallest filter that covers it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord
from fmha.harness.config import parse_filter
from fmha.harness.evidence.asked import asked
from fmha.harness.evidence.run_limits import configuration_of
from fmha.harness.evidence.story import Group, lines, sentence, tell
from fmha.harness.judge.comparison.comparison import Kind, compare
from tests.evidence.planted import ILLEGAL, PLANTED, RAISED, changed, counted, grown, later, missed, plain_run

RUN = plain_run()
BY_NAME = {plant.name: plant for plant in PLANTED}
SAID = {
    "lse-hd256": "LSE error at head_dim 256 grew 50 to 310 times in 36 of 36 configurations; nothing else got worse",
    "max-causal": "Largest relative error with mask causal grew 2.5 to 4 times in 48 of 48 configurations; "
    "nothing else got worse",
    "cosine-t1": "1 - cosine at T = 1 grew 3 to 5.8 times in 36 of 36 configurations; nothing else got worse",
    "hazard": "Hazard tmem-race is new at head_dim 128, T = 32 and more in 18 of 18 configurations; "
    "nothing else got worse",
    "counter": "Bulk load bytes at s_k = 384 grew by 25% in 48 of 48 configurations; nothing else got worse",
    "registers": "Spill loads grew from 0 to 16 and registers from 128 to 255 in hd512; nothing else got worse",
    "not-run": "36 of 36 configurations at T = 128 are gone from the suites; nothing else got worse",
    "judge": "The judge, which says what is right, has changed: harness/judge/oracle/reference.py "
    "(read that, then --allow judge); nothing else got worse",
    "fails": "12 of 12 configurations at head_dim 64, mask window fail (LSE error); nothing else got worse",
    "bits": "Outputs have other bits at head_dim 512 in 36 of 36 configurations; nothing else got worse",
    "part": "LSE error at head_dim 256 grew 50 to 310 times in 36 of 36 configurations; nothing else got worse; "
    "72 more configurations were not asked for",
    "illegal": f"hd64_t1_sk128 crashes: {ILLEGAL}; 143 of 144 configurations are not run, since the guard, "
    "which runs first, failed; nothing else was run",
    "adapter": f"hd64_t1_sk128 crashes: {RAISED}; 143 of 144 configurations are not run, since the guard, "
    "which runs first, failed; nothing else was run",
    "two": "LSE error at head_dim 256 grew 50 to 310 times in 36 of 36 configurations; "
    "barrier waits at T = 1 grew by 30% in 36 of 36 configurations; nothing else got worse",
}


def told(new: RunRecord) -> tuple[tuple[Group, ...], str]:
    comparison = compare(RUN, new, asked(RUN, new))
    groups = tell(comparison, RUN, new)
    return groups, sentence(groups, comparison.compared, comparison.unasked)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.name)
def test_one_sentence_says_what_was_planted(plant) -> None:  # type: ignore[no-untyped-def]
    assert told(plant.make(RUN))[1] == SAID[plant.name]


def test_a_gate_that_the_drawn_inputs_alone_miss_is_named() -> None:
    def on_drawn(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
        made = dict(missed(item, chance))
        return made | {"reasons": ["on the drawn inputs of seed 7: lse_error is 0.69; at most 0.0001 is required"]}

    new = changed(RUN, lambda item: item.parameters.head_dim == 64 and item.parameters.mask == "window", on_drawn)
    assert told(new)[1] == SAID["fails"]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.name)
def test_a_group_s_filter_accepts_all_of_its_cases_and_every_case_is_in_a_group(plant) -> None:  # type: ignore[no-untyped-def]
    new = plant.make(RUN)
    comparison = compare(RUN, new)
    groups = tell(comparison, RUN, new)
    assert sorted(map(str, comparison.regressions)) == sorted(
        str(item) for group in groups for item in group.regressions
    )
    parameters = {item.id: item.parameters for item in RUN.configurations}
    for group in groups:
        if group.where and group.where.filter:
            accepted = parse_filter([group.where.filter])
            cases = {item.subject for item in group.regressions}
            assert all(accepted.accepts(configuration_of(parameters[name])) for name in cases)
            of = sum(accepted.accepts(configuration_of(item)) for item in parameters.values())
            assert (group.where.count, group.where.total) == (len(cases), of)


def test_a_cause_is_told_with_three_of_its_cases_and_how_many_more_there_are() -> None:
    """One missing fence was 316 lines."""
    groups, _ = told(BY_NAME["hazard"].make(RUN))
    for group in groups:
        clause, *cases, more = [line for of, line in lines(groups, "fmha report") if of is group]
        assert clause.startswith(f"{group.kind}: {group.text} --filter '")
        assert cases == [f"  {item}" for item in group.regressions[:3]]
        assert more == f"  and {len(group.regressions) - 3} more; fmha report shows them"


@pytest.mark.parametrize("name", ["illegal", "adapter"])
def test_what_a_clause_says_is_not_said_again(name: str) -> None:
    """The words of what ended, and that the guard kept all others from running."""
    groups, _ = told(BY_NAME[name].make(RUN))
    status, others = list(lines(groups, "fmha report"))[:2]
    assert (status[1].partition(":")[0], others[1].partition(":")[0]) == ("status", "not-run")
    assert [line for _, line in lines(groups, "fmha report") if line.startswith(" ")] == []


def test_numbers_of_more_than_what_fails_are_said_as_well() -> None:
    """A gate catches one of two cases that grew; neither has a filter of its own."""
    cases = ("hd64_t1_sk128", "hd128_t4_sk256_causal")
    new = changed(RUN, lambda item: item.id == cases[0], missed)
    second = changed(RUN, lambda item: item.id == cases[1], grown("lse_error", 99, 99))
    other = next(item for item in second.configurations if item.id == cases[1])
    items = [other if item.id == cases[1] else item for item in new.configurations]
    words = told(new.model_copy(update={"configurations": items}))[1]
    assert words.startswith(f"{cases[0]} fails (LSE error); LSE error grew ")
    assert f"in {cases[0]} and {cases[1]}" in words


def test_nothing_is_said_to_have_changed_where_nothing_has() -> None:
    assert told(later(RUN)) == ((), "Nothing got worse in 144 configurations")


def test_cases_with_nothing_in_common_are_told_in_parts() -> None:
    new = changed(
        RUN, lambda item: item.parameters.head_dim == 256 or item.id == "hd64_t1_sk128", counted("barrier_waits", 2)
    )
    groups, words = told(new)
    assert [group.where and group.where.count for group in groups] == [36, 1]
    assert words == (
        "Barrier waits at head_dim 256 grew 2 times in 36 of 36 configurations; "
        "barrier waits grew 2 times in hd64_t1_sk128; nothing else got worse"
    )


def test_what_few_cases_share_by_chance_is_not_named() -> None:
    """Of three cases at three head_dims and three T all may well be causal: every third configuration is."""
    cases = {"hd64_t1_sk128_causal", "hd128_t4_sk256_causal", "hd512_t32_sk384_causal"}
    ((group,), _) = told(changed(RUN, lambda item: item.id in cases, counted("barrier_waits", 2)))
    assert group.where
    assert (group.where.filter, group.where.count, group.where.total) == ("", 3, 144)


def test_figures_that_grew_in_the_same_places_are_one_thing() -> None:
    new = changed(RUN, lambda item: item.parameters.t == 4, grown("lse_error", 9, 9))
    new = changed(new, lambda item: item.parameters.t == 4, grown("row_sum_error", 4, 4))
    (numbers, _), words = told(new)
    assert (numbers.kind, numbers.whats) == (Kind.NUMBERS, ("lse_error", "row_sum_error"))
    assert words.startswith("LSE error at T = 4 grew 9 times in 36 of 36 configurations, with row sum error;")


def test_what_is_no_number_any_more_is_said() -> None:
    new = changed(RUN, lambda item: item.parameters.t == 4, grown("lse_error", 9, 9))
    items = [
        item.model_copy(update={"metrics": replace(item.metrics, lse_error=math.nan)})
        if item.metrics and item.parameters.t == 4
        else item
        for item in new.configurations
    ]
    words = told(new.model_copy(update={"configurations": items}))[1]
    assert words.startswith("LSE error at T = 4 is no number any more in 36 of 36 configurations")


def test_four_things_are_not_read_out() -> None:
    new = later(RUN)
    for t, counter in ((1, "barrier_waits"), (4, "bulk_load_bytes")):
        new = changed(new, lambda item, t=t: item.parameters.t == t, counted(counter, 3))  # type: ignore[misc]
    new = changed(new, lambda item: item.parameters.t == 32, grown("lse_error", 9, 9))
    new = changed(new, lambda item: item.parameters.head_dim == 64, grown("max_error", 4, 4))
    assert told(new)[1].endswith("; and 1 more change")
