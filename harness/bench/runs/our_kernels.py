"""Our kernels as calls over torch tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fmha.harness.bench.shapes.launch_problem import BuiltKernel, launch, output_sizes
from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.worker.devices.cuda import CudaDevice


class TorchCall:
    """A launch over torch tensors of its own, on torch's current stream."""

    def __init__(
        self,
        device: CudaDevice,
        kernel: BuiltKernel,
        p: Problem,
        tensors: Mapping[str, torch.Tensor],
        overlaps: bool = True,
    ) -> None:
        self.problem = p
        self.tensors = dict(tensors)
        self.out = {n: torch.empty(b, dtype=torch.uint8, device="cuda") for n, b in output_sizes(p).items()}
        self.drawn = torch.zeros(1, dtype=torch.int32, device="cuda")
        pointers = {n: t.data_ptr() for n, t in (self.tensors | self.out | {"drawn": self.drawn}).items()}
        self._launch = device.keep(lambda: launch(device, kernel, p, pointers, overlaps))

    def __call__(self) -> None:
        self._launch(torch.cuda.current_stream().cuda_stream)

    def result(self) -> torch.Tensor:
        """O, [batch, t, heads, head_dim]."""
        p = self.problem
        dtype = torch.bfloat16 if p.bf16 else torch.float32
        return self.out["o"].view(dtype).view(p.batch, p.t, p.heads, p.head_dim)


def inputs(p: Problem, seed: int) -> dict[str, torch.Tensor]:
    """Standard normal inputs on the GPU, equal for equal seeds."""
    g = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=g)

    tensors = {"q": normal(p.batch, p.t, p.heads, p.head_dim), "k": normal(p.batch, p.s_k, p.head_dim)}
    if not p.shared_kv:
        tensors["v"] = normal(p.batch, p.s_k, p.head_dim)
    return tensors


def error(call: TorchCall) -> float:
    """Relative L2 error of the first two batch entries against float64; NaN counts."""
    p, x = call.problem, call.tensors
    for t in call.out.values():
        t.fill_(0xFF)
    call()
    batch = min(p.batch, 2)
    q = x["q"][:batch].double().reshape(batch, p.t * p.heads, p.head_dim)
    k, v = x["k"][:batch].double(), x.get("v", x["k"])[:batch].double()
    ref = torch.softmax(q @ k.mT * p.scale, -1) @ v
    return float((call.result()[:batch].double().reshape_as(ref) - ref).norm() / ref.norm())
