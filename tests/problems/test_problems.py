"""Answers to problems whose reference is a torch module: right ones pass, and what only looks like one is red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha.harness.judge.limits import Thresholds
from fmha.harness.problems.extension import Extensions
from tests.problems.here import Verdict, judged

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("problems")]

# In the form of KernelBench's, and none of its.
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
        self.slope = slope

    def forward(self, x):
        y = x * self.scale
        return torch.softmax(torch.where(y > 0, y, self.slope * y), dim=1)


ROWS = 4096
columns = 512 * 2


def get_inputs():
    return [torch.randn(ROWS, columns)]


def get_init_inputs():
    return [columns, 0.5]
"""
CUDA = """
#include <torch/extension.h>

template <bool kWaits, bool kTail, bool kWrites>
__global__ void rows(const float* x, const float* scale, float* y, int columns, float slope) {
    __shared__ float part[8];
    const long long row = blockIdx.x * static_cast<long long>(columns);
    float most = -1e30f, sum = 0;
    const int end = kTail ? columns : columns / 256 * 256;
    auto value = [&](int at) { const float v = x[row + at] * scale[at]; return v > 0 ? v : slope * v; };
    auto all = [&](float v, bool add) {
        for (int o = 16; o; o /= 2) {
            const float other = __shfl_xor_sync(0xffffffff, v, o);
            v = add ? v + other : fmaxf(v, other);
        }
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        if (kWaits) __syncthreads();
        for (int warp = 0; warp < 8; ++warp) v = warp == 0 ? part[0] : add ? v + part[warp] : fmaxf(v, part[warp]);
        if (kWaits) __syncthreads();
        return v;
    };
    for (int at = threadIdx.x; at < end; at += 256) most = fmaxf(most, value(at));
    most = all(most, false);
    for (int at = threadIdx.x; at < end; at += 256) sum += expf(value(at) - most);
    sum = all(sum, true);
    for (int at = threadIdx.x; at < end; at += 256) y[row + at] = expf(value(at) - most) / sum;
    if (kWrites) const_cast<float*>(x)[row] = 0;
}

torch::Tensor run(torch::Tensor x, torch::Tensor scale, double slope, int64_t how) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2, "x has ", x.dim(), " dimensions");
    auto y = torch::empty_like(x);
    cudaStream_t stream = nullptr;
    if (how == 4) cudaStreamCreate(&stream);
    auto go = [&](auto kernel) {
        kernel<<<x.size(0), 256, 0, stream>>>(x.data_ptr<float>(), scale.data_ptr<float>(), y.data_ptr<float>(),
                                              x.size(1), static_cast<float>(slope));
    };
    if (how == 1) go(rows<false, true, false>);
    else if (how == 2) go(rows<true, false, false>);
    else if (how == 3) go(rows<true, true, true>);
    else go(rows<true, true, false>);
    return y;
}
torch::Tensor nothing(torch::Tensor x) { return torch::zeros_like(x); }
torch::Tensor scalar(torch::Tensor x) { return torch::zeros({}, x.options()); }
torch::Tensor refuses(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 3, "x has ", x.dim(), " dimensions");
    return x;
}
"""
ANSWER = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
from kernels import CUDA

ext = load_inline(name="ext", cpp_sources="", cuda_sources=CUDA, functions=["run", "nothing", "scalar", "refuses"])


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
        self.slope = slope

    def forward(self, x):
        FORWARD
