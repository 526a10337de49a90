"""What a call of attention returns, and the exact merge of two of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from fmha.harness.attention.arguments import misaligned
from fmha.harness.attention.tensors import in_words, read
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.judge.configuration import STORED, Statistics
from fmha.harness.worker.devices import calls


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
        """Of the scaled scores, natural-log units."""
        return self._of_all("row_max")

    @property
    def row_sum(self) -> torch.Tensor:
        """Of exp(score - row_max)."""
        return self._of_all("row_sum")

    @property
    def lse(self) -> torch.Tensor:
        """row_max + log(row_sum), natural-log units."""
        if self.statistics is None:
            raise AttributeError('lse: is not stored; pass statistics="lse" or "all"')
        return self.statistics[-1]

    def _of_all(self, name: str) -> torch.Tensor:
        if self.statistics is None or self.statistics.size(0) == 1:
            raise AttributeError(f'{name}: is not stored; pass statistics="all"')
        return self.statistics[STORED["all"].index(name)]


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
        if (held := statistics_of(result)) != "all":
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


def statistics_of(result: AttentionResult) -> Statistics | None:
    """With which `statistics` a result was made; None where with none that there is."""
    if result.statistics is None:
        return "none"
    made = {len(stored): name for name, stored in STORED.items() if stored}
    return made.get(result.statistics.shape[0]) if result.statistics.dim() else None


def out_tensors(
    out: AttentionResult,
    normalise: bool,
    statistics: Statistics,
    where: torch.device,
    wanted: tuple[tuple[Sequence[int], torch.dtype] | None, ...],
    taken: set[Hashable],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The tensors of `out`, in which a call with these options writes its results. `wanted` has the shapes and dtypes
    of o and of the statistics, `taken` the forms that have been found to fit. ValueError or TypeError unless these do.
    """
    if not isinstance(out, AttentionResult):
        raise TypeError(f"out: expected an AttentionResult, got {type(out).__name__}")
    if out.normalised != normalise:
        raise ValueError(f"out: expected a result with normalised={normalise}, got {out.normalised}")
    form, _ = read((out.o, out.statistics))
    if form not in taken:
        same_statistics(out, statistics)
        for name, x, want in zip(("o", "statistics"), (out.o, out.statistics), wanted, strict=True):
            held = None if x is None else (x.shape, x.dtype, x.device, x.is_contiguous())
            if held != (None if want is None else (*want, where, True)):
                told = "none" if want is None else f"{want[1]} {list(want[0])} on {where}"
                raise ValueError(f"out.{name}: expected {told}, got {in_words(x)}")
        if out.o.data_ptr() % calls.ALIGNMENT:
            raise ValueError(misaligned("out.o", out.o.data_ptr()))
        taken.add(form)
    return out.o, out.statistics


def same_statistics(out: AttentionResult, statistics: Statistics) -> None:
    """ValueError where `out` was made with others."""
    held = statistics_of(out)
    if held not in (statistics, None):
        raise ValueError(f"out: expected a result with statistics={statistics!r}, got {held!r}")
