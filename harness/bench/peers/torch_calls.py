"""What users pick instead (SDPA's backends, FlexAttention, a split-KV Triton kernel), and the machine's ceilings."""

from __future__ import annotations

import datetime
import itertools
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from fmha.harness.bench.peers.split_kv import split_kv

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]  # q, k, v: [batch, heads, rows, head_dim]
BACKENDS = {"flash_attention_2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def sdpa(name: str) -> Attention:
    """PyTorch's scaled_dot_product_attention by one backend."""

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[name]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return call


def flex() -> Attention:
    """FlexAttention, compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Attention = torch.compile(flex_attention, dynamic=False)
    return compiled


def triton_choices(head_dim: int, batch: int, s_k: int) -> Iterator[tuple[str, int, Attention]]:
    """Every configuration that is tried, with the heads of a block; those that do not fit raise when called."""
    many = [8, 16] if batch > 1 else [4, 8, 16]
    if head_dim == 512:
        shapes = [(64, 32, 8, 2), (32, 64, 8, 2), (64, 64, 8, 1), (32, 32, 4, 2)]
        many = [4, 8] if batch > 1 else [8, 16]
    elif head_dim == 256:
        shapes = [(128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 3)]
    else:
        shapes = [(128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (64, 128, 4, 2)]
    for splits, (bh, bn, warps, stages) in itertools.product(many, shapes):
        if splits * bn <= s_k:
            name = f"splits={splits} rows={bh} keys={bn} warps={warps} stages={stages}"
            yield name, bh, split_kv(splits, bh, bn, warps, stages)


def smi(fields: str) -> list[str]:
    """Fields that nvidia-smi tells of the first GPU."""
    text = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], check=True, capture_output=True, text=True
    ).stdout
    return [part.strip() for part in text.splitlines()[0].split(",")]


def environment() -> dict[str, Any]:
    """The GPU, its driver and torch's versions, for the record."""
    name, driver, power = smi("name,driver_version,power.limit")
    return {
        "gpu": name,
        "driver": driver,
        "power_limit": power,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def copy_bandwidth() -> float:
    """TB/s of a 2 GiB device-to-device copy, bytes read plus bytes written."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    seconds = _best(lambda: target.copy_(source))
    return float(2 * source.nbytes / seconds / 1e12)


def matmul_rate() -> float:
    """TFLOP/s of an 8192 x 8192 x 8192 bf16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return float(2 * 8192**3 / _best(lambda: a @ b) / 1e12)


def _best(call: Callable[[], Any]) -> float:
    """Median seconds of ten calls."""
    call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(10)]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return float(sorted(begin.elapsed_time(end) for begin, end in events)[5] / 1e3)
