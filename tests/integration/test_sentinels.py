"""A kernel that masks with a huge number, broken where it does not mask: by its adapter, as a user has it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from tests import forked
from tests.harness.support import git

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]

KERNEL = """
extern "C" __global__ void scores(const float* x, float* y, int size) {
  const int row = blockIdx.x;
  for (int column = threadIdx.x; column < size; column += blockDim.x) {
    const int at = row * size + column;
    y[at] = column <= row ? FACTOR * x[at] : MASK;
  }
}
"""
ADAPTER = """
import numpy as np
from fmha import Build, Field, Kernel, Launch, Output


class Scores(Kernel):
    source = "scores.cu"
    fields = (Field("size"), Field("factor", default=2), Field("mask", least=0, most=3))

    def build(self, case, arch):
        mask = ("-1e30f", "-3.402823466e38f", "-1e9f", "-INFINITY")[case.mask]
        return Build("scores", {"FACTOR": f"{case.factor}.0f", "MASK": mask})

    def inputs(self, case, random):
        return {"x": random.standard_normal((case.size, case.size)).astype(np.float32)}

    def outputs(self, case):
        return {"y": Output((case.size, case.size))}

    def launches(self, case):
        return [Launch((case.size, 1, 1), (32, 1, 1), ["x", "y", case.size])]

    def reference(self, case, inputs):
        mask = (-1e30, float(np.finfo(np.float32).min), -1e9, -np.inf)[case.mask]
        visible = np.tril(np.ones((case.size, case.size), bool))
        return {"y": np.where(visible, 2 * inputs["x"].astype(np.float64), mask)}
"""
MATRIX = """
kernels: {scores: fmha_kernels.py:Scores}
default_suite: small
seed: 0
limits: {build_seconds: 300, configuration_silence_seconds: 60, configuration_total_seconds: 300}
suites: {small: {axes: {size: [16], mask: [0, 1, 2, 3], factor: [2, 3]}}}
gates: {default: {cosine: 0.999999, relative_l2: 1e-5, max_error: 1e-5}}
guard: {case: scores_size16_mask0}
hosts: {emulator: {kind: emulator, arch: sm_90a}}
"""


def test_a_kernel_that_is_wrong_beside_its_mask_fails(tmp_path: Path) -> None:
    (tmp_path / "scores.cu").write_text(KERNEL)
    (tmp_path / "fmha_kernels.py").write_text(ADAPTER)
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "ours")
    ran = forked.fmha("run-matrix", "--json", "--quiet", cwd=tmp_path)
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    found = {item["id"]: item for item in json.loads(ran.stdout)["configurations"]}
    assert len(found) == 8
    for name, item in found.items():
        if "factor3" not in name:
            assert item["status"] == "pass", name
            continue
        assert item["status"] == "fail", name
        assert {check["name"] for check in item["failed_checks"]} >= {"relative_l2", "max_error"}, name
        hidden = 0 if "mask3" in name else 16 * 15 // 2
        assert item["metrics"]["sentinels"] == hidden, name
        assert item["reasons"][0].endswith("expected" if not hidden else f"; {hidden} sentinels are judged apart")
        assert abs(item["metrics"]["worst"]["expected"]) < 10, name
