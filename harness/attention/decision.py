"""Which kernel runs a call, in how many splits: what is decided once for each set of shapes and options."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Literal

import torch

from fmha.harness import account, project
from fmha.harness.attention.arguments import CheckedArguments
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import InfrastructureError
from fmha.harness.judge.configuration import UNLIMITED, Configuration, Packed, PathChoice
from fmha.harness.kernel_side.choice import ARCH, cheapest, division_of, few_queries, mean_of, rows_of_packed
from fmha.harness.kernel_side.launch import Call, choose_splits
from fmha.harness.kernel_side.price import MULTIPROCESSORS
from fmha.harness.kernel_side.variants import VARIANTS, variant_for
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices import cuda

BUILD_SECONDS = 600.0
EMULATED = "sm_100a"
ROW_UNIT = 8  # elements of bf16 in the 16 bytes that rows are multiples of, for TMA


def decide(
    arguments: CheckedArguments, splits: int | None, p_path: PathChoice, where: torch.device
) -> tuple[Variant, Call]:
    """The kernel, and the call with what it decides. NotImplementedError where there is none."""
    arch = cuda.architecture(where.index) if where.type == "cuda" else EMULATED
    call = _widened(arguments.call, arch)
    ragged = "kv_lens" in arguments.tensors or call.total_k is not None
    if splits is None and (call.window_left is None or call.window_right is None):  # else the window decides, not s_k
        splits, balance = division_of(arch, call.planes, call.by_head, ragged, call.total_k)
        call = dataclasses.replace(call, balance=balance)
    variant = _variant(call, arguments, splits or 1, p_path, arch)
    if splits is None:
        # By sizes alone, so that a call has the same bits on every Hopper GPU, and planned by compiled code or here.
        most = MULTIPROCESSORS if arch == ARCH else _multiprocessors(where)
        splits = choose_splits(variant, call, most) if variant.combine else 1
    return variant, dataclasses.replace(call, splits=splits)


@functools.cache
def artifact(variant: Variant, kind: Literal["ptx", "cubin"]) -> Path:
    """The compiled kernel, built or from the build cache of the sources, once a process."""
    root = project.sources()
    if not (root / variant.source).is_file():
        raise InfrastructureError(
            f"has no {variant.source}", where=str(root), next_step="run from a checkout, where the kernels' sources are"
        )
    (result,) = build_variants(root, [variant], account.folder("builds"), BUILD_SECONDS, 1, lambda _: None)
    if result.error is not None:
        raise InfrastructureError(f"{variant.name} does not build: {result.error}")
    return Path(result.ptx if kind == "ptx" else result.cubin)


def _widened(call: Call, arch: str) -> Call:
    """The call of the next head_dim that there is a kernel of, whose rows end with zeros."""
    head_dims, own = _head_dims(arch), call.head_dim
    wider = next((head_dim for head_dim in head_dims if head_dim >= own), None)
    if wider is None or own % ROW_UNIT:
        most = head_dims[-1] if head_dims else 0
        raise NotImplementedError(
            f"no kernel for head_dim {own} on {arch} yet, expected a multiple of {ROW_UNIT} up to {most}"
            if most
            else f"no kernel for {arch} yet, a GPU of compute capability 9.0 or 10.0 is needed"
        )
    return call if wider == own else dataclasses.replace(call, head_dim=wider, width=own)


@functools.cache
def _head_dims(arch: str) -> tuple[int, ...]:
    """Those that kernels are compiled for."""
    return tuple(sorted({variant.head_dim or 0 for variant in VARIANTS if variant.arch == arch}))


@functools.cache
def _multiprocessors(where: torch.device) -> int:
    if where.type == "cuda":
        return cuda.multiprocessors(where.index)
    from fmha.harness.worker.devices.emulator_device import EmulatorDevice  # not wanted where there is a GPU

    return EmulatorDevice.multiprocessors


def _variant(call: Call, arguments: CheckedArguments, splits: int, p_path: PathChoice, arch: str) -> Variant:
    tensors = arguments.tensors
    left, right = (UNLIMITED if side is None else side for side in (call.window_left, call.window_right))
    chosen = variant_for(
        Configuration(
            head_dim=call.head_dim,
            t=call.t,
            s_k=call.s_k,
            batch=_entries(call),
            mask="none" if left == right == UNLIMITED else "band",
            left=left,
            right=right,
            heads=call.heads,
            kv="shared" if call.shared_kv else "separate",
            kv_lens="ragged" if "kv_lens" in tensors else "full",
            topk=call.topk,
            s_sparse=call.s_sparse,
            sink="finite" if "sink" in tensors else "none",
            kv_heads=call.kv_heads,
            layout="bshd" if call.q_strides is None else "fused",
            page_size=call.page_size,
            packed=_packed(call),
            q_lens="ragged" if call.total_q is not None and few_queries(call, call.total_q) else "full",
            output="bf16" if call.output_bf16 else "fp32" if call.normalise else "unnormalised",
            splits=splits,
            p_path=p_path,
            merge="balanced" if call.balance else "auto",
        ),
        arch,
        _rows_by_rule(call, splits, "kv_lens" in tensors, arch),
    )
    if isinstance(chosen, str):
        raise NotImplementedError(chosen)
    return chosen


def _rows_by_rule(call: Call, splits: int, ragged: bool, arch: str) -> int | None:
    """What choice has where it knows more than a configuration says: of splits and how long entries are in the mean,
    and of packed queries."""
    if call.balance:
        return call.balance.rows
    if arch != ARCH:
        return None
    if splits > 1 and not call.topk:
        planes = call.planes
        return cheapest(
            planes, call.by_head, mean_of(planes, ragged or call.total_k is not None, call.total_k), splits
        )[0]
    if call.total_q is None or splits > 1:
        return None
    keys = call.batch * call.s_k if call.total_k is None else call.total_k
    windowed = call.window_left is not None or call.window_right is not None
    return rows_of_packed(call, call.total_q, keys, windowed)


def _entries(call: Call) -> int:
    """Batch entries; of packed queries as many as would have them if each had as many as the longest."""
    return call.batch if call.total_q is None else max(1, -(-call.total_q // call.t))


def _packed(call: Call) -> Packed:
    """What of a call is packed, as configurations say it."""
    if call.total_q is None:
        return "none" if call.total_k is None else "k"
    return "q" if call.total_k is None else "both"
