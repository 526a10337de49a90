"""The tensors of fmha.attention, checked: what a call is given, and the call that they and the options make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from fmha.harness.attention import values
from fmha.harness.attention.given import (
    ARGUMENTS,
    FLOATS,
    NAMES,
    SPARSE,
    AttentionArguments,
    Sparse,
    Tensors,
    parts,
)
from fmha.harness.attention.options import PAGE, check_options, scale_of, window_of
from fmha.harness.judge.configuration import PAGE_SIZES
from fmha.harness.kernel_side.launch import Call
from fmha.harness.worker.devices.calls import ALIGNMENT

MOST_ROWS = 2**31 - 1  # of packed tensors, and row tiles of a call: what an int32 holds
MOST_PAGED = 2**31 - 256  # keys that a block table has room for: kernels count to the end of a tile, 128 at most
LEAST_TILE = 64  # rows: no kernel has smaller row tiles
MOST_PLANES = 65535  # K/V heads of all batch entries: a grid's z
STRIDED = ("q", "k", "v")  # what TMA reads, and so may have gaps
STRIDE_ELEMENTS = 8  # of bf16 in the 16 bytes that TMA's strides are multiples of

_FLOATS = tuple(NAMES.index(name) for name in FLOATS)


@dataclass(frozen=True, slots=True)
class CheckedArguments:
    """Tensors by FmhaParams' names, without those that are absent or have no element; and the call, with one split."""

    tensors: dict[str, torch.Tensor]
    call: Call


def check(of: AttentionArguments) -> CheckedArguments:
    """A call's arguments, checked.

    TypeError for what is no tensor or has the wrong dtype, ValueError for anything else, NotImplementedError for what
    no kernel does; the message names the argument, what it is and what it should be. Values are looked at where
    fmha.harness.attention.values says.
    """
    check_options(of)
    q, k, v, sparse = of.q, of.k, of.v, of.sparse
    sizes: dict[str, Any] = dict(_queries(q, of.cu_seqlens_q, of.max_seqlen_q))
    keys = _key_dimensions(k, of.block_table, of.cu_seqlens_k)
    _tensor("k", k, torch.bfloat16, keys, sizes)
    sizes |= dict(zip(keys, k.shape, strict=True))
    if of.block_table is not None:
        _pages(of.block_table, sizes)
    if of.cu_seqlens_k is not None:
        _packed_keys(of.cu_seqlens_k, of.max_seqlen_k, sizes)
    elif of.max_seqlen_k is not None:
        raise ValueError("max_seqlen_k: is for packed keys, with cu_seqlens_k")
    for name, size, most in (("q", "t", MOST_ROWS), ("k", "s_k", MOST_PAGED)):
        if sizes[size] > most:
            raise ValueError(f"{name}: expected at most {most} rows of an entry, got {sizes[size]}")
    _kv_heads(sizes, sparse)
    _row_tiles(sizes)
    _scattered_alone(sizes, of.kv_lens, sparse)
    if sparse is not None:
        sizes |= _sparse(sparse, sizes, shared_kv=v is None)
    given = {name: getattr(of, name) for name in NAMES if name not in SPARSE} | dict(
        zip(SPARSE, parts(sparse), strict=True)
    )
    _tensor("v", v, torch.bfloat16, keys, sizes)
    for name, said in ARGUMENTS.items():
        if said.dtype is not None and said.shape:
            _tensor(name, given[name], said.dtype, said.shape, sizes)
    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q: expected a tensor on a GPU or on the CPU, got one on {q.device}")
    for name, tensor in given.items():
        if tensor is not None and tensor.device != q.device:
            raise ValueError(f"{name}: is on {tensor.device}, q on {q.device}")
    left, right = window_of(of.causal, of.window)
    call = Call(
        **sizes,
        shared_kv=v is None,
        window_left=left,
        window_right=right,
        scale=scale_of(of.scale, sizes["head_dim"]),
        normalise=of.normalise,
        output_bf16=of.output_dtype == torch.bfloat16,
        q_strides=_strides(q, "total_q" in sizes),
        k_strides=_strides(k, "total_k" in sizes),
        v_strides=None if v is None else _strides(v, "total_k" in sizes),
    )
    if sparse is not None and call.by_head:
        raise ValueError(f"q: expected a contiguous tensor beside a sparse branch, got strides {q.stride()}")
    arguments = CheckedArguments(
        {name: item for name, item in given.items() if item is not None and item.numel()}, call
    )
    if not q.is_cuda:  # of a GPU's a plan asks for each call
        values.check_values(arguments.tensors, call)
    return arguments


def refuse_lost_gradient(tensors: Tensors) -> None:
    """NotImplementedError where a tensor needs a gradient, which nobody would compute. Of what is no tensor the checks
    say so."""
    for place in _FLOATS:  # at each call
        tensor = tensors[place]
        if tensor is not None and getattr(tensor, "requires_grad", False):
            name = _named(place)
            raise NotImplementedError(
                f"{name}: requires a gradient, which would be lost: no kernel has a backward pass yet; "
                f"call under torch.no_grad(), or pass {name}.detach()"
            )


