"""The table of metrics, and what holds their values."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

from fmha.harness.archive.record import Record
from fmha.harness.contract.codec import event_to_line
from fmha.harness.contract.protocol import Event
from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts.host_answers import numbers, worker_event_of
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.metrics import METRICS, OF_ANY_KERNEL, Measurement
from tests.figures import measurement


class Recorded(Record):
    """A record has a Measurement, as ConfigurationRecord has two."""

    metrics: Measurement


def test_metrics_are_the_first_fields_in_their_order() -> None:
    assert [field.name for field in fields(Measurement)][: len(METRICS)] == [*METRICS]


def test_what_attention_alone_has_may_be_left_out() -> None:
    rest = {"nonfinite_mismatches": 0, "unwritten": 0, "output_hash": ""}
    bare = Measurement(**dict.fromkeys(OF_ANY_KERNEL, 0.0), **rest)
    assert {name for name in METRICS if getattr(bare, name) is None} == METRICS.keys() - OF_ANY_KERNEL


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(("value", "written"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (0.5, 0.5)])
def test_a_record_has_every_number(name: str, value: float, written: float | str) -> None:
    held = Recorded(metrics=measurement(**{name: value})).model_dump(mode="json")
    assert held["metrics"][name] == written
    assert repr(getattr(Recorded.model_validate(held).metrics, name)) == repr(value)


def test_a_record_has_nothing_else() -> None:
    held = Recorded(metrics=measurement()).model_dump()
    for place in (held["metrics"], held["metrics"]["bias"]):
        place["unknown"] = 0.0
        with pytest.raises(ValidationError, match="unknown"):
            Recorded.model_validate(held)
        del place["unknown"]


@pytest.mark.parametrize("name", METRICS)
def test_a_host_is_asked_for_every_metric(name: str) -> None:
    assert numbers(True).model_fields[name].is_required()
    assert (numbers(False).model_fields[name].annotation is type(None)) is METRICS[name].of_attention


def test_the_error_is_what_grows() -> None:
    assert METRICS["cosine"].error(0.75) == 0.25
    assert METRICS["max_error"].error(0.75) == 0.75


def event(**metrics: float | None) -> Any:
    """What a host says of a configuration, as JSON has it."""
    result = Event("result", "hd64_t1_sk9_out-bf16_stats-lse", measurement=measurement(**metrics))
    return json.loads(event_to_line(result))


def test_a_host_says_what_was_asked_for_and_nothing_else() -> None:
    configuration = parse_id("hd64_t1_sk9_out-bf16_stats-lse")
    lacking = {configuration.id: configuration.unmeasured}
    right = {"row_max_error": None, "row_sum_error": None}
    assert worker_event_of(event(**right), None, "there", (), lacking).measurement == measurement(**right)
    with pytest.raises(InfrastructureError, match="row_max_error"):
        worker_event_of(event(row_sum_error=None), None, "there", (), lacking)
    with pytest.raises(InfrastructureError, match="lse_error"):
        worker_event_of(event(**right, lse_error=None), None, "there", (), lacking)
