"""The measurement of whole kernels launches each of ours as it was compiled for."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import BuildResult
from fmha.harness.kernel_side.variants import VARIANTS
from tests.emulator.attention_speed import cost
from tests.kernel.kept import marks


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(item.name, marks=marks(item)) for item in VARIANTS if item.head_dim == 64]
)
def test_a_kernel_of_every_kind_is_measured(builds: Mapping[str, BuildResult], name: str) -> None:
    build = builds[name]
    measured = cost(Path(build.ptx), build.variant, 1, checks=True, threads=1, repeat=1, sums="fast")
    assert measured.warp_instructions > 5000
    assert min(measured.seconds, measured.thread_seconds, measured.product_seconds) > 0