def refuse_lost_tangent(tensors: Tensors) -> None:
    """The same of forward-mode differentiation."""
    for place in _FLOATS:
        tensor = tensors[place]
        if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(
                f"{_named(place)}: has a tangent, which would be lost: no kernel has a derivative yet; pass "
                "its primal, of torch.autograd.forward_ad.unpack_dual"
            )


def _named(place: int) -> str:
    """A call's tensor as the caller knows it."""
    return NAMES[place].replace("sparse_", "sparse.")


def _queries(q: torch.Tensor, cu_seqlens: torch.Tensor | None, longest: int | None) -> dict[str, int]:
    """The sizes that q says, batched or packed."""
    if cu_seqlens is None:
        if longest is not None:
            raise ValueError("max_seqlen_q: is for packed queries, with cu_seqlens_q")
        names: tuple[str, ...] = ("batch", "t", "heads", "head_dim")
        _tensor("q", q, torch.bfloat16, names, {})
        sizes = dict(zip(names, q.shape, strict=True))
    else:
        names = ("total_q", "heads", "head_dim")
        _tensor("q", q, torch.bfloat16, names, {})
        sizes = dict(zip(names, q.shape, strict=True))
        sizes |= _packed("q", cu_seqlens, longest, sizes["total_q"], {})
        sizes["t"] = sizes.pop("longest")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"q: {name} must be at least 1, shape is {list(q.shape)}")
    return sizes


def _packed(
    name: str, cu_seqlens: torch.Tensor, longest: int | None, total: int, sizes: dict[str, int]
) -> dict[str, int]:
    """`batch` and `longest` of what is packed; `total` are its rows, which no entry has more of."""
    said = f"cu_seqlens_{name}"
    rows = {"batch + 1": sizes["batch"] + 1} if "batch" in sizes else {}
    _tensor(said, cu_seqlens, torch.int32, ("batch + 1",), rows)
    if cu_seqlens.numel() < 2:
        raise ValueError(f"{said}: expected at least 2 values, got {cu_seqlens.numel()}")
    if longest is None:
        raise TypeError(f"max_seqlen_{name}: expected an int with {said}, got None")
    if longest < (1 if name == "q" else 0):
        raise ValueError(f"max_seqlen_{name}: expected at least {1 if name == 'q' else 0}, got {longest}")
    if total > MOST_ROWS:
        raise ValueError(f"{name}: expected at most {MOST_ROWS} packed rows, got {total}")
    return {"batch": cu_seqlens.numel() - 1, "longest": min(longest, total)}


def _key_dimensions(k: Any, block_table: Any, cu_seqlens: Any) -> tuple[str, ...]:
    """What the dimensions of k and v are; only batched and paged ones may be without one of heads."""
    if block_table is not None and cu_seqlens is not None:
        raise ValueError("block_table: is not for packed keys, with cu_seqlens_k; pages have kv_lens")
    rows: tuple[str, ...] = ("batch", "s_k")
    if cu_seqlens is not None:
        rows = ("total_k",)
    elif block_table is not None:
        rows = ("pages", "page_size")
    without = isinstance(k, torch.Tensor) and k.dim() == 3 and len(rows) == 2
    return (*rows, "head_dim") if without else (*rows, "kv_heads", "head_dim")


def _pages(block_table: torch.Tensor, sizes: dict[str, int]) -> None:
    """Checks pages and their table, and adds s_k, what a row of it has room for."""
    if sizes["page_size"] not in PAGE_SIZES:
        raise ValueError(f"k: expected pages of {', '.join(map(str, PAGE_SIZES))} rows, got {sizes['page_size']}")
    if sizes["pages"] < 1:
        raise ValueError("k: expected at least 1 page, got none")
    _tensor("block_table", block_table, torch.int32, ("batch", "pages an entry"), sizes)
    if block_table.shape[1] < 1:
        raise ValueError("block_table: expected at least 1 page an entry, got 0")
    sizes["s_k"] = block_table.shape[1] * sizes["page_size"]
    if sizes["s_k"] > MOST_PAGED:
        raise ValueError(f"block_table: expected room for at most {MOST_PAGED} keys, got {sizes['s_k']}")


def _packed_keys(cu_seqlens: torch.Tensor, longest: int | None, sizes: dict[str, int]) -> None:
    sizes |= {"s_k": _packed("k", cu_seqlens, longest, sizes["total_k"], sizes)["longest"]}


