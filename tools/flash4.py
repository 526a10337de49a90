"""FlashAttention-4's forward kernels for a B200 on the timing model, for tools.blackwell.

A Python of an environment with flash-attn-4 and torch compiles them by the package's own `_flash_attn_fwd`, with
tensors that have shapes and no data. It finds fmha's driver in the place of NVIDIA's (docs/use/programs.md). They
are launched here as the package's scheduler launches them, once in a small size whose output is held to attention in
float64, and then in the published sizes. CuTe DSL has a licence of its own (docs/use/scripts.md).
"""

from __future__ import annotations

import math
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fmha import emulator
from fmha.emulator import programs
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.judge.oracle.bf16 import from_bf16, round_to_bf16
from fmha.harness.see.lengths import numbers

GPU: Final = "b200"
HIDDEN: Final = 2048  # heads times head_dim
COMPILE: Final = """
import sys, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from flash_attn.cute.interface import _flash_attn_fwd
with FakeTensorMode():
    q, k, v = (torch.empty(2, 4096, 32, int(sys.argv[1]), dtype=torch.bfloat16, device="cuda") for _ in "qkv")
    _flash_attn_fwd(q, k, v, causal=sys.argv[2] == "causal", _arch=100)
"""
ENVIRONMENT: Final = {
    "CUTE_DSL_ARCH": "sm_100a",
    "CUTE_DSL_KEEP": "ptx",
    "FLASH_ATTENTION_ARCH": "sm_100",
    "FLASH_ATTENTION_NUM_SMS": "148",
}


@dataclass(frozen=True, slots=True)
class Flash4Kernel:
    """`ctas` share a tile of `ctas` x 256 rows; K and V come in boxes of `k_rows` and 128 rows a CTA."""

    head_dim: int
    ctas: int
    k_rows: int
    causal: bool = False


KERNELS: Final = (Flash4Kernel(64, 1, 128), Flash4Kernel(128, 2, 64))
CAUSAL: Final = (Flash4Kernel(64, 1, 128, True), Flash4Kernel(128, 1, 128, True))
_KEPT: Final = 50 << 20  # bytes of L2, by which the causal kernels' scheduler groups heads


def compiled(python: Path, head_dim: int, causal: bool = False) -> emulator.Module:
    """By the package itself; RuntimeError with what it said where it leaves no PTX."""
    with tempfile.TemporaryDirectory(prefix="fmha-flash4-") as folder:
        script = Path(folder, "compile.py")
        script.write_text(COMPILE)
        os.environ.update(ENVIRONMENT, CUTE_DSL_DUMP_DIR=folder)
        programs.run_program(
            (str(python), str(script), str(head_dim), "causal" if causal else "full"), programs.Options("sm_100a")
        )
        found = list(Path(folder).glob("*.ptx"))
        if len(found) != 1:
            raise RuntimeError(f"head_dim {head_dim}: {len(found)} PTX files in place of one; see above")
        return emulator.load_ptx(found[0])


def division(by: int) -> bytes:
    """cutlass::FastDivmod: quotients by a multiplication and two shifts (Granlund and Montgomery, figure 4.1)."""
    bits = (by - 1).bit_length()
    multiplier = (1 << 32) * ((1 << bits) - by) // by + 1
    return struct.pack("<IIBBxx", by, multiplier, min(bits, 1), max(bits - 1, 0))


