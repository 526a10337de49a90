"""The table of metrics, and what holds their values."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fmha.harness.archive.record import Metrics
from fmha.harness.metrics import METRICS
from fmha.harness.worker.protocol import Measurement

COUNTS = ["nonfinite_mismatches", "unwritten", "output_hash", "bias"]


def test_measurements_and_records_have_every_metric() -> None:
    assert [field.name for field in fields(Measurement)] == [*METRICS, *COUNTS]
    assert list(Metrics.model_fields) == [*METRICS, *COUNTS]


@pytest.mark.parametrize("name", METRICS)
def test_what_attention_alone_has_may_be_left_out(name: str) -> None:
    assert Metrics.model_fields[name].is_required() is not METRICS[name].of_attention


def test_the_error_is_what_grows() -> None:
    assert METRICS["cosine"].error(0.75) == 0.25
    assert METRICS["max_error"].error(0.75) == 0.75
