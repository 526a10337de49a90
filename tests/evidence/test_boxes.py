"""Times of two boxes as shares of what each did at most."""

from __future__ import annotations

from typing import Any

import pytest

from fmha.harness.archive.record import RunRecord, Timing
from fmha.harness.contract.protocol import Ceilings, Timed
from fmha.harness.evidence.boxes import box_fields, box_lines
from fmha.harness.stages.archive import _timing
from tests.evidence.records import IDS, record


def timed(seconds: float, **most: Any) -> RunRecord:
    """A run whose first configuration was timed on a box of these rates."""
    fields = {"bytes_moved": None, "operations": None, "bytes_per_second": 4e12, "operations_per_second": 7e14} | most
    timing = Timing(seconds=[seconds] * 3, clock_mhz=[], beside=None, beside_seconds=[], beside_clock_mhz=[], **fields)
    run = record()
    first, *others = run.configurations
    return run.model_copy(update={"configurations": [first.model_copy(update={"timing": timing}), *others]})


def test_a_slower_box_is_told_from_a_slower_kernel() -> None:
    slower_box = timed(1.1e-4, bytes_per_second=4e12 / 1.1, operations_per_second=7e14 / 1.1, throttled=["power cap"])
    lines = list(box_lines(timed(1e-4), slower_box))
    assert lines[1].endswith("held back by power cap")
    assert "box B copies -9.1% beside box A: times are no shares of one box" in lines
    assert "box B multiplies -9.1% beside box A: times are no shares of one box" in lines
    assert lines[-1] == f"time {IDS[0]}: +10.0% in seconds, +0.0% of the box's copy, +0.0% of its product"
    slower_kernel = list(box_lines(timed(1e-4), timed(1.1e-4)))
    assert len(slower_kernel) == 3
    assert slower_kernel[-1] == f"time {IDS[0]}: +10.0% in seconds, +10.0% of the box's copy, +10.0% of its product"


def test_without_rates_nothing_is_told() -> None:
    assert list(box_lines(timed(1e-4), timed(1e-4, bytes_per_second=None))) == []
    assert list(box_lines(record(), timed(1e-4))) == []
    assert box_fields(timed(1e-4), timed(2e-4, operations_per_second=None)) == {
        IDS[0]: {"seconds": pytest.approx(1.0), "copied": pytest.approx(1.0), "multiplied": None}
    }


def test_a_record_has_what_was_measured_beside() -> None:
    most = Ceilings(4.2e12, None, 1545.0, 430.5, ("power cap",))
    found = _timing(Timed((1e-4,), (), "", (), (), most))
    assert (found.bytes_per_second, found.operations_per_second) == (4.2e12, None)
    assert (found.load_clock_mhz, found.load_watts, found.throttled) == (1545.0, 430.5, ["power cap"])
    assert _timing(Timed((1e-4,), (), "", (), ())).throttled == []