def _row_tiles(sizes: dict[str, int]) -> None:
    """ValueError for more row tiles than kernels count, which only packed queries can have: a tensor of as many rows
    fits no memory."""
    kv_heads = sizes.get("kv_heads", 1)
    tiles = -(-sizes["t"] * (sizes["heads"] // kv_heads) // LEAST_TILE) * sizes["batch"] * kv_heads
    if tiles > MOST_ROWS:
        entries = f"{sizes['batch']} entries of up to {sizes['t']} queries"
        raise ValueError(f"cu_seqlens_q: {entries} are {tiles} row tiles, expected at most {MOST_ROWS}; pack fewer")


def _scattered_alone(sizes: dict[str, int], kv_lens: Any, sparse: Any) -> None:
    """ValueError for what does not go with pages or packed sequences."""
    scattered = [name for name in ("pages", "total_q", "total_k") if name in sizes]
    if scattered and sparse is not None:
        raise ValueError("sparse: is not for K and V in pages, nor for packed queries or keys")
    if "total_k" in sizes and kv_lens is not None:
        raise ValueError("kv_lens: is not for packed keys, whose lengths are in cu_seqlens_k")


def _sparse(sparse: Sparse, sizes: dict[str, int], *, shared_kv: bool) -> dict[str, int]:
    rows = ("batch", "s_sparse", "head_dim")
    _tensor("sparse.k", sparse.k, torch.bfloat16, rows, sizes)
    sizes = sizes | {"s_sparse": sparse.k.shape[1]}
    _tensor("sparse.v", sparse.v, torch.bfloat16, rows, sizes)
    if (sparse.v is None) != shared_kv:
        here, there = ("absent", "given") if sparse.v is None else ("given", "absent")
        raise ValueError(f"sparse.v: is {here} while v is {there}; both branches share K and V or neither does")
    _tensor("sparse.indices", sparse.indices, torch.int32, ("batch", "t", "topk"), sizes)
    topk = sparse.indices.shape[2]
    _tensor("sparse.lens", sparse.lens, torch.int32, ("batch", "t"), sizes)
    return {"s_sparse": sizes["s_sparse"], "topk": topk} if topk else {}


def _tensor(name: str, tensor: Any, dtype: torch.dtype, shape: Sequence[str], sizes: dict[str, int]) -> None:
    """Checks an argument, which may be None unless every call needs it; `sizes` are those that are known already."""
    if tensor is None and name not in ("q", "k", "sparse.k", "sparse.indices"):
        return
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor of {dtype}, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got {tensor.layout}")
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        raise NotImplementedError(
            f"{name}: no kernel reads {tensor.dtype} yet; pass {name}.to({dtype}), times its scale where it has one. "
            f"{PAGE} says what FP8 would take"
        )
    if tensor.dtype != dtype:
        raise TypeError(f"{name}: expected {dtype}, got {tensor.dtype}")
    wanted = [sizes.get(size, size) for size in shape]
    fits = tensor.dim() == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(wanted, tensor.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{name}: expected shape [{', '.join(map(str, wanted))}], got {list(tensor.shape)}")
    if name in STRIDED:
        _reachable(name, tensor)
    elif not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {tensor.stride()}; call .contiguous()")
    if tensor.numel() and tensor.data_ptr() % ALIGNMENT:
        raise ValueError(misaligned(name, tensor.data_ptr()))


def _kv_heads(sizes: dict[str, int], sparse: Sparse | None) -> None:
    """Checks the number of K/V heads, where k has a dimension of them."""
    kv_heads, heads = sizes.get("kv_heads", 1), sizes["heads"]
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"k: expected K/V heads that divide the {heads} heads of q, got {kv_heads}")
    if kv_heads * sizes["batch"] > MOST_PLANES:
        raise ValueError(f"k: expected at most {MOST_PLANES} K/V heads in all, got {kv_heads * sizes['batch']}")
    if kv_heads > 1 and sparse is not None:
        raise ValueError(f"sparse: is for one K/V head, k has {kv_heads}; fold them into the batch")


def _reachable(name: str, tensor: torch.Tensor) -> None:
    """ValueError for strides that TMA cannot go by."""
    if tensor.is_contiguous():
        return
    if tensor.stride(-1) != 1:
        raise ValueError(
            f"{name}: expected the elements of a row side by side, got strides {tensor.stride()}; call .contiguous()"
        )
    if any(stride % STRIDE_ELEMENTS for stride in tensor.stride()[:-1]):
        wanted = f"strides of multiples of {STRIDE_ELEMENTS} elements"
        raise ValueError(f"{name}: expected {wanted}, got {tensor.stride()}; call .contiguous()")


def _strides(tensor: torch.Tensor, packed: bool) -> tuple[int, ...] | None:
    """From one batch entry, row and head to the next, as Call has them; None of a contiguous tensor. A packed one is
    one entry. Along a dimension of one element no step is taken, and torch's may be any number."""
    if tensor.is_contiguous():
        return None
    strides = list(tensor.stride())
    for d in range(tensor.dim() - 2, -1, -1):
        if tensor.shape[d] == 1:
            strides[d] = strides[d + 1] * tensor.shape[d + 1]
    if packed:
        return (tensor.shape[0] * strides[0], *strides[:-1])
    return tuple(strides[:-1]) if tensor.dim() == 4 else (*strides[:-1], tensor.shape[-1])


def misaligned(name: str, address: int) -> str:
    """What is said of a tensor that TMA cannot read."""
    return f"{name}: expected memory aligned to {ALIGNMENT} bytes, got {address:#x}; call .clone()"
