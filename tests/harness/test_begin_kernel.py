"""What `fmha init --kernel` reads of a source, and the adapter that it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha.harness.errors import UserError
from fmha.harness.judge.case import Field, case_of
from fmha.harness.stages.begin_kernel import files, kernels
from fmha.harness.stages.begin_triton import jit_kernels
from fmha.harness.stages.init import InitChoice, initialise
from fmha.harness.triton_kernel import TritonKernel
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


JIT = """
import triton
import triton.language as tl
import not_installed_here

@triton.jit
def helper(x):
    return x + 1

@triton.autotune(configs=[triton.Config({"BLOCK_N": 64}, num_warps=2)], key=["n"])
@triton.heuristics({"HAS_BIAS": lambda given: given["bias_ptr"] is not None})
@triton.jit
def scale_rows(x_ptr, bias_ptr, out_ptr, seen_ptr, stride, n, eps, HAS_BIAS: tl.constexpr, BLOCK_N: tl.constexpr,
               USE_EPS: tl.constexpr, GROUP: tl.constexpr = 8):
    row = tl.program_id(0)
    row_ptr = x_ptr + row * stride
    at = tl.arange(0, BLOCK_N)
    value = tl.load(row_ptr + at, mask=at < n)
    if HAS_BIAS:
        value += tl.load(bias_ptr + at)
    tl.store(out_ptr + row * stride + at, value)
    again = tl.load(out_ptr + row * stride + at)
    tl.store(row_ptr + at, again * tl.load(row_ptr + at))
    tl.atomic_add(seen_ptr + row, 1)

@triton.jit
def plain(x, y, n):
    tl.store(y + tl.program_id(0) * n, tl.load(x + tl.program_id(0) * n))
"""


def test_kernels_of_tritons() -> None:
    """What is loaded before it is stored is given, what is stored first is not. A helper stores nothing."""
    scale, plain = jit_kernels(JIT, "a.py")
    assert (scale.name, scale.read, scale.written) == (
        "scale_rows",
        ("x_ptr", "bias_ptr"),
        ("x_ptr", "out_ptr", "seen_ptr"),
    )
    assert scale.numbers == ("stride", "n", "eps")
    assert scale.constants == {"USE_EPS": "False", "GROUP": "8"}
    assert (scale.chosen, scale.tuned) == (("HAS_BIAS", "BLOCK_N"), True)
    assert (plain.read, plain.written, plain.numbers, plain.tuned) == (("x",), ("y",), ("n",), False)


def test_the_adapter_of_a_triton_kernel_loads(tmp_path: Path) -> None:
    """Without Triton, and without what the kernel's file imports."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/a.py").write_text(JIT)
    initialise(tmp_path, InitChoice("jit", ci="none"), files(tmp_path, "ops/a.py:scale_rows"))
    kernel = load_kernel(tmp_path, "fmha_kernels.py:ScaleRows")
    assert isinstance(kernel, TritonKernel)
    case = case_of("scalerows", kernel.fields, {"size": 100})
    assert (kernel.source, kernel.name, case.choice) == ("ops/a.py", "scale_rows", 0)
    assert kernel.constants(case) == {"USE_EPS": False, "GROUP": 8}
    assert kernel.arguments(case) == {
        **{name: name for name in ("x_ptr", "bias_ptr", "out_ptr", "seen_ptr")},
        **dict.fromkeys(("stride", "n", "eps"), 100),
    }
    assert kernel.signature == dict.fromkeys(("x_ptr", "bias_ptr", "out_ptr", "seen_ptr"), "*fp32")
    assert {name: item.first for name, item in kernel.outputs(case).items()} == {
        "x_ptr": "input",
        "out_ptr": "poison",
        "seen_ptr": "poison",
    }
    assert set(kernel.inputs(case, np.random.default_rng(0))) == {"x_ptr", "bias_ptr"}
    with pytest.raises(NotImplementedError, match="what x_ptr, out_ptr, seen_ptr should be"):
        kernel.reference(case, {})


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("a.py", "a.py: it has 2 kernels: scale_rows, plain; name one: --kernel a.py:scale_rows"),
        ("a.py:scale", "a.py: it has no kernel scale; it has scale_rows, plain"),
        ("helpers.py", "helpers.py: it has no @triton.jit function that stores anything; name the file that has"),
        ("broken.py", "broken.py: it is no Python: "),
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
    (root / "a.py").write_text(JIT)
    (root / "helpers.py").write_text("import triton\n\n\n@triton.jit\ndef twice(x):\n    return x + x\n")
    (root / "broken.py").write_text("def f(:\n")
    with pytest.raises(UserError) as caught:
        files(root, where)
    assert words in str(caught.value)
