"""What the driver refuses of a launch: its dimensions, its cluster, its shared memory, its size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fmha.emulator.decode import Decoded
from fmha.emulator.device.illegal_launch import LaunchError, UnmodelledError
from fmha.emulator.device.module import Dim3, Entry, Module

MAX_SHARED_BYTES = 232448  # a CTA's limit on sm_90 and sm_100: 227 KiB
SHARED_UNASKED = 49152  # what a launch may have of it with no permission
_PORTABLE_STATIC_SHARED = 49152
_STATIC_SHARED = {"sm_120a": 101376, "sm_121a": 101376}  # as ptxas 13.0 has it
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_MAX_CLUSTER = 16  # more than 8 is non-portable, which a launch on this device opts into


def no_entry(module: Module, entry: str) -> LaunchError:
    """The error for a name that is none of the module's entries."""
    return LaunchError(f"no entry {entry!r}; the module has {', '.join(module.entries) or 'none'}")


def dim3(name: str, value: int | Sequence[int]) -> Dim3:
    """Three sizes, those that are left out 1. LaunchError for none or more than three."""
    dims = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(dims) <= 3:
        raise LaunchError(f"{name} has {len(dims)} dimensions; one to three are allowed")
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


def cluster_dims(info: Entry, grid: Dim3, cluster: Dim3 | None) -> Dim3:
    """The cluster dimensions of a launch, after the driver's checks."""
    required = info.required_cluster
    if cluster is None and required is None and info.explicit_cluster:
        raise LaunchError(f"{info.name} is declared .explicitcluster: the launch has to give cluster dimensions")
    dims = cluster or required or (1, 1, 1)
    if required and dims != required:
        raise LaunchError(f"cluster is {dims}; {info.name} requires {required}")
    size = dims[0] * dims[1] * dims[2]
    if min(dims) < 1 or size > _MAX_CLUSTER:
        raise LaunchError(f"cluster is {dims}; 1..{_MAX_CLUSTER} CTAs are allowed")
    if info.max_cluster is not None and size > info.max_cluster:
        raise LaunchError(f"cluster of {size} CTAs; {info.name} allows {info.max_cluster}")
    for axis, n, c in zip("xyz", grid, dims, strict=True):
        if n % c:
            raise LaunchError(f"grid.{axis} is {n}, no multiple of the cluster's {c}")
    return dims


def _static_shared(target: str) -> int:
    """The static shared memory that ptxas allows: all of a CTA's for a target of one architecture alone."""
    return _STATIC_SHARED.get(target, MAX_SHARED_BYTES if target.endswith("a") else _PORTABLE_STATIC_SHARED)


def check_launch(target: str, info: Entry, decoded: Decoded, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    """LaunchError for sizes that CUDA refuses, and for what the kernel's directives do not allow."""
    for name, value, limits in (("grid", grid, _MAX_GRID), ("block", block, _MAX_BLOCK)):
        for axis, n, limit in zip("xyz", value, limits, strict=True):
            if not 1 <= n <= limit:
                raise LaunchError(f"{name}.{axis} is {n}; 1..{limit} is allowed")
    threads = block[0] * block[1] * block[2]
    limit = info.max_threads or 1024
    if threads > min(limit, 1024):
        raise LaunchError(f"{threads} threads a CTA; {info.name} allows {min(limit, 1024)}")
    if info.required_block and tuple(block) != info.required_block:
        raise LaunchError(f"block is {block}; {info.name} requires {info.required_block}")
    if shared_bytes < 0 or decoded.shared_static + shared_bytes > MAX_SHARED_BYTES:
        asked = f"{decoded.shared_static} static and {shared_bytes} dynamic bytes"
        raise LaunchError(f"{asked} of shared memory; a CTA has {MAX_SHARED_BYTES}")
    if decoded.shared_static > _static_shared(target):
        asked = f"{decoded.shared_static} bytes of static shared memory"
        raise LaunchError(f"{asked}; {_static_shared(target)} are allowed for {target}")


def check_size(grid: Dim3, block: Dim3, most: int) -> None:
    """A warp executes one instruction at least: some grids could not end within the limit."""
    warps = math.prod(grid) * -(-math.prod(block) // 32)
    if warps > most:
        raise UnmodelledError(f"{warps:,} warps; a launch may execute {most:,} instructions: launch a smaller grid")
