"""The gates that a run was held to, where they are still known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord, Parameters
from fmha.harness.config import load
from fmha.harness.contract.protocol import Cell, Configuration
from fmha.harness.errors import FmhaError
from fmha.harness.evidence.views import error_of
from fmha.harness.judge.case import Case
from fmha.harness.stages.preflight import project_of

Limit = Callable[[ConfigurationRecord, str], float | None]


def limits_of(record: RunRecord, directory: Path) -> Limit:
    """The limit of a configuration's metric, as an error of which smaller is better.

    From the record, which has them from version 3 on; of an older one from the checkout's matrix.yaml if that is the
    one of the run; None for every metric otherwise.
    """
    if record.limits:
        return lambda item, metric: _recorded(record, item, metric)
    try:
        settings = load(project_of(directory))
    except FmhaError:
        return lambda item, metric: None
    if settings.sha256 != record.selection.matrix_sha256 or settings.places:  # adapters are not run to show a record
        return lambda item, metric: None

    def limit(item: ConfigurationRecord, metric: str) -> float | None:
        held = settings.thresholds_for(configuration_of(item.parameters)).limits.get(metric)
        return None if held is None else error_of(metric, held)

    return limit


def _recorded(record: RunRecord, item: ConfigurationRecord, metric: str) -> float | None:
    held = record.limits[item.limits].get(metric) if item.limits is not None else None
    return error_of(metric, held.limit) if held else None


def configuration_of(parameters: Parameters) -> Cell:
    """The cell as the harness sees it. Axes that there are no more, or not yet, are left to their defaults."""
    if parameters.kernel is not None:
        values = ((name, value) for name, value in parameters.model_dump().items() if isinstance(value, int | str))
        return Case(parameters.kernel, "", tuple(values))
    known = {field.name for field in dataclasses.fields(Configuration)}
    return Configuration(**{name: value for name, value in parameters.model_dump().items() if name in known})
