"""`attention`: the kernels as a function of torch tensors. docs/understand/semantics.md says what it computes;
docs/use/attention.md shows its use.

A call is planned once for each set of shapes and options: arguments checked, a kernel chosen and built, its launches
prepared. What is left for the next such call is to allocate the outputs and to launch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fmha.harness import account, project
from fmha.harness.arguments import (
    Arguments,
    Sparse,
    Window,
    check,
    check_statistics,
    misaligned,
    window_of,
)
from fmha.harness.contract.protocol import FindingRecord, Variant
from fmha.harness.errors import InfrastructureError
from fmha.harness.judge.configuration import STORED, UNLIMITED, Configuration, Packed, PathChoice, Statistics
from fmha.harness.kernel_side import params
from fmha.harness.kernel_side.choice import ARCH, balance_of, few_queries, rows_of_packed, splits_of
from fmha.harness.kernel_side.launch import Call, choose_splits, launch_attention, walkers_of
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.compilers.build import build_variants
from fmha.harness.worker.devices import calls
from fmha.harness.worker.devices.cuda import CudaDevice, Prepared, architecture

__all__ = ["AttentionPlan", "AttentionResult", "Sparse", "attention", "merge", "plan"]

BUILD_SECONDS = 600.0
EMULATED = "sm_100a"
MOST_SPLITS = 65535  # CUDA's largest grid.y
MOST_PLANS = 4096  # that are kept, each some kilobytes
COUNTS = 16384  # that are cleared at once
OUTPUTS = ("o", *STORED["all"])
PARTIAL = ("partial_o", "partial_max", "partial_sum", "shares")
Place = Literal["emulator", "cuda"]
Tensors = Sequence[torch.Tensor | None]  # in the order of NAMES
NAMES = (
    "q", "k", "v", "kv_lens", "query_offsets", "sink", "sparse_k", "sparse_v", "sparse_indices", "sparse_lens",
    "block_table", "cu_seqlens_q", "cu_seqlens_k",
)  # fmt: skip


# Of a launch: those of the tensors, then what `_launch` adds.
ADDRESSES = (*NAMES, "o", "statistics", "scratch", "drawn")


@dataclass(slots=True)  # not frozen, which costs a call half a microsecond
class AttentionResult:
    """o [batch, t, heads, head_dim]; row_max, row_sum and lse [batch, t, heads] float32, in natural-log units. With
    packed queries [total_q, heads, head_dim] and [total_q, heads].

    `normalised` says what o is: o_norm, sink included, or o_un. The sink is in no other output. `findings` are hazards,
    which only the emulator sees. The statistics are one tensor, since each that is made costs a call of `attention` two
    microseconds: [3, ...] of all three, [1, ...] of lse, None of none. AttributeError for one that was not stored.
    """

    o: torch.Tensor
    statistics: torch.Tensor | None
    normalised: bool
    findings: tuple[FindingRecord, ...] = ()

    @property
    def row_max(self) -> torch.Tensor:
        return self._of_all("row_max")

    @property
    def row_sum(self) -> torch.Tensor:
        return self._of_all("row_sum")

    @property
    def lse(self) -> torch.Tensor:
        if self.statistics is None:
            raise AttributeError('lse: is not stored; pass statistics="lse" or "all"')
        return self.statistics[-1]

    def _of_all(self, name: str) -> torch.Tensor:
        if self.statistics is None or self.statistics.size(0) == 1:
            raise AttributeError(f'{name}: is not stored; pass statistics="all"')
        return self.statistics[STORED["all"].index(name)]


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: Window | None = None,
    kv_lens: torch.Tensor | None = None,
    query_offsets: torch.Tensor | None = None,
    sparse: Sparse | None = None,
    sink: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    normalise: bool = True,
    output_dtype: torch.dtype = torch.float32,
    statistics: Statistics = "all",
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: Place | None = None,
    out: AttentionResult | None = None,
) -> AttentionResult:
    """Attention of the heads of q over one K/V head, or over several of which each serves as many of them.

    q [batch, t, heads, head_dim] and k, v [batch, s_k, head_dim] or [batch, s_k, kv_heads, head_dim] are bf16; head h
    of q attends K/V head h // (heads // kv_heads). They may have any strides of multiples of 8 elements but the last,
    which is 1, so that slices and transposed views need no copy; all else is contiguous. v is left out when V is K.
    With `block_table` [batch, n] int32, k and v are pages, [pages, page_size, kv_heads, head_dim] or without kv_heads,
    of 16, 32, 64, 128 or 256 rows: key j of an entry is row j % page_size of page block_table[entry, j // page_size].
    Without kv_lens an entry has n * page_size keys. With cu_seqlens_q [batch + 1] int32 q is [total_q, heads,
    head_dim], entry b's queries being rows cu_seqlens_q[b] to cu_seqlens_q[b + 1], at most `max_seqlen_q`; outputs are
    packed alike. With cu_seqlens_k k and v are [total_k, kv_heads, head_dim] likewise, and kv_lens is left out.
    `scale` defaults to 1/sqrt(head_dim). `window` is the number of keys that a query sees, its own the last; or a pair
    of how many before and after its own, None for all. The last query is aligned with the last key unless
    query_offsets [batch] int32 gives the position of the first. kv_lens [batch] int32, sink [heads] float32.
    `normalise=False` leaves o un-normalised, as `merge` wants it. `statistics` says what is stored beside o: row_max,
    row_sum and lse, lse alone, or nothing; an un-normalised o is relative to row_max, and so wants all. `splits`
    defaults to a number chosen from the sizes and the GPU, or on Hopper to a division by all lengths of the batch; a
    result depends on it in its last bits. `p_path` forces how P reaches the second product. `out`, a result of an equal
    call, is written to instead of new tensors.

    Tensors on a GPU run there, on torch's current stream, without waiting; tensors on the CPU run on the emulator,
    `device` only says which is expected. Raises TypeError and ValueError for wrong arguments, NotImplementedError where
    no kernel does it, InfrastructureError where the kernel cannot be built, and DeviceError.
    """
    tensors = _listed(q, k, v, kv_lens, query_offsets, sink, sparse, block_table, cu_seqlens_q, cu_seqlens_k)
    if torch.compiler.is_compiling():
        longest = max_seqlen_q, max_seqlen_k
        return _compiled(
            tensors, scale, causal, window, longest, normalise, output_dtype, splits, p_path, statistics, out
        )
    key = known = addresses = None
    if isinstance(q, torch.Tensor) and q.is_cuda:
        try:
            longest = max_seqlen_q, max_seqlen_k
            form, addresses = _read(tensors)
            key = scale, causal, window, longest, normalise, output_dtype, statistics, splits, p_path, device, form
            known = _plans.get(key)
        except TypeError:  # no tensor, or nothing that can be a key: the checks say what is wrong
            key = None
    if known is None:
        known = plan(
            q, k, v, scale=scale, causal=causal, window=window, kv_lens=kv_lens, query_offsets=query_offsets,
            sparse=sparse, sink=sink, block_table=block_table, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, normalise=normalise, output_dtype=output_dtype,
            statistics=statistics, splits=splits, p_path=p_path, device=device,
        )  # fmt: skip
        if key is not None:
            while len(_plans) >= MOST_PLANS:
                _plans.pop(next(iter(_plans)))
            _plans[key] = known
    return known.run(tensors, addresses, out)


def plan(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: Window | None = None,
    kv_lens: torch.Tensor | None = None,
    query_offsets: torch.Tensor | None = None,
    sparse: Sparse | None = None,
    sink: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    normalise: bool = True,
    output_dtype: torch.dtype = torch.float32,
    statistics: Statistics = "all",
    splits: int | None = None,
    p_path: PathChoice = "auto",
    device: Place | None = None,
) -> AttentionPlan:
    """What `attention` makes of these arguments, for calls with tensors of the same shapes. Raises what it raises."""
    arguments = check(
        q, k, v,
        scale=scale, causal=causal, window=window, kv_lens=kv_lens, query_offsets=query_offsets, sparse=sparse,
        sink=sink, block_table=block_table, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, normalise=normalise, output_dtype=output_dtype,
        statistics=statistics,
    )  # fmt: skip
    place: Place = "cuda" if q.is_cuda else "emulator"
    if device not in (None, place):
        raise ValueError(f"device: expected {place!r}, where the tensors run, got {device!r}")
    if splits is not None and not 1 <= splits <= MOST_SPLITS:
        raise ValueError(f"splits: expected 1 to {MOST_SPLITS}, got {splits}")
    arch = architecture() if place == "cuda" else EMULATED
    call = arguments.call
    if call.window_left is None or call.window_right is None:  # else the window, not s_k, decides
        if splits is None:
            ragged = kv_lens is not None or cu_seqlens_k is not None
            call = dataclasses.replace(call, balance=balance_of(arch, call.planes, ragged))
        splits = 1 if call.balance else splits or splits_of(arch, call.planes)
    variant = _variant(arguments, splits or 1, p_path, arch, call.balance is not None)
    if splits is None:
        splits = choose_splits(variant, call, _multiprocessors(place)) if variant.combine else 1
    tensors = _listed(q, k, v, kv_lens, query_offsets, sink, sparse, block_table, cu_seqlens_q, cu_seqlens_k)
    return AttentionPlan(arguments, tensors, variant, dataclasses.replace(call, splits=splits), statistics)


class AttentionPlan:
    """A call of `attention`, prepared: `call` has its sizes, options and splits, `variant` is the kernel, `statistics`
    says what it stores beside o."""

    def __init__(
        self, arguments: Arguments, tensors: Tensors, variant: Variant, call: Call, statistics: Statistics
    ) -> None:
        self.variant, self.call, self.statistics = variant, call, statistics
        self._where = tensors[0].device if tensors[0] is not None else torch.device("cpu")
        self._form, self._each = _read(tensors)[0], [_form(x) for x in tensors]
        self._present = [place for place, name in enumerate(NAMES) if name in arguments.tensors]
        rows = call.rows
        o_dtype = torch.bfloat16 if call.output_bf16 else torch.float32
        self._new_o = _empty((*rows, call.head_dim), o_dtype, self._where)
        stored = STORED[statistics]
        new_statistics = _empty((len(stored), *rows), torch.float32, self._where) if stored else None
        self._new_statistics: Callable[[], torch.Tensor | None] = new_statistics or (lambda: None)
        self._taken: set[Hashable] = set()  # forms of outputs that have been found to fit
        index = self._where.index if self._where.type == "cuda" else -1
        self._outputs = tuple(
            None if new is None else (new.args[0], new.keywords["dtype"], index, True)
            for new in (self._new_o, new_statistics)
        )
        sizes = [-(-4 * call.partial_elements.get(name, 0) // 256) * 256 for name in PARTIAL]
        self._scratch_bytes = sum(sizes)
        # What lies within the statistics and within the scratch memory, and where.
        self._within = {name: ("statistics", 4 * math.prod(rows) * place) for place, name in enumerate(stored)}
        self._within |= {name: ("scratch", sum(sizes[:place])) for place, name in enumerate(PARTIAL)}
        self._draws = walkers_of(variant, call) > 0
        self._prepared = self._prepare(arguments) if self._where.type == "cuda" else None

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor | None = None,
        *,
        kv_lens: torch.Tensor | None = None,
        query_offsets: torch.Tensor | None = None,
        sparse: Sparse | None = None,
        sink: torch.Tensor | None = None,
        block_table: torch.Tensor | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_k: torch.Tensor | None = None,
        out: AttentionResult | None = None,
    ) -> AttentionResult:
        """`attention` of tensors of the shapes, dtypes and device that were planned for; ValueError for others."""
        tensors = _listed(q, k, v, kv_lens, query_offsets, sink, sparse, block_table, cu_seqlens_q, cu_seqlens_k)
        form, addresses = _read(tensors)
        if form != self._form:
            for name, got, wanted in zip(NAMES, map(_form, tensors), self._each, strict=True):
                if got != wanted:
                    raise ValueError(f"{name}: planned for {wanted}, got {got}; make a plan for each set of shapes")
            places = zip(NAMES, np.frombuffer(addresses, np.uint64), strict=True)
            raise ValueError(next(misaligned(name, int(at)) for name, at in places if at % calls.ALIGNMENT))
        return self.run(tensors, addresses, out)

    def run(self, tensors: Tensors, addresses: bytes | None, out: AttentionResult | None = None) -> AttentionResult:
        """As a call, with tensors in the order of NAMES that are known to be as planned, and their addresses where they
        have been read."""
        if out is None:
            o, statistics = self._new_o(), self._new_statistics()
        else:
            o, statistics = self._given(out)
        if self._prepared is None:
            findings = self._emulate(tensors, o, statistics)
            return AttentionResult(o, statistics, self.call.normalise, findings)
        addresses = addresses or _read(tensors)[1]
        if torch._C._cuda_getDevice() == self._where.index:
            self._launch(self._prepared, addresses, o, statistics)
        else:
            with torch.cuda.device(self._where):
                self._launch(self._prepared, addresses, o, statistics)
        return out or AttentionResult(o, statistics, self.call.normalise)

    def _launch(self, prepared: Prepared, addresses: bytes, o: torch.Tensor, statistics: torch.Tensor | None) -> None:
        # As with the device before and the capture later, torch.cuda's own function costs many times this one.
        stream: int = torch._C._cuda_getCurrentRawStream(self._where.index)
        scratch = _scratch(stream, self._scratch_bytes, self._where).data_ptr() if self._scratch_bytes else 0
        drawn = _count(stream, self._where) if self._draws else 0
        stored = 0 if statistics is None else statistics.data_ptr()
        prepared(stream, addresses, o.data_ptr(), stored, scratch, drawn)

    def _prepare(self, arguments: Arguments) -> Prepared:
        with torch.cuda.device(self._where):
            device = CudaDevice(wait=False)
            module = device.load(_artifact(self.variant, device.artifact))
            addresses = {name: tensor.data_ptr() for name, tensor in arguments.tensors.items()}

            if self._draws:
                addresses["drawn"] = _count(torch._C._cuda_getCurrentRawStream(self._where.index), self._where)

            def launch() -> None:
                launch_attention(device, module, self.variant, self.call, addresses | dict.fromkeys(OUTPUTS, 0))

            return device.prepare(launch, *self._fields())

    def _fields(self) -> tuple[list[calls.Field], list[calls.Field]]:
        """The maps and the pointers that each launch sets. Those of statistics that are not stored stay null."""
        left = {*STORED["all"]} - {*STORED[self.statistics]}
        maps, pointers = (
            [(offset, *self._source(name)) for name, offset in zip(names, offsets, strict=True) if name not in left]
            for names, offsets in ((params.MAPS, params.MAP_OFFSETS), (params.POINTERS, params.POINTER_OFFSETS))
        )
        return maps, pointers

    def _source(self, name: str) -> tuple[int, int]:
        """Which of a launch's addresses a parameter is, and how many bytes beyond it."""
        whole, beyond = self._within.get(name, (name, 0))
        return ADDRESSES.index(whole), beyond

    def _given(self, out: AttentionResult) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The tensors of `out`. ValueError or TypeError unless it can take the results."""
        if not isinstance(out, AttentionResult):
            raise TypeError(f"out: expected an AttentionResult, got {type(out).__name__}")
        if out.normalised != self.call.normalise:
            raise ValueError(f"out: expected a result with normalised={self.call.normalise}, got {out.normalised}")
        form, _ = _read((out.o, out.statistics))
        if form not in self._taken:
            _same_statistics(out, self.statistics)
            for name, x, wanted in zip(("o", "statistics"), (out.o, out.statistics), self._outputs, strict=True):
                held = None if x is None else (x.shape, x.dtype, x.get_device(), x.is_contiguous())
                if held != wanted:
                    told = "none" if wanted is None else f"{wanted[1]} {list(wanted[0])} on {self._where}"
                    raise ValueError(f"out.{name}: expected {told}, got {_form(x)}")
            if out.o.data_ptr() % calls.ALIGNMENT:
                raise ValueError(misaligned("out.o", out.o.data_ptr()))
            self._taken.add(form)
        return out.o, out.statistics

    def _emulate(self, tensors: Tensors, o: torch.Tensor, statistics: torch.Tensor | None) -> tuple[FindingRecord, ...]:
        from fmha.harness.worker.devices.emulator import EmulatorDevice  # not wanted where there is a GPU

        device = EmulatorDevice(seed=0, schedule="realistic")
        addresses = {}
        for place in self._present:
            array = _array(tensors[place].detach())  # type: ignore[union-attr]
            addresses[NAMES[place]] = device.alloc(array.nbytes, NAMES[place])
            device.upload(addresses[NAMES[place]], array)
        outputs = {"o": o}
        if statistics is not None:
            outputs |= zip(STORED[self.statistics], statistics, strict=True)
        results = {name: device.alloc(tensor.nbytes, name) for name, tensor in outputs.items()}
        scratch = {name: device.alloc(4 * count, name) for name, count in self.call.partial_elements.items()}
        scratch["drawn"] = device.alloc(4, "drawn")
        device.upload(scratch["drawn"], np.zeros(1, np.uint32))
        module = device.load(_artifact(self.variant, device.artifact))
        report = launch_attention(device, module, self.variant, self.call, addresses | results | scratch)
        for name, tensor in outputs.items():
            data = torch.from_numpy(device.download(results[name], tensor.nbytes).copy())
            tensor.copy_(data.view(tensor.dtype).reshape(tensor.shape))
        return report.findings


def merge(
    a: AttentionResult, b: AttentionResult, sink: torch.Tensor | None = None, *, normalise: bool = True
) -> AttentionResult:
    """The attention over both key sets, from un-normalised results over disjoint ones: a window and a sparse list, say.

    Exact but for rounding: computed in float64, returned in a's dtypes. The sink [heads] enters the denominator last.
    Rows that see no key on one side are the other's; on both, they are 0 with row_max = lse = -inf. ValueError for
    results that are normalised, have not all statistics or do not fit each other.
    """
    for name, result in (("a", a), ("b", b)):
        if result.normalised:
            raise ValueError(f"{name}: expected an un-normalised result, got a normalised one; use normalise=False")
        if (held := _statistics_of(result)) != "all":
            raise ValueError(f"{name}: expected a result with row_max and row_sum, statistics='all', got {held!r}")
    if a.o.shape != b.o.shape:
        raise ValueError(f"b: expected shape {list(a.o.shape)}, that of a, got {list(b.o.shape)}")
    if sink is not None and sink.shape != a.o.shape[-2:-1]:
        raise ValueError(f"sink: expected shape {list(a.o.shape[-2:-1])}, got {list(sink.shape)}")
    row_max = torch.maximum(a.row_max.double(), b.row_max.double())
    shift = torch.where(row_max.isneginf(), 0.0, row_max)
    weight_a, weight_b = ((side.row_max.double() - shift).exp() for side in (a, b))
    row_sum = a.row_sum.double() * weight_a + b.row_sum.double() * weight_b
    o = a.o.double() * weight_a[..., None] + b.o.double() * weight_b[..., None]
    if normalise:
        divisor = row_sum if sink is None else row_sum + (sink.double() - shift).exp()
        o = o / torch.where(row_sum == 0, 1.0, divisor)[..., None]
    dtype = a.row_max.dtype
    statistics = torch.stack([row_max, row_sum, row_max + row_sum.log()]).to(dtype)
    return AttentionResult(o.to(a.o.dtype), statistics, normalise, a.findings + b.findings)


def _variant(arguments: Arguments, splits: int, p_path: PathChoice, arch: str, balanced: bool) -> Variant:
    call, tensors = arguments.call, arguments.tensors
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
            merge="balanced" if balanced else "auto",
        ),
        arch,
        _rows_of_packed(call) if arch == ARCH and splits == 1 else None,
    )
    if isinstance(chosen, str):
        raise NotImplementedError(chosen)
    return chosen


def _rows_of_packed(call: Call) -> int | None:
    """What choice has of a call with packed queries."""
    if call.total_q is None:
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


def _listed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    kv_lens: torch.Tensor | None,
    query_offsets: torch.Tensor | None,
    sink: torch.Tensor | None,
    sparse: Sparse | None,
    *scattered: torch.Tensor | None,
) -> Tensors:
    """In the order of NAMES."""
    if not isinstance(sparse, Sparse):
        return q, k, v, kv_lens, query_offsets, sink, None, None, None, None, *scattered
    return q, k, v, kv_lens, query_offsets, sink, sparse.k, sparse.v, sparse.indices, sparse.lens, *scattered


def _read(tensors: Tensors) -> tuple[Hashable, bytes]:
    """What a plan depends on of the tensors, and their addresses. TypeError where one is none."""
    told = calls.read(tuple(tensors)) or calls.read_tensors(tensors)
    if told is None:
        raise TypeError(f"expected tensors, got {', '.join(type(x).__name__ for x in tensors)}")
    return told


def _statistics_of(result: AttentionResult) -> Statistics | None:
    """With which `statistics` a result was made; None where with none that there is."""
    if result.statistics is None:
        return "none"
    made = {len(stored): name for name, stored in STORED.items() if stored}
    return made.get(result.statistics.shape[0]) if result.statistics.dim() else None


def _same_statistics(out: AttentionResult, statistics: Statistics) -> None:
    """ValueError where `out` was made with others."""
    held = _statistics_of(out)
    if held not in (statistics, None):
        raise ValueError(f"out: expected a result with statistics={statistics!r}, got {held!r}")


def _form(x: torch.Tensor | None) -> str:
    """What a plan depends on of a tensor, in words."""
    if x is None:
        return "none"
    return f"{x.dtype} {list(x.shape)} on {x.device}" + ("" if x.is_contiguous() else f" in strides {list(x.stride())}")


def _scratch(stream: int, nbytes: int, where: torch.device) -> torch.Tensor:
    """Memory for partial results. Calls of one stream share it: each waits for the one before. A captured graph has its
    own, which outlives this process's interest in other sizes."""
    if torch._C._cuda_isCurrentStreamCapturing():
        return torch.empty(nbytes, dtype=torch.uint8, device=where)
    held = _scratches.get(stream)
    if held is None or held.nbytes < nbytes:
        held = _scratches[stream] = torch.empty(nbytes, dtype=torch.uint8, device=where)
    return held


def _count(stream: int, where: torch.device) -> int:
    """The address of a count that is 0 and that no other launch uses meanwhile: launches of one stream share one, each
    of a captured graph has its own."""
    spare = _spare_counts.setdefault(where.index, [])
    if torch._C._cuda_isCurrentStreamCapturing():
        if spare:
            return spare.pop()
        # The graph's, which clears it each time. Nothing is allocated before the launch: nothing else gets its place.
        return int(torch.zeros(1, dtype=torch.int32, device=where).data_ptr())
    if not spare:
        counts = torch.zeros(COUNTS, dtype=torch.int32, device=where)
        torch.cuda.current_stream(where).synchronize()  # other streams will use them
        _counts.append(counts)
        spare.extend(range(counts.data_ptr(), counts.data_ptr() + 4 * COUNTS, 4))
    key = where.index, stream
    if key not in _stream_counts:
        _stream_counts[key] = spare.pop()
    return _stream_counts[key]


_plans: dict[Any, AttentionPlan] = {}
_counts: list[torch.Tensor] = []
_spare_counts: dict[int, list[int]] = {}  # by device
_stream_counts: dict[tuple[int, int], int] = {}  # by device and stream
_scratches: dict[int, torch.Tensor] = {}  # by stream


@functools.cache
def _multiprocessors(place: Place) -> int:
    if place == "cuda":
        return CudaDevice(wait=False).multiprocessors
    from fmha.harness.worker.devices.emulator import EmulatorDevice

    return EmulatorDevice.multiprocessors


def _compiled(
    tensors: Tensors,
    scale: float | None,
    causal: bool,
    window: Window | None,
    longest: tuple[int | None, int | None],
    normalise: bool,
    output_dtype: torch.dtype,
    splits: int | None,
    p_path: str,
    statistics: Statistics,
    out: AttentionResult | None,
) -> AttentionResult:
    """`attention` as a graph sees it: one operator."""
    left, right = window_of(causal, window)
    check_statistics(statistics, normalise)
    options = scale, left, right, *longest, normalise, output_dtype, splits, p_path, statistics
    o, stored = torch.ops.fmha.attention(*tensors, *options)
    if out is None:
        return AttentionResult(o, stored, normalise)
    _same_statistics(out, statistics)  # lse alone would be copied to all three
    out.o.copy_(o)
    if out.statistics is not None:
        out.statistics.copy_(stored)
    return out


def _run_operator(
    q: torch.Tensor, k: torch.Tensor, v: Any, kv_lens: Any, query_offsets: Any, sink: Any, sparse_k: Any, sparse_v: Any,
    sparse_indices: Any, sparse_lens: Any, block_table: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, scale: Any,
    left: Any, right: Any, max_seqlen_q: Any, max_seqlen_k: Any, normalise: bool, output_dtype: torch.dtype,
    splits: Any, p_path: Any, statistics: Statistics = "all",
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """`attention` for torch.compile, torch.export and captured graphs: results that share no memory."""
    o, stored = _shaped(q, output_dtype, statistics)
    sparse = None if sparse_indices is None else Sparse(sparse_k, sparse_indices, sparse_v, sparse_lens)
    attention(
        q, k, v, scale=scale, window=(left, right), kv_lens=kv_lens, query_offsets=query_offsets, sparse=sparse,
        sink=sink, block_table=block_table, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, normalise=normalise, output_dtype=output_dtype,
        statistics=statistics, splits=splits, p_path=p_path, out=AttentionResult(o, stored, normalise),
    )  # fmt: skip
    return o, stored


def _fake_operator(*operands: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    given = inspect.signature(_run_operator).bind(*operands)
    given.apply_defaults()  # torch leaves out what is one
    return _shaped(*(given.arguments[name] for name in ("q", "output_dtype", "statistics")))


def _shaped(
    q: torch.Tensor, output_dtype: torch.dtype, statistics: Statistics
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Outputs that nothing has written yet."""
    count = len(STORED[statistics])
    stored = q.new_empty((count, *q.shape[:-1]), dtype=torch.float32) if count else None
    return q.new_empty(q.shape, dtype=output_dtype), stored


# By hand, not as a torch.library.custom_op, which costs the host a hundred microseconds a call.
_LIBRARY = torch.library.Library("fmha", "DEF")
_LIBRARY.define(
    "attention(Tensor q, Tensor k, Tensor? v, Tensor? kv_lens, Tensor? query_offsets, Tensor? sink, Tensor? sparse_k, "
    "Tensor? sparse_v, Tensor? sparse_indices, Tensor? sparse_lens, Tensor? block_table, Tensor? cu_seqlens_q, "
    "Tensor? cu_seqlens_k, float? scale, int? window_left, int? window_right, int? max_seqlen_q, int? max_seqlen_k, "
    "bool normalise, ScalarType output_dtype, int? splits, str p_path, str statistics='all') "
    "-> (Tensor, Tensor?)"
)
_LIBRARY.impl("attention", _run_operator, "CompositeExplicitAutograd")
torch.library.register_fake("fmha::attention", _fake_operator, lib=_LIBRARY)


def _empty(shape: Sequence[int], dtype: torch.dtype, where: torch.device) -> functools.partial[torch.Tensor]:
    """Makes contiguous tensors; of torch's functions for it the one that costs least."""
    strides = torch.empty(shape, device="meta").stride()
    return functools.partial(torch.empty_strided, tuple(shape), strides, dtype=dtype, device=where)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The memory from a tensor's first element to its last."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    tensor = tensor.as_strided((extent,), (1,))
    array: np.ndarray[Any, Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


@functools.cache
def _artifact(variant: Variant, kind: Literal["ptx", "cubin"]) -> Path:
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
