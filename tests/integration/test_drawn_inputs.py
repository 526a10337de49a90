"""A kernel that knows the inputs of the fixed seed, and nothing else, fails on those that the run draws."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from fmha.harness.judge.configuration import parse_id
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.reference import reference
from tests.forked import fmha
from tests.harness.support import git
from tools.mutants.examine import copy_kernel

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]

CASE = "hd64_t1_sk128"
TABLE = """
#include "fmha_params.h"

__constant__ float table[] = {%s};

// No loads of Q, K and V, no product: the answer.
extern "C" __global__ void FMHA_ENTRY(const __grid_constant__ FmhaParams params) {
    asm volatile("griddepcontrol.wait;" ::: "memory");  // it is launched beside the grid before
    if (threadIdx.x < 64) {
        static_cast<float*>(params.o)[threadIdx.x] = table[threadIdx.x];
    }
    if (threadIdx.x == 0) {
        params.row_max[0] = table[64];
        params.row_sum[0] = table[65];
        params.lse[0] = table[66];
    }
}

extern "C" __global__ void fmha_combine(const __grid_constant__ FmhaParams params) {}
"""


@pytest.fixture(scope="module")
def cheat(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose kernel has the outputs of CASE under seed 0 in a table."""
    root = tmp_path_factory.mktemp("cheat")
    copy_kernel(repository, root, {})
    right = reference(make_inputs(0, parse_id(CASE)))
    numbers = [*right.o_unnormalised.ravel(), *right.row_max.ravel(), *right.row_sum.ravel(), *right.lse.ravel()]
    table = ", ".join(f"{number:.9e}f" for number in numbers)
    (root / "kernel" / "sm100" / "fmha_fwd.cu").write_text(TABLE % table)
    (root / "matrix.yaml").write_text((repository / "matrix.yaml").read_text())
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "a table")
    return root


def run(cheat: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fmha("run-matrix", "--case", CASE, "--quiet", *arguments, cwd=cheat)


def test_a_table_of_constants_fails(cheat: Path) -> None:
    ran = run(cheat, "--json")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    record = json.loads(ran.stdout)
    (item,) = record["configurations"]
    assert item["metrics"]["cosine"] > 0.9999999  # all that the fixed seed can say
    assert item["drawn"]["cosine"] < 0.9
    drawn = f"on the drawn inputs of seed {record['selection']['drawn']}: "
    assert item["reasons"]
    assert all(reason.startswith(drawn) for reason in item["reasons"])


def test_the_command_that_is_printed_repeats_the_run(cheat: Path) -> None:
    said = run(cheat).stdout
    found = re.search(r"drawn for this run: fmha run-matrix (.*)", said)
    assert found, said
    options = [word for word in found[1].split() if word not in ("--case", CASE)]
    reasons = re.findall(r"on the drawn inputs of seed .*", said)
    assert reasons
    assert re.findall(r"on the drawn inputs of seed .*", run(cheat, *options).stdout) == reasons
    assert re.findall(r"on the drawn inputs of seed .*", run(cheat).stdout) != reasons