"""
RUN = "ext.run(x, self.scale, self.slope, {})"
ANSWERS = {
    "right": (f"return {RUN.format(0)}", "pass", ""),
    "contiguous": (f"return {RUN.format(0).replace('(x,', '(x.cuda().contiguous(),')}", "pass", ""),
    "copied": (f"return {RUN.format(0).replace('(x,', '(x.clone(),')}", "pass", ""),
    "no_sync": (f"return {RUN.format(1)}", "hazard", "with no synchronisation in between"),
    "tail": (f"return {RUN.format(2)}", "fail", "unwritten"),
    "writes_its_input": (f"return {RUN.format(3)}", "fail", "x"),
    "stream": (f"return {RUN.format(4)}", "build-error", "a stream of its own, and nobody waits"),
    "torch": ("return torch.softmax(x * self.scale, dim=1)", "build-error", "torch computes aten::mul"),
    "half_torch": (
        f"y = {RUN.format(0)}; return y * 1.0",
        "build-error",
        "torch computes aten::mul, and what it computes is not the answer's: only launches are judged (answer.py:",
    ),
    "returns_its_input": (f"{RUN.format(0)}; return x", "build-error", "returns x for out: what it was given"),
    "another_shape": (f"return {RUN.format(0)}[:1]", "build-error", "it is torch.float32 of (3, 300)"),
    "a_number": ("return ext.scalar(x)", "build-error", "returns torch.float32 of () for out"),
    "nothing_written": (f"{RUN.format(0)}; return torch.empty_like(x)", "fail", "unwritten"),
    "zeros": ("return ext.nothing(x)", "fail", "cosine"),
    "kept": (
        f"k = getattr(self, 'kept', None); self.kept = {RUN.format(0)} if k is None else k; return self.kept",
        "build-error",
        "second call launches nothing",
    ),
    "throws": ("return ext.refuses(x)", "build-error", "x has 2 dimensions"),
    "weight_of_its_own": (
        "w = self.scale.data.exp() if False else torch.empty(x.shape[1]); return ext.run(x, w, self.slope, 0)",
        "fail",
        "cosine",
    ),
}


def judged_answer(root: Path, forward: str, more: str = "") -> Verdict:
    (root / "problem.py").write_text(PROBLEM)
    (root / "kernels.py").write_text(f"CUDA = r'''{CUDA}'''\n")
    (root / "answer.py").write_text(ANSWER.replace("FORWARD", forward) + more)
    members = '    problem = "problem.py"\n    source = "answer.py"\n'
    (root / "fmha_kernels.py").write_text(f"from fmha import KernelBench\n\n\nclass Ours(KernelBench):\n{members}")
    return judged(root, "fmha_kernels.py:Ours", "ours", {"rows": 3, "columns": 300})


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_judged_by_what_it_launches(tmp_path: Path, name: str) -> None:
    forward, status, words = ANSWERS[name]
    found = judged_answer(tmp_path, forward)
    assert found.status == status, found
    assert words in found.words


def test_an_answer_that_brings_the_reference_is_red(tmp_path: Path) -> None:
    more = "\nimport problem\nModelNew = problem.Model\n"
    found = judged_answer(tmp_path, "return x", more)
    assert found.status == "build-error"
    assert "torch computes aten::" in found.words


TWICE_PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 1.0


n = 4096


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
TWICE = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = '''
__global__ void NAME(const float* x, float* y, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = x[at] * FACTOR;
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    NAME<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
'''
halves = load_inline(name="a", cuda_sources=CUDA.replace("NAME", "halves").replace("FACTOR", "0.5f"), functions="run")
doubles = load_inline(name="b", cuda_sources=CUDA.replace("NAME", "doubles").replace("FACTOR", "2.0f"), functions="run")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return doubles.run(halves.run(x))
"""


def test_two_extensions_of_an_answer_have_functions_of_their_own(tmp_path: Path) -> None:
    """Both have a `run`."""
    (tmp_path / "problem.py").write_text(TWICE_PROBLEM)
    (tmp_path / "answer.py").write_text(TWICE)
    members = '    problem = "problem.py"\n    source = "answer.py"\n'
    (tmp_path / "fmha_kernels.py").write_text(f"from fmha import KernelBench\n\n\nclass Two(KernelBench):\n{members}")
    found = judged(tmp_path, "fmha_kernels.py:Two", "two", {"n": 200})
    assert found.status == "pass", found


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)  # a fill beside a kernel of Triton's: two modules
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), BLOCK=128)
        return out
"""


@pytest.mark.triton
@pytest.mark.parametrize(("factor", "status"), [("1.0", "pass"), ("1.01", "fail")])
def test_an_answer_in_triton(tmp_path: Path, factor: str, status: str) -> None:
    pytest.importorskip("triton")
    (tmp_path / "problem.py").write_text(TWICE_PROBLEM)
    (tmp_path / "answer.py").write_text(TRITON.replace("FACTOR", factor))
    members = '    problem = "problem.py"\n    source = "answer.py"\n'
    (tmp_path / "fmha_kernels.py").write_text(f"from fmha import KernelBench\n\n\nclass One(KernelBench):\n{members}")
    assert judged(tmp_path, "fmha_kernels.py:One", "one", {"n": 200}).status == status


def test_a_definition_and_its_solution(tmp_path: Path) -> None:
    """flashinfer-bench's JSON, with a solution that is bound by torch and given its output."""
    reference = "import torch\n\ndef run(x, scale):\n    return (x.float() * scale.float()).to(torch.float16)\n"
    tensor = {"dtype": "float16"}
    definition = {
        "name": "scale_n200",
        "op_type": "scale",
        "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 200}},
        "inputs": {"x": {"shape": ["M", "N"], **tensor}, "scale": {"shape": ["N"], **tensor}},
        "outputs": {"y": {"shape": ["M", "N"], **tensor}},
        "reference": reference,
    }
    source = """#include <torch/extension.h>
__global__ void scale(const __half* x, const __half* s, __half* y, int n, int count) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = __hmul(x[at], s[at % n]);
}
void run(torch::Tensor x, torch::Tensor s, torch::Tensor y) {
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    const at::cuda::CUDAStream stream = at::cuda::getCurrentCUDAStream();
    const int count = x.sizes().slice(0, 1)[0] * x.sizes().slice(1)[0];
    scale<<<(count + 127) / 128, 128, 0, stream>>>(x.data_ptr<at::Half>(), s.data_ptr<at::Half>(),
                                                   y.data_ptr<at::Half>(), s.size(0), count);
}
"""
    spec = {"language": "cuda", "target_hardware": ["H100"], "entry_point": "kernel.cu::run", "binding": "torch"}
    solution = {"name": "ours", "definition": "scale_n200", "author": "us", "spec": spec}
    (tmp_path / "definition.json").write_text(json.dumps(definition))
    (tmp_path / "solution.json").write_text(
        json.dumps({**solution, "sources": [{"path": "kernel.cu", "content": source}]})
    )
    (tmp_path / "fmha_kernels.py").write_text(
        "from fmha import FlashInferBench\n\n\nclass Scale(FlashInferBench):\n"
        '    definition = "definition.json"\n    source = "solution.json"\n'
    )
    limits = Thresholds({"cosine": 0.9999, "relative_l2": 2e-3, "max_error": 1e-2})
    found = judged(tmp_path, "fmha_kernels.py:Scale", "scale", {"m": 5}, limits)
    assert found.status == "pass", found
    (tmp_path / "solution.json").write_text(
        json.dumps({**solution, "sources": [{"path": "kernel.cu", "content": source.replace("at % n", "0")}]})
    )
    assert judged(tmp_path, "fmha_kernels.py:Scale", "scale", {"m": 5}, limits).status == "fail"


