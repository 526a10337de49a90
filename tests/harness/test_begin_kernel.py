"""What `fmha init --kernel` reads of a source, and the adapter that it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha.harness.errors import UserError
from fmha.harness.judge.case import Field, case_of
from fmha.harness.stages.begin_kernel import files, kernels
from fmha.harness.stages.init import InitChoice, initialise
from fmha.harness.worker.subjects.loading import load_kernel

SOURCE = """
#include <ATen/cuda/CUDAContext.h>
// __global__ void not_this(int x) { }
template <typename scalar_t, int BLOCK = 256, bool CAUSAL>
__global__ __launch_bounds__(BLOCK) void softmax_fwd(const scalar_t* __restrict__ x, scalar_t* __restrict__ y,
                                                     const int64_t n, float scale, Params p) {
  y[0] = x[0];
}
extern "C" __global__ void
add_one(float *a, const __nv_bfloat16 *b, const int shape[2], int n, unsigned int m, bool first) { a[0] = 1; }
static __global__ void nothing(void) {}
__global__ void declared(int*);
__device__ void helper(int* x) {}
"""


def test_kernels_and_their_parameters() -> None:
    softmax, add, nothing = kernels(SOURCE)
    assert (softmax.entry, add.entry, nothing.entry) == ("softmax_fwd<float, 256, false>", "add_one", "nothing")
    assert [(item.name, item.dtype, item.pointer, item.read) for item in softmax.parameters] == [
        ("x", "f32", True, True),
        ("y", "f32", True, False),
        ("n", "i64", False, True),
        ("scale", "f32", False, False),
        ("p", "", False, False),
    ]
    assert [(item.name, item.dtype, item.pointer, item.read) for item in add.parameters[:3]] == [
        ("a", "f32", True, False),
        ("b", "bf16", True, True),
        ("shape", "i32", True, True),
    ]
    assert nothing.parameters == ()


def test_the_adapter_loads_and_says_what_the_signature_says(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/a.cu").write_text(SOURCE)
    written = initialise(tmp_path, InitChoice("kernel", ci="none"), files(tmp_path, "csrc/a.cu:add_one"))
    assert written == ["fmha_kernels.py", "matrix.yaml", ".gitignore"]
    kernel = load_kernel(tmp_path, "fmha_kernels.py:AddOne")
    case = case_of("addone", (Field("size"),), {"size": 100})
    assert kernel.source == "csrc/a.cu"
    assert kernel.build(case, "sm_90a").entry == "add_one"
    inputs = kernel.inputs(case, np.random.default_rng(0))
    assert {name: array.dtype.str for name, array in inputs.items()} == {"b": "<u2", "shape": "<i4"}
    assert {name: item.dtype for name, item in kernel.outputs(case).items()} == {"a": "f32"}
    (launch,) = kernel.launches(case)
    assert launch.args == ["a", "b", "shape", 100, np.uint32(100), np.bool_(True)]
    with pytest.raises(NotImplementedError, match="what a should be, in float64"):
        kernel.reference(case, inputs)
    assert "kernel: fmha_kernels.py:AddOne" in (tmp_path / "matrix.yaml").read_text().replace("addone:", "kernel:")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("a.cu", "a.cu: it has 3 kernels: softmax_fwd, add_one, nothing; name one: --kernel a.cu:softmax_fwd"),
        ("a.cu:add", "a.cu: it has no kernel add; it has softmax_fwd, add_one, nothing"),
        ("b.cu", "there is no file b.cu in the repository"),
        ("../outside.cu", "there is no file"),
        ("empty.cu", "it has no __global__ function with a body"),
    ],
)
def test_what_is_not_clear_is_said(tmp_path: Path, where: str, words: str) -> None:
    (root := tmp_path / "root").mkdir()
    (tmp_path / "outside.cu").write_text(SOURCE)
    (root / "a.cu").write_text(SOURCE)
    (root / "empty.cu").write_text("__device__ int x;\n")
    with pytest.raises(UserError) as caught:
        files(root, where)
    assert words in str(caught.value)
