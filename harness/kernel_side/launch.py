"""Launches the kernels of one attention call on a device: tensor maps, parameters, forward, combine. Written once for
every device and for everyone who calls: the worker (fmha.harness.worker.launch.run_attention) and
fmha.harness.attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fmha.harness.contract.device import Device, Dim3, LaunchConfig, LaunchReport, LoadedModule, TensorMapSpec
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side import params
from fmha.harness.kernel_side.choice import (
    ARCH,
    Balance,
    combine_launch,
    ctas_per_sm,
    overlaps_grid_before,
    walkers,
)
from fmha.harness.kernel_side.cost import B200
from fmha.harness.kernel_side.variants import goes_through_row_tiles, knows_heads, rows_define, walks

BOX_ELEMENTS: Final = 64  # 128 bytes of bf16: one row of the swizzle pattern
SM100_MULTIPROCESSORS: Final = B200.multiprocessors  # one holds one CTA of a kernel that goes through row tiles
LEAST_TILES_A_SPLIT: Final = 4  # below, writing and combining partials costs more than the wait for more SMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Sizes and options of one call, as docs/understand/semantics.md has them; None for a window without a limit. A
    field that fmha_params.h has by the same name is the kernel's parameter."""

    head_dim: int  # the kernel's
    batch: int
    t: int
    heads: int
    s_k: int
    s_sparse: int = 0
    topk: int = 0
    shared_kv: bool = False
    window_left: int | None = None
    window_right: int | None = None
    scale: float
    normalise: bool = False
    output_bf16: bool = False
    splits: int = 1
    balance: Balance | None = None  # splits are balanced: not `splits` of each plane
    kv_heads: int = 1
    # Elements from one batch entry, row and head of a tensor to the next; None where it is contiguous.
    q_strides: Sequence[int] | None = None
    k_strides: Sequence[int] | None = None
    v_strides: Sequence[int] | None = None
    # Of K and V in pages: rows of one, and how many there are; s_k is what a row of the block table has room for. The
    # strides of k and v are then from one page, row and head to the next.
    page_size: int = 0
    pages: int = 0
    # Of packed queries and keys: rows of all batch entries together, where t and s_k are the most that one has.
    total_q: int | None = None
    total_k: int | None = None
    # Elements of a row of q, k and v in memory, where they are fewer than head_dim: TMA loads zeros in place of the
    # rest, which add nothing to a score, and columns of zeros to o.
    width: int | None = None

    @property
    def row_elements(self) -> int:
        """Of q, k and v in memory."""
        return self.width or self.head_dim

    @property
    def by_head(self) -> bool:
        """Whether a kernel must know K/V heads: a Q with gaps has rows of heads and queries apart as well, and what
        balances splits knows them."""
        return self.kv_heads > 1 or self.q_strides is not None or self.scattered or self.balance is not None

    @property
    def scattered(self) -> bool:
        """Whether a kernel must know pages and packed sequences."""
        return self.page_size > 0 or self.total_q is not None or self.total_k is not None

    @property
    def rows(self) -> tuple[int, ...]:
        """The dimensions of its outputs that say which query a row is of, and which head."""
        return (self.batch, self.t, self.heads) if self.total_q is None else (self.total_q, self.heads)

    @property
    def planes(self) -> Call:
        """As kernels see it: each K/V head as a batch entry, with the query heads that attend it."""
        return replace(self, batch=self.batch * self.kv_heads, heads=self.heads // self.kv_heads)

    @property
    def combines(self) -> bool:
        """Whether the combine kernel merges the splits."""
        return self.balance is not None or self.splits > 1

    @property
    def parts(self) -> int:
        """Partial results of balanced splits: one ends with each CTA, and one with each plane."""
        return self.balance.ctas + self.planes.batch if self.balance else 0

    @property
    def partial_elements(self) -> Mapping[str, int]:
        """32-bit elements of each buffer that passes partial results from the forward to the combine kernel."""
        if not self.combines:
            return {}
        planes = self.planes
        rows = (self.parts or self.splits * planes.batch) * planes.t * planes.heads
        shares = {"shares": 2 * min(planes.batch, self.balance.ctas)} if self.balance else {}
        return {"partial_o": rows * self.head_dim, "partial_max": rows, "partial_sum": rows} | shares


# The numbers of FmhaParams that a call has under the same name: what is added to both is passed.
_OF_A_CALL: Final = tuple(name for name in params.NUMBERS if hasattr(Call, name))


def launch_attention(
    device: Device, module: LoadedModule, variant: Variant, call: Call, addresses: Mapping[str, int]
) -> LaunchReport:
    """Runs `variant`, and its combine kernel when the call has splits.

    `addresses` are device addresses by FmhaParams' names, the tensors q, k, v, sparse_k and sparse_v among them; what
    is left out, or 0, is null. Without `drawn` each row tile has a CTA of its own. The report is that of both kernels.
    """
    planes = call.planes
    maps = _tensor_maps(device, variant, call, addresses)
    pointers: dict[str, Any] = {name: address for name, address in addresses.items() if name not in params.MAPS}
    numbers = {name: getattr(call, name) for name in _OF_A_CALL} | {
        "batch": planes.batch,
        "heads": planes.heads,
        "splits": 1 if call.balance else call.splits,
        "window_left": _bound(call.window_left),
        "window_right": _bound(call.window_right),
        "flags": params.flags_of(
            normalise=call.normalise,
            output_bf16=call.output_bf16,
            shared_kv=call.shared_kv,
            partial_f16=call.combines and params.partial_f16(call.head_dim, call.output_bf16),
            by_head=call.by_head,
            scattered=call.scattered,
        ),
        "query_box": math.prod(query_box(variant.arch, variant.shape.rows, planes.heads)),
        "key_box": key_box(variant.shape.keys, call.page_size),
        "part_tiles": call.balance.part_tiles if call.balance else 0,
    }
    packed = params.FmhaParams(**maps, **pointers, **numbers).pack()
    shape = variant.shape
    grid = forward_grid(variant, call, draws=bool(addresses.get("drawn")))
    overlaps = overlaps_grid_before(variant.arch, planes, call.splits, call.shared_kv)
    config = LaunchConfig(grid, (shape.threads, 1, 1), shape.shared_bytes, (shape.ctas, 1, 1), overlaps)
    report = device.launch(module, variant.entry, config, packed)
    if not call.combines:
        return report
    suffix, grid = combine_of(variant, call)
    config = LaunchConfig(grid, (params.COMBINE_THREADS, 1, 1), overlaps=True)
    combined = device.launch(module, variant.combine + suffix, config, packed)
    return sum_of((report, combined))


def combine_of(variant: Variant, call: Call) -> tuple[str, Dim3]:
    """What follows the entry's name of the combine kernel that merges the splits of a call, and its grid."""
    planes = call.planes
    if call.balance:
        most = -(-call.balance.ctas // planes.batch)
        suffix, grid = combine_launch(variant.arch, planes, most)
        if variant.arch == ARCH:
            suffix, grid = suffix + "_balanced", (*grid[:2], min(grid[2], call.balance.ctas))
    else:
        suffix, grid = combine_launch(variant.arch, planes, call.splits)
    return suffix + ("_heads" if call.by_head and not knows_heads(variant) else ""), grid


def forward_grid(variant: Variant, call: Call, draws: bool = True) -> Dim3:
    """The grid of the forward kernel; of CTAs that draw row tiles, where that pays and they can."""
    ctas = walkers_of(variant, call)
    if ctas and draws:
        return ctas, 1, 1
    if call.balance and variant.arch == ARCH:
        return call.balance.ctas, 1, 1
    planes = call.planes
    shape = replace(variant.shape, rows=tile_rows(variant, call) * variant.shape.ctas)
    row_tiles = params.query_blocks(shape, call.t, planes.heads, call.topk)
    if call.balance:
        return shape.ctas * row_tiles, call.balance.ctas // call.kv_heads, call.kv_heads
    if goes_through_row_tiles(variant):
        at_once = max(1, SM100_MULTIPROCESSORS // (shape.ctas * call.splits))
        return shape.ctas * min(row_tiles * planes.batch, at_once), call.splits, 1
    return row_tiles, call.splits, planes.batch


def walkers_of(variant: Variant, call: Call) -> int:
    """CTAs that draw the row tiles, for which they need FmhaParams' `drawn`; 0 where each row tile has its own."""
    if call.splits > 1 or call.balance or not walks(variant):
        return 0
    return walkers(variant.arch, call.planes, rows_define(variant), tile_rows(variant, call))


def choose_splits(variant: Variant, call: Call, multiprocessors: int) -> int:
    """How many splits fill the multiprocessors once, with at least LEAST_TILES_A_SPLIT tiles in each.

    A launch that fills them without is not split. Depends on sizes alone, not on lengths or indices, which are on the
    device: equal shapes give equal bits.
    """
    if not variant.combine:
        return 1
    shape, call = variant.shape, call.planes
    ctas = params.query_blocks(shape, call.t, call.heads, call.topk) * call.batch
    dense = call.s_k
    if call.window_left is not None and call.window_right is not None:
        queries = 1 if call.topk else -(-shape.rows // call.heads)
        dense = min(dense, queries + call.window_left + call.window_right)
    tiles = -(-dense // shape.keys) + -(-call.topk // shape.keys)
    room = multiprocessors * ctas_per_sm(variant.arch, call.head_dim, rows_define(variant)) // ctas
    return max(1, min(room, tiles // LEAST_TILES_A_SPLIT))


def tensor_map(address: int, shape: tuple[int, ...], box_rows: int) -> TensorMapSpec:
    """The map of a contiguous bf16 tensor [batch, rows, head_dim] or [rows, head_dim] as fmha_params.h wants it."""
    *outer, rows, head_dim = shape
    row_bytes = head_dim * 2
    return TensorMapSpec(
        dtype="bf16",
        address=address,
        global_dim=(head_dim, rows, *outer),
        global_strides=(row_bytes, *(rows * row_bytes for _ in outer)),
        box_dim=(BOX_ELEMENTS, box_rows, *(1 for _ in outer)),
        element_strides=(1,) * len(shape),
        swizzle="128B",
    )


def query_box(arch: str, rows: int, heads: int) -> tuple[int, int]:
    """Heads and queries of a box of Q's; a plane has `heads` heads, a CTA `rows` rows. As many whole queries as fit, on
    sm_100a if that is all rows. Else the boxes of which a CTA's rows are a multiple: where those are few and whole
    queries would leave many rows idle, and where a query does not fit. A box costs what half a percent of the rows
    does, measured at 128 boxes."""
    idle, common = rows % heads, math.gcd(rows, heads)
    whole = idle == 0 or (arch == ARCH and heads <= rows and idle * common <= rows // 2)
    return (heads, rows // heads) if whole else (common, 1)


def tile_rows(variant: Variant, call: Call) -> int:
    """Rows from one row tile of a call to the next: those of a CTA but for the ones that whole queries leave idle."""
    rows = variant.shape.rows
    if not call.by_head:
        return rows
    box = math.prod(query_box(variant.arch, rows, call.planes.heads))
    return box if 2 * box > rows else rows


def key_box(keys: int, page_size: int) -> int:
    """Keys of a box of K's and V's, which lie in one page where there are pages; a tile has `keys` keys."""
    return math.gcd(keys, page_size) if page_size else keys


def contiguous(rows: int, heads: int, head_dim: int) -> tuple[int, int, int]:
    """The strides, as Call has them, of a tensor [batch, rows, heads, head_dim]."""
    return rows * heads * head_dim, heads * head_dim, head_dim


def _tensor_maps(device: Device, variant: Variant, call: Call, addresses: Mapping[str, int]) -> dict[str, Any]:
    """The maps of the tensors that are there and have elements: no map can have a dimension of 0."""
    sparse = (call.batch * call.s_sparse, call.row_elements)
    tensors = {
        "q": _query_map(variant, call),
        "k": _key_map(variant, call, call.k_strides),
        "v": _key_map(variant, call, call.v_strides),
        "sparse_k": tensor_map(0, sparse, 1),
        "sparse_v": tensor_map(0, sparse, 1),
    }
    return {
        name: device.encode_tensor_map(replace(spec, address=addresses[name]))
        for name, spec in tensors.items()
        if addresses.get(name) and 0 not in spec.global_dim
    }


def _query_map(variant: Variant, call: Call) -> TensorMapSpec:
    if not call.by_head:
        return tensor_map(0, (call.batch, call.t * call.heads, call.row_elements), variant.shape.rows)
    entry, query, head = call.q_strides or contiguous(call.t, call.heads, call.row_elements)
    group = call.planes.heads
    queries, entries = (call.t, call.batch) if call.total_q is None else (call.total_q, 1)
    dims = (call.row_elements, group, queries, call.kv_heads, entries)
    box = query_box(variant.arch, variant.shape.rows, group)
    return _strided_map(dims, (head, query, group * head, entry), (*box, 1, 1))


def _key_map(variant: Variant, call: Call, strides: Sequence[int] | None) -> TensorMapSpec:
    rows, outer = (call.page_size, call.pages) if call.page_size else (call.s_k, call.batch)
    entry, key, head = strides or contiguous(rows, call.kv_heads, call.row_elements)
    if not call.by_head:
        return _strided_map((call.row_elements, rows, outer), (key, entry), (variant.shape.keys, 1))
    if call.total_k is not None and variant.arch == ARCH:
        rows, outer = call.total_k, 1
    elif call.total_k is not None:  # an entry's tensor begins at its first key, a step each of the last dimension
        outer, entry = call.total_k, key
    dims = (call.row_elements, rows, call.kv_heads, outer)
    return _strided_map(dims, (key, head, entry), (key_box(variant.shape.keys, call.page_size), 1, 1))


def _strided_map(dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> TensorMapSpec:
    """A map without its address; `strides` are elements, and leave the innermost dimension out as `box` does."""
    return TensorMapSpec(
        dtype="bf16",
        address=0,
        global_dim=dims,
        global_strides=tuple(stride * 2 for stride in strides),
        box_dim=(BOX_ELEMENTS, *box),
        element_strides=(1,) * len(dims),
        swizzle="128B",
    )


def _bound(side: int | None) -> int:
    return params.UNLIMITED if side is None else side


def sum_of(reports: Sequence[LaunchReport]) -> LaunchReport:
    """Findings and counters of the launches of one call."""
    total, *others = reports
    for report in others:
        total = LaunchReport(total.findings + report.findings, _added(total, report))
    return total


def _added(first: LaunchReport, second: LaunchReport) -> dict[str, Any]:
    """Counters of two launches: numbers add up, anything else is the later one's."""
    stats = dict(first.stats) | dict(second.stats)
    for name in first.stats.keys() & second.stats.keys():
        if isinstance(stats[name], int | float):
            stats[name] = first.stats[name] + second.stats[name]
    return stats