STREAMS = """
#include <torch/extension.h>
__global__ void doubles(const float* x, float* y, int n) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) y[at] = 2 * x[at];
}
__global__ void halves(float* y, int n) {
    extern __shared__ float room[];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    room[threadIdx.x] = at < n ? y[at] : 0;
    if (at < n) y[at] = 0.5f * room[threadIdx.x];
}
torch::Tensor run(torch::Tensor x, int64_t how) {
    auto y = torch::empty_like(x);
    const int n = x.numel(), ctas = (n + 127) / 128, shared = how == 3 || how == 4 ? 64 << 10 : 512;
    cudaStream_t one, other;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEvent_t done;
    cudaEventCreate(&done);
    if (how == 2) cudaStreamWaitEvent(other, done, 0);  // which nobody has recorded yet
    doubles<<<ctas, 128, 0, one>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    if (how != 0) cudaEventRecord(done, one);
    if (how != 0 && how != 2) cudaStreamWaitEvent(other, done, 0);
    if (how == 4) cudaFuncSetAttribute(halves, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    halves<<<ctas, 128, shared, other>>>(y.data_ptr<float>(), n);
    cudaDeviceSynchronize();
    return y;
}
"""


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        pytest.param(0, "hazard", "stream 1 writes: no event", id="nothing between"),
        pytest.param(1, "pass", "", id="an event between"),
        pytest.param(2, "hazard", "stream 1", id="an event recorded too late"),
        pytest.param(
            3, "build-error", "65536 bytes of dynamic shared memory is refused, 49152 are allowed", id="unasked"
        ),
        pytest.param(4, "pass", "", id="asked for"),
    ],
)
def test_streams_and_shared_memory_are_as_the_host_code_has_them(
    tmp_path: Path, how: int, status: str, words: str
) -> None:
    (tmp_path / "problem.py").write_text(TWICE_PROBLEM)
    (tmp_path / "answer.py").write_text(
        "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
        f"ext = load_inline(name='s', cuda_sources=r'''{STREAMS}''', functions='run')\n\n\n"
        f"class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return ext.run(x, {how})\n"
    )
    members = '    problem = "problem.py"\n    source = "answer.py"\n'
    (tmp_path / "fmha_kernels.py").write_text(f"from fmha import KernelBench\n\n\nclass Two(KernelBench):\n{members}")
    found = judged(tmp_path, "fmha_kernels.py:Two", "two", {"n": 200})
    assert found.status == status, found
    assert words in found.words


def test_a_header_is_part_of_what_was_compiled(tmp_path: Path) -> None:
    """In one process, and in the digest that a build is kept by."""
    (tmp_path / "answer.py").write_text("")
    (tmp_path / "factor.h").write_text('#include "deeper.h"\n')
    digests = []
    for factor in ("1.0f", "2.0f"):
        (tmp_path / "deeper.h").write_text(f"#define FACTOR {factor}\n")
        extensions = Extensions("sm_90a", tmp_path / "answer.py", tmp_path)
        text = "#include <factor.h>\n__global__ void scale(float* y) { *y = FACTOR; }\n"
        extensions.load_inline(cuda_sources=text, extra_include_paths=[str(tmp_path)])
        digests.append((extensions.read, "1073741824" in extensions.ptx[0] or "0f40000000" in extensions.ptx[0]))
    assert digests[0][0] != digests[1][0]
    assert [found for _, found in digests] == [False, True]
