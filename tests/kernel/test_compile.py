"""What nvcc makes of the kernels: clean, spill-free, C entries with one parameter struct."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.harness.contract.protocol import BuildResult, Variant
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.params import PARAMS_BYTES
from fmha.harness.kernel_side.variants import VARIANTS, balances
from fmha.harness.worker.compilers.build_kernels import warnings
from tests.kernel.kept import marks

pytestmark = pytest.mark.nvcc

REGISTER_LIMIT = 255  # a thread's; six warps of them leave room in the 65536 of an SM
variants = pytest.mark.parametrize(
    "variant", [pytest.param(variant, marks=marks(variant), id=variant.name) for variant in VARIANTS]
)


@variants
def test_no_warning(builds: Mapping[str, BuildResult], variant: Variant) -> None:
    """Nor that ptxas serialises every wgmma, C7510 to C7520, which it did in three of these for a day."""
    assert warnings(builds[variant.name]) == []


@variants
def test_no_spill_and_no_stack(builds: Mapping[str, BuildResult], variant: Variant) -> None:
    resources = builds[variant.name].resources
    assert resources is not None
    assert (resources.spill_stores, resources.spill_loads, resources.stack) == (0, 0, 0)
    assert resources.registers <= REGISTER_LIMIT
    assert resources.registers * variant.shape.threads <= 65536
    assert resources.shared_static == 0  # all of it is dynamic, as the launch shape says


@variants
def test_entries(builds: Mapping[str, BuildResult], variant: Variant) -> None:
    ptx = Path(builds[variant.name].ptx).read_text()
    further = ["_many"] if variant.arch == ARCH else ["_heads", "_many", "_many_heads"]
    if balances(variant) and variant.arch == ARCH:
        further += ["_balanced", "_many_balanced"]
    merges = [variant.combine, *(variant.combine + name for name in further)] if variant.combine else []
    entries = [variant.entry, *merges]
    assert sorted(re.findall(r"\.entry (\w+)\(", ptx)) == sorted(entries)
    assert set(re.findall(r"\.param (\.align \d+ \.b8) \w+\[(\d+)\]", ptx)) == {(".align 64 .b8", str(PARAMS_BYTES))}
    assert f".maxntid {variant.shape.threads}" in ptx
    assert not re.search(r"\.func|\.local|\bcall\b", ptx), "a wrapper was not inlined, or an array left the registers"


def test_both_paths_of_p_at_every_head_dim() -> None:
    found = {(variant.head_dim, variant.p_path) for variant in VARIANTS if variant.arch == "sm_100a"}
    assert found == {(head_dim, path) for head_dim in (64, 128, 256, 512) for path in ("tmem", "smem")}
