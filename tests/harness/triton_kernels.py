"""Kernels that test_scripts.py launches."""

# mypy: ignore-errors
# ruff: noqa: N803

import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + scale * y, mask=inside)


@triton.jit
def racy_sum(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.load(out_ptr) + tl.sum(x))  # an atomic addition would be right


@triton.jit
def matmul(a_desc, b_desc, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T; A and B come by descriptors of the host, C goes by one that the kernel makes."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, total)
    c_desc.store([m, n], total)


@triton.autotune(
    [triton.Config({"BLOCK": 128}, num_warps=64), triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], ["n"]
)
@triton.jit
def scaled(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def added(x, y):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), 2.0, BLOCK=256)
    return out


def summed(x):
    out = torch.zeros(1, device="cuda")
    racy_sum[(x.numel() // 128,)](x, out, BLOCK=128)
    return out
