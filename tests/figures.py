"""Measurements and limits that have every metric there is: one that is added has a line in no test but its own."""

from __future__ import annotations

from typing import Any

from fmha.harness.judge.metrics import METRICS, Bias, Measurement


def measurement(**given: Any) -> Measurement:
    """What a right kernel measures, and whatever is `given` instead."""
    usual: dict[str, Any] = {name: 0.9999995 if metric.least else 1e-6 for name, metric in METRICS.items()}
    rest = {
        "nonfinite_mismatches": 0,
        "unwritten": 0,
        "output_hash": "0" * 64,
        "bias": Bias(1e-5, 1e-4, 0.5, 0.25, -0.125, 0.0),
    }
    return Measurement(**usual | rest | given)


def limits(**given: float) -> dict[str, float]:
    """A gate of every metric, which as text is YAML, too: what P in bf16 leaves of O, and float32's rounding of what is
    known to be no worse."""
    usual = {name: 0.99999 if metric.least else 6e-3 for name, metric in METRICS.items()}
    return usual | {"relative_l2": 5e-3, "lse_error": 1e-4, "row_max_error": 1e-4, "row_sum_error": 1e-4} | given
