"""What nvcc makes of the kernels: clean, spill-free, C entries with one parameter struct."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from fmha.harness.worker.choice import ARCH
from fmha.harness.worker.params import PARAMS_BYTES
from fmha.harness.worker.protocol import BuildResult, Variant
from fmha.harness.worker.variants import VARIANTS

pytestmark = pytest.mark.nvcc

REGISTER_LIMIT = 255  # a thread's; six warps of them leave room in the 65536 of an SM
variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)


@variants
def test_no_warning(nvcc: str, repository: Path, tmp_path: Path, variant: Variant) -> None:
    flags = ["-std=c++17", "-O3", "-Ikernel/include", "-Ikernel", f"-arch={variant.arch}", "-Werror", "all-warnings"]
    defines = [f"-D{name}={value}" for name, value in variant.defines]
    command = [nvcc, *flags, *defines, "-Xptxas=-v", "-cubin", "-o", tmp_path / "kernel.cubin", variant.source]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Used" in result.stderr
    # ptxas serialises every wgmma of a kernel where it cannot follow its registers, and only says so (C7510 to C7520):
    # it did in three of these for a day.
    assert "serialized" not in result.stderr, result.stderr


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
    entries = [variant.entry, variant.combine] + [f"{variant.combine}_many"] * (variant.arch == ARCH)
    assert re.findall(r"\.entry (\w+)\(", ptx) == entries
    assert set(re.findall(r"\.param (\.align \d+ \.b8) \w+\[(\d+)\]", ptx)) == {(".align 64 .b8", str(PARAMS_BYTES))}
    assert f".maxntid {variant.shape.threads}" in ptx
    assert not re.search(r"\.func|\.local|\bcall\b", ptx), "a wrapper was not inlined, or an array left the registers"


def test_both_paths_of_p_at_every_head_dim() -> None:
    found = {(variant.head_dim, variant.p_path) for variant in VARIANTS if variant.arch == "sm_100a"}
    assert found == {(head_dim, path) for head_dim in (64, 128, 256, 512) for path in ("tmem", "smem")}
