"""The launches that the harness's rule makes on Hopper, by the worker's own code on the emulator, through the gates."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import pytest

from fmha.harness.bench.shapes.shape_cases import CASES
from fmha.harness.config import load
from fmha.harness.contract.protocol import BuildResult, Event, Job, Variant
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.judge.gate import judge
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import (
    VARIANTS,
    goes_through_row_tiles,
    is_pair,
    variant_for,
)
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.factory import device_factory
from tests.kernel.kept import KEPT, marks

pytestmark = pytest.mark.nvcc


def chosen(item: Configuration) -> Variant:
    variant = variant_for(item, ARCH)
    assert not isinstance(variant, str), variant
    return variant


def test_every_shape_and_way_to_merge_is_there() -> None:
    found = {chosen(item) for item in CASES}
    assert found >= {variant for variant in VARIANTS if variant.arch == ARCH and "_rows" in variant.name}


def test_what_make_test_compiles_has_every_shape_and_every_kind() -> None:
    def of(variant: Variant, shape: bool) -> tuple[tuple[str, str], ...]:
        return tuple(item for item in variant.defines if (item[0] in ("FMHA_HEAD_DIM", "FMHA_ROWS")) == shape)

    hopper = [variant for variant in VARIANTS if variant.arch == ARCH]
    assert {variant.name for variant in VARIANTS} >= KEPT
    for shape in (True, False):
        kept = {of(variant, shape) for variant in hopper if variant.name in KEPT}
        assert kept == {of(variant, shape) for variant in hopper}
    blackwell = [variant for variant in VARIANTS if variant.arch != ARCH]
    for kind in (attrgetter("head_dim"), attrgetter("p_path"), goes_through_row_tiles, is_pair):
        assert {kind(v) for v in blackwell if v.name in KEPT} == {kind(v) for v in blackwell}


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.id)
def test_a_run_takes_it_by_its_name(item: Configuration) -> None:
    assert parse_id(item.id) == item


@pytest.mark.parametrize("item", [pytest.param(item, marks=marks(chosen(item)), id=item.id) for item in CASES])
def test_passes_every_gate(repository: Path, builds: Mapping[str, BuildResult], item: Configuration) -> None:
    variant = chosen(item)
    matrix = load(repository)
    events: list[Event] = []
    run_job(Job("emulator", (builds[variant.name],), (item,), matrix.seed), device_factory("emulator"), events.append)
    result = events[1]
    assert result.measurement is not None, result.message
    judgement = judge(result.measurement, result.findings, matrix.thresholds_for(item))
    assert judgement.status is Status.PASS, judgement.failed_checks
