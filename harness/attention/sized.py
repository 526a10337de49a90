"""Calls of sizes that no call had before, planned by compiled code at every call: `_calls.Planner`.

A plan of plans.py is made once for a set of shapes, and takes a millisecond. A server has other shapes each time: K and
V that grow by a token, packed prompts of another total. What of a call is no size (options, which tensors there are) is
checked once, in a plan; the rest is decided, prepared and launched here in some microseconds. What the planner does not
take, as a sparse branch or a mistake, is left to plans.py, and so is what no kernel was loaded for yet.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any, Final

import torch

from fmha.harness.attention import values, workspace
from fmha.harness.attention.given import OPTIONS, AttentionArguments, Options, Tensors
from fmha.harness.attention.options import window_of
from fmha.harness.attention.result import AttentionResult, out_tensors
from fmha.harness.attention.tensors import read
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import STORED, Statistics
from fmha.harness.kernel_side.choice import ARCH
from fmha.harness.kernel_side.launch import Call, combine_of
from fmha.harness.kernel_side.paces import PACES, RATES
from fmha.harness.kernel_side.params import SM90_KINDS, SM90_SHAPES
from fmha.harness.kernel_side.variants import VARIANTS, kind_of, knows_heads, knows_lengths, knows_pages, rows_define
from fmha.harness.worker.devices import calls, cuda

MOST_OPTIONS: Final = 256  # sets of them that are kept
MOST_LONGEST: Final = 1 << 62
LONGEST: Final = slice(OPTIONS.index("max_seqlen_q"), OPTIONS.index("max_seqlen_k") + 1)  # of options, sizes
# Options that the planner is told, and the device, which changes nothing. One more is a field of Known, which `learn`
# and `planned` hand on; a field of Options in worker/devices/native/parse.hpp, which `call_of` there, `plan` of
# planner.cpp and `fill` of launch.hpp act by; and a draw of tests/harness/test_planner.py, which compares.
TOLD: Final = frozenset((
    "scale", "causal", "window", "max_seqlen_q", "max_seqlen_k", "normalise", "output_dtype", "splits", "statistics",
    "device",
))  # fmt: skip
UNTOLD: Final = {field.name: field.default for field in fields(AttentionArguments) if field.name in {*OPTIONS} - TOLD}
BEFORE, AFTER = slice(LONGEST.start), slice(LONGEST.stop, None)
ENTRIES: Final = (*calls.ENTRIES, "TensorMapEncodeTiled")
SUFFIXES: Final = ("_many", "_balanced", "_heads")  # of combine kernels, by bits from the lowest
HOPPER: Final = tuple(variant for variant in VARIANTS if variant.arch == ARCH)

_planners: dict[int, Any] = {}  # by device; None where there is none
_known: dict[Any, Known] = {}  # by a device and options but for max_seqlen_q and max_seqlen_k


@dataclass(frozen=True, slots=True)
class Known:
    """Options that a plan has checked, and where they are used: as the planner takes them."""

    planner: Any
    where: torch.device
    scale: float  # 0 for that of the head_dim
    left: int
    right: int
    normalise: bool
    o_dtype: torch.dtype
    statistics: Statistics
    splits: int


def tables() -> tuple[list[Any], ...]:
    """What the planner knows of kernels: variants, shapes, paces and rates, as planner.cpp takes them."""
    variants = [
        (
            item.head_dim, rows_define(item), SM90_KINDS.index(kind_of(item)), knows_heads(item), knows_pages(item),
            knows_lengths(item), item.shape.rows, item.shape.keys, item.shape.threads, item.shape.shared_bytes,
        )
        for item in HOPPER
    ]  # fmt: skip
    shapes = [(*key, launch.rows, launch.keys, launch.ctas_per_sm) for key, launch in SM90_SHAPES.items()]
    paces = [(*key, *astuple(pace)) for key, pace in PACES.items()]
    rates = [(key, *astuple(of)) for key, of in RATES.items()]
    return variants, shapes, paces, rates


def combine_bits(variant: Variant, call: Call) -> int:
    """Of the combine kernel that a call launches, the bits of its suffix."""
    suffix, _ = combine_of(variant, call)
    return sum(1 << bit for bit, word in enumerate(SUFFIXES) if word in suffix)


def planned(options: Options, form: Any, q: torch.Tensor) -> SizedPlan | None:
    """The call of tensors on a GPU, of their form and Options; None where it is left to plans.py."""
    known = _known.get((q.get_device(), options[BEFORE], options[AFTER]))
    if known is None or values.ON_GPUS or type(form) is not bytes:
        return None
    for longest in options[LONGEST]:
        if longest is not None and (type(longest) is not int or not 0 <= longest < MOST_LONGEST):
            return None  # wrong, or more than the planner's integers hold: the checks see to it
    longest_q, longest_k = (-1 if longest is None else longest for longest in options[LONGEST])
    made = known.planner.plan(
        form, known.scale, known.left, known.right, longest_q, longest_k, known.normalise,
        known.o_dtype is torch.bfloat16, len(STORED[known.statistics]), known.splits,
    )  # fmt: skip
    return None if made is None or type(made) is int else SizedPlan(known, made)


def learn(of: AttentionArguments, where: torch.device, variant: Variant, call: Call, functions: list[int]) -> None:
    """From a plan on a GPU: its options are right, and these are the functions that it launches. A call with an option
    that the planner is not told stays with plans.py, or the option would be left out."""
    planner = _planner_of(where.index)
    untold = any(getattr(of, name) != default for name, default in UNTOLD.items())
    if planner is None or variant not in HOPPER or call.topk or untold:
        return
    combine = (combine_bits(variant, call), functions[1]) if call.combines else (0, 0)
    planner.load(HOPPER.index(variant), functions[0], *combine)
    left, right = (-1 if side is None else side for side in window_of(of.causal, of.window))
    if len(_known) >= MOST_OPTIONS:
        _known.clear()
    options = of.options
    _known[where.index, options[BEFORE], options[AFTER]] = Known(
        planner, where, of.scale or 0.0, left, right, of.normalise, of.output_dtype, of.statistics, of.splits or 0
    )


def _planner_of(index: int) -> Any:
    if index not in _planners:
        made = None
        if calls.Planner is not None and cuda.architecture(index) == ARCH:
            most = torch.cuda.get_device_properties(index).total_memory
            made = calls.Planner(cuda.entries(ENTRIES), cuda.context(index), most, *tables())
        _planners[index] = made
    return _planners[index]


class SizedPlan:
    """A call's launches, and what it allocates."""

    __slots__ = ("_draws", "_known", "_launches", "_o", "_scratch_bytes", "_statistics", "_taken", "_wide")

    def __init__(self, known: Known, launches: Any) -> None:
        self._known, self._launches = known, launches
        self._o, self._wide, self._statistics, self._scratch_bytes, self._draws = launches.outputs
        self._taken: set[Any] | None = None  # forms of outputs that have been found to fit

    def run(
        self, tensors: Tensors, addresses: bytes | None, out: AttentionResult | None = None, *, keeps: bool = True
    ) -> AttentionResult:
        """As AttentionPlan's."""
        known = self._known
        where = known.where
        if out is None:
            o = torch.empty_strided(*self._o, dtype=known.o_dtype, device=where)
            made = self._statistics
            statistics = None if made is None else torch.empty_strided(*made, dtype=torch.float32, device=where)
            if type(o) is not torch.Tensor:
                raise TypeError(f"a plan writes to memory, and a new tensor is a {type(o).__name__}; call `attention`")
        else:
            o, statistics = self._given(out)
        into = o if self._wide is None else torch.empty_strided(*self._wide, dtype=known.o_dtype, device=where)
        addresses = addresses or read(tensors)[1]
        if torch._C._cuda_getDevice() == where.index:
            self._launch(addresses, into, statistics, keeps)
        else:
            with torch.cuda.device(where):
                self._launch(addresses, into, statistics, keeps)
        if into is not o:
            o.copy_(into[..., : o.shape[-1]])
        return AttentionResult(o, statistics, known.normalise) if out is None else out

    def _launch(self, addresses: bytes, o: torch.Tensor, statistics: torch.Tensor | None, keeps: bool) -> None:
        where = self._known.where
        stream: int = torch._C._cuda_getCurrentRawStream(where.index)
        # Held until the launch is made: what takes its place comes later in the stream.
        scratch = workspace.scratch(stream, self._scratch_bytes, where, keeps) if self._scratch_bytes else None
        drawn = workspace.count(stream, where) if self._draws else 0
        stored = 0 if statistics is None else statistics.data_ptr()
        partial = 0 if scratch is None else scratch.data_ptr()
        answer = self._launches(stream, addresses, o.data_ptr(), stored, partial, drawn)
        if answer:
            cuda.refuse(answer)

    def _given(self, out: AttentionResult) -> tuple[torch.Tensor, torch.Tensor | None]:
        known, made = self._known, self._statistics
        if self._taken is None:
            self._taken = set()
        wanted = (
            (self._o[0], known.o_dtype),
            None if made is None else (made[0], torch.float32),
        )
        return out_tensors(out, known.normalise, known.statistics, known.where, wanted, self._taken)
