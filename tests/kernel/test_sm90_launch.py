"""The launches that the harness's rule makes on Hopper, by the worker's own code on the emulator, through the gates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.harness.bench.shape_cases import CASES
from fmha.harness.config import load
from fmha.harness.contract.protocol import BuildResult, Event, Job
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.judge.gate import judge
from fmha.harness.judge.status import Status
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.variants import VARIANTS, merges_in_cluster, variant_for
from fmha.harness.worker.__main__ import run_job
from fmha.harness.worker.devices.factory import device_factory

pytestmark = pytest.mark.nvcc


def test_every_shape_and_way_to_merge_is_there() -> None:
    chosen = {variant_for(item, ARCH) for item in CASES}
    assert chosen >= {variant for variant in VARIANTS if variant.arch == ARCH and "_rows" in variant.name}
    assert {merges_in_cluster(item, ARCH) for item in CASES if item.splits > 1} == {True, False}


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.id)
def test_a_run_takes_it_by_its_name(item: Configuration) -> None:
    assert parse_id(item.id) == item


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.id)
def test_passes_every_gate(repository: Path, builds: Mapping[str, BuildResult], item: Configuration) -> None:
    variant = variant_for(item, ARCH)
    assert not isinstance(variant, str)
    matrix = load(repository)
    events: list[Event] = []
    run_job(Job("emulator", (builds[variant.name],), (item,), matrix.seed), device_factory("emulator"), events.append)
    result = events[1]
    assert result.measurement is not None, result.message
    judgement = judge(result.measurement, result.findings, matrix.thresholds_for(item))
    assert judgement.status is Status.PASS, judgement.failed_checks
