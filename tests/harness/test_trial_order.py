"""The order in which the timing model puts trials, against the order in which they were measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fmha.harness.bench.trials import trial_order
from fmha.harness.bench.trials.trial import every_trial
from fmha.harness.bench.trials.trial_order import TrialRow, matched, noise, pairs, rates
from fmha.harness.bench.trials.tried import row_of

ROW = TrialRow(("decode", 64, False), ("hd64", 8, True), 10.0, 9.0, 0)


def test_pairs_are_of_one_problem_and_right_where_both_orders_agree():
    rows = [
        ROW,
        replace(ROW, measured_us=11.0, modelled_us=8.0),
        replace(ROW, measured_us=20.0, modelled_us=19.0),
        replace(ROW, problem=("short", 64, False), measured_us=1.0),
    ]
    found = pairs(rows)
    assert [(p.faster.measured_us, p.slower.measured_us, p.right) for p in found] == [
        (10.0, 11.0, False),
        (10.0, 20.0, True),
        (11.0, 20.0, True),
    ]
    assert rates(found, 0.25)[0] == "all: 2 of 3 pairs in order, 66.7%"
    assert rates(found, 0.25)[1] == "at least 25% apart: 2 of 2 pairs in order, 100.0%"


def test_a_record_is_matched_with_the_trials_there_are(repository):
    trial = every_trial()[0]
    known = row_of(trial, {"median_us": 15.0})
    rows = [known, known | {"median_us": 15.3}, known | {"shape": "hd64_no_exponentials"}]
    assert matched({"rows": rows}) == [(trial, known)]
    assert noise({"rows": rows}) == pytest.approx(0.02)
    assert matched({"rows": rows}, only="prefill") == []
    record = json.loads((repository / "results/tried-h200.json").read_text())
    left_out = sum("left_out" in row for row in record["rows"])
    in_clusters = sum(row["cluster"] != [1, 1] for row in record["rows"])  # which kernels knew then
    again = 8  # decode and prefill, at each head_dim
    assert len(matched(record)) == len(record["rows"]) - left_out - again - in_clusters


@pytest.mark.nvcc
def test_a_trial_is_modelled_at_its_full_size():
    trial = next(t for t in every_trial() if t.kind == "short256" and t.shape == "hd64_short_plain")
    measured = row_of(trial, {"median_us": 3.4})
    modelled = trial_order.row(trial, measured, trial_order.timings(trial))
    assert modelled.forced == 0
    assert modelled.measured_us == 3.4
    assert 1 < modelled.modelled_us < 10
    assert "hd64_short_plain, 4 splits" in str(modelled)
