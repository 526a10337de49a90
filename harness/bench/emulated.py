"""Trials at small sizes on the emulator: that each can be launched, is right and shows no hazard."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.harness.bench.check_numbers import verdict
from fmha.harness.bench.problem import Problem, draw, pack, reference
from fmha.harness.bench.shapes import Shape, combine_launch
from fmha.harness.bench.trials import Trial
from fmha.harness.bench.variants import ALL
from fmha.harness.worker.devices.base import LaunchConfig
from fmha.harness.worker.devices.emulator import EmulatorDevice
from fmha.harness.worker.launch import tensor_map
from fmha.harness.worker.nvcc import find_nvcc
from fmha.harness.worker.params import COMBINE_THREADS
from fmha.harness.worker.protocol import FindingRecord

KERNELS = Path(__file__).resolve().parents[2] / "kernel"
POISON = np.uint32(0x7FEDBEEF)


def small(trial: Trial) -> Problem:
    """The same launch with a tile or two a split, a batch entry or two."""
    p, keys = trial.problem, ALL[trial.shape].keys
    if trial.long:
        return replace(p, t=200, s_k=200, batch=2)
    return replace(p, s_k=p.splits * keys + keys // 2, batch=min(p.batch, 2))


def attempt(trial: Trial) -> dict[str, Any]:
    """What `fmha.harness.bench.tried` keeps of a trial, without times; RuntimeError for a wrong number or a hazard."""
    p, shape = small(trial), ALL[trial.shape]
    inputs = draw(p)
    out, findings = _run(shape, p, inputs)
    good, error, _ = verdict(p, out, reference(p, inputs))
    if findings or not good:
        raise RuntimeError(f"{trial.describe()}: {findings[0] if findings else f'relative error {error:.1e}'} of {p}")
    return {"relative_error": error}


@functools.cache
def _ptx(defines: tuple[str, ...]) -> Path:
    target = Path(tempfile.mkdtemp(prefix="fmha-trial-")) / "kernel.ptx"
    command = [str(find_nvcc().path), "-std=c++17", "-O3", "-lineinfo", "-arch=sm_90a", "-ptx", "-o", str(target)]
    command += [f"-I{KERNELS / 'include'}", f"-I{KERNELS}", *(f"-D{d}" for d in defines)]
    subprocess.run([*command, str(KERNELS / "sm90" / "fmha_fwd.cu")], check=True)
    return target


def _run(shape: Shape, p: Problem, x: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    device = EmulatorDevice(0, "realistic")
    rows = (p.batch, p.t, p.heads)
    partial = (p.partials, *rows)
    sizes: dict[str, tuple[int, ...]] = {"o": (*rows, p.head_dim)}
    sizes |= dict.fromkeys(("row_max", "row_sum", "lse"), rows)
    if p.partials > 1:
        sizes |= {"partial_o": (*partial, p.head_dim), "partial_max": partial, "partial_sum": partial}
    arrays = dict(x)
    for name, size in sizes.items():
        arrays[name] = np.full(int(np.prod(size)) // (2 if name == "o" and p.bf16 else 1), POISON)
    addresses = {}
    for name, data in arrays.items():
        addresses[name] = device.alloc(data.nbytes, name)
        device.upload(addresses[name], data)
    findings = launched(device, shape, p, addresses)
    out = {}
    for name in ("o", "row_max", "row_sum", "lse"):
        dtype = np.uint16 if name == "o" and p.bf16 else np.float32
        raw = device.download(addresses[name], int(np.prod(sizes[name])) * np.dtype(dtype).itemsize)
        out[name] = raw.view(dtype).reshape(sizes[name])
    return out, findings


def launched(
    device: EmulatorDevice, shape: Shape, p: Problem, addresses: Mapping[str, int], overlaps: bool = True
) -> list[FindingRecord]:
    """Forward and combine of `p` over device addresses by FmhaParams' names; the findings of both. `overlaps`: the
    forward kernel the grid before it, as fmha.harness.bench.gpu launches them."""
    pointers = dict(addresses)
    boxes = {"q": ((p.batch, p.t * p.heads, p.head_dim), shape.rows)}
    boxes |= dict.fromkeys(("k", "v") if not p.shared_kv else ("k",), ((p.batch, p.s_k, p.head_dim), shape.keys))
    maps = {n: device.encode_tensor_map(tensor_map(pointers.pop(n), *box)) for n, box in boxes.items()}
    module = device.load(_ptx(shape.defines))
    config = LaunchConfig(shape.grid(p), (shape.threads, 1, 1), shape.shared_bytes, (*p.cluster, 1), overlaps)
    packed = pack(p, p.splits, maps, pointers)
    findings = list(device.launch(module, f"fmha_fwd_sm90_hd{p.head_dim}", config, packed).findings)
    if p.partials > 1:
        combine, grid = combine_launch(p)
        config = LaunchConfig(grid, (COMBINE_THREADS, 1, 1), overlaps=True)
        findings += device.launch(module, combine, config, pack(p, p.partials, maps, pointers)).findings
    return findings