class Flash4Call:
    """Operands of a kernel on a device, [batch, tokens, heads, head_dim] in bf16, and its launch."""

    def __init__(self, kernel: Flash4Kernel, module: emulator.Module, batch: int, tokens: int, heads: int) -> None:
        self.kernel, self.module, self.shape = kernel, module, (batch, tokens, heads, kernel.head_dim)

    def launch(self, device: emulator.Device, at: dict[str, int]) -> emulator.Report:
        """Launches FlashAttention-4's kernel on a device, with arrays at these addresses."""
        kernel, (batch, tokens, heads, dim) = self.kernel, self.shape
        size = struct.pack("<4I", tokens, dim, heads, batch)
        v_columns = min(64, dim // kernel.ctas)
        boxes = {"q": (64, 128), "k": (64, kernel.k_rows), "v": (v_columns, 128), "o": (64, 128)}
        maps = [self._map(at[name], box) for name, box in boxes.items()]
        blocks = -(-tokens // (256 * kernel.ctas))
        tiles = blocks * heads * batch
        scale = dim**-0.5 * math.log2(math.e)
        info = self.module.entries[(entry := next(iter(self.module.entries)))]
        layouts = (b"\0" * info.params[n].nbytes for n in (9, 10))
        args: list[bytes | int | float] = [
            *[size] * 4,
            *maps,
            scale,
            *layouts,
            *(self._longest_first(blocks) if kernel.causal else self._persistent(blocks)),
        ]
        args += [0] * (len(info.params) - len(args))
        grid = kernel.ctas * (tiles if kernel.causal else min(tiles, 148 // kernel.ctas))
        return device.launch(self.module, entry, grid, 512, args, 227 << 10, cluster=kernel.ctas)

    def _persistent(self, blocks: int) -> list[bytes | int | float]:
        """The parameters of its StaticPersistentTileScheduler."""
        batch, _, heads, _ = self.shape
        return [division(blocks), blocks, division(heads), 0, blocks * heads * batch]

    @property
    def _heads_together(self) -> int:
        """Of how many heads row tiles of one length follow one another, if there is a mask: a power of 2."""
        _, tokens, _, dim = self.shape
        return 1 << max(0, (_KEPT // (4 * tokens * dim)).bit_length() - 1)

    def _longest_first(self, blocks: int) -> list[bytes | int | float]:
        """The parameters of its SingleTileLPTScheduler, without splits."""
        batch, _, heads, _ = self.shape
        together, every = self._heads_together, heads * batch
        left = max(every % together, 1)
        return [
            *(blocks * every, 1, blocks, heads, batch, together),
            *(division(heads), heads, division(together), together),
            *(division(together * blocks), together * blocks, division(left), left),
            *(every // together, division(1), 1),
        ]

    @property
    def work(self) -> list[float]:
        """Of a causal launch: how many blocks of keys each cluster has, in the order of the grid."""
        batch, tokens, heads, _ = self.shape
        blocks = -(-tokens // (256 * self.kernel.ctas))
        groups = [self._heads_together] * (heads * batch // self._heads_together)
        if left := heads * batch % self._heads_together:
            groups.append(left)
        return [float(block + 1) for planes in groups for block in reversed(range(blocks)) for _ in range(planes)]

    def _map(self, address: int, box: tuple[int, int]) -> bytes:
        batch, tokens, heads, dim = self.shape
        return emulator.encode_tiled(
            dtype="bf16",
            address=address,
            global_dim=(dim, tokens, heads, batch),
            global_strides=(2 * heads * dim, 2 * dim, 2 * tokens * heads * dim),
            box_dim=(*box, 1, 1),
            swizzle="128B",
        )


def largest_error(kernel: Flash4Kernel, module: emulator.Module) -> float:
    """Of O at 2 x 600 tokens with 2 heads, against attention in float64; RuntimeError for a hazard."""
    call = Flash4Call(kernel, module, 2, 600, 2)
    device, at = emulator.Device(profile="lenient"), {}
    draw = np.random.default_rng(4)
    given = {name: round_to_bf16(draw.standard_normal(call.shape)) for name in "qkv"}
    for name in "qkvo":
        at[name] = device.alloc(2 * int(np.prod(call.shape)), name).address
        if name in given:
            device.write(at[name], given[name])
    report = call.launch(device, at)
    if report.findings:
        raise RuntimeError(f"head_dim {kernel.head_dim}: {report.findings[0]}")
    out = from_bf16(device.read(at["o"], 2 * int(np.prod(call.shape))).view(np.uint16)).reshape(call.shape)
    q, k, v = (from_bf16(given[name]).astype(np.float64).transpose(0, 2, 1, 3) for name in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) * kernel.head_dim**-0.5
    if kernel.causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    right = (weights / weights.sum(-1, keepdims=True)) @ v
    return float(np.abs(out - right.transpose(0, 2, 1, 3)).max())


def timing(kernel: Flash4Kernel, module: emulator.Module, batch: int, tokens: int, gpu: str = GPU) -> LaunchTiming:
    """The recording of a launch."""
    call = Flash4Call(kernel, module, batch, tokens, HIDDEN // kernel.head_dim)
    device = emulator.Device(checks=False, threads=1, timing=gpu, sampled=True)
    device.work = call.work if kernel.causal else ()
    count = int(np.prod(call.shape))
    at = {name: device.alloc(2 * count, name).address for name in "qkvo"}
    for k, name in enumerate("qkv"):
        device.write(at[name], numbers(count, k))
    report = call.launch(device, at)
    assert report.timing is not None
    return report.timing
