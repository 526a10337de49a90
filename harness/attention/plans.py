"""Calls that have been planned: a kernel chosen and built, its launches prepared. What is left for a call of the same
shapes and options is to allocate its outputs and to launch."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch

from fmha.harness.attention import sized, values, workspace
from fmha.harness.attention.arguments import CheckedArguments, check, misaligned, refuse_lost_gradient
from fmha.harness.attention.decision import artifact, decide
from fmha.harness.attention.entry import method_takes
from fmha.harness.attention.given import (
    NAMES,
    AttentionArguments,
    Options,
    Sparse,
    TensorArguments,
    Tensors,
    given,
)
from fmha.harness.attention.result import AttentionResult, out_tensors
from fmha.harness.attention.sized import SizedPlan
from fmha.harness.attention.tensors import in_words, lack_memory, read
from fmha.harness.contract.protocol import FindingRecord, Variant
from fmha.harness.judge.configuration import STORED, Statistics
from fmha.harness.kernel_side import params
from fmha.harness.kernel_side.launch import Call, launch_attention, walkers_of
from fmha.harness.worker.devices import calls
from fmha.harness.worker.devices.cuda import CudaDevice, PreparedLaunches

MOST_PLANS = 1024  # that are kept, each some kilobytes
OUTPUTS = ("o", *STORED["all"])
PARTIAL = ("partial_o", "partial_max", "partial_sum", "shares")
ADDRESSES = (*NAMES, "o", "statistics", "scratch", "drawn")  # of a launch: the tensors', then what `_launch` adds

_plans: dict[Any, AttentionPlan | SizedPlan] = {}
_evicting = threading.Lock()  # threads that find the oldest plan must not find the same one


def kept_plan(
    tensors: Tensors, options: Options, sparse: Sparse | None
) -> tuple[AttentionPlan | SizedPlan | None, bytes | None]:
    """The plan for tensors and Options, made where there is none yet, and the tensors' addresses where they have been
    read. No plan for tensors without memory. Raises what `plan` raises."""
    key = form = addresses = None
    known: AttentionPlan | SizedPlan | None = None
    q = tensors[0]
    if isinstance(q, torch.Tensor) and q.is_cuda:
        try:
            form, addresses = read(tensors)
            key = options, form
            known = _plans.get(key)
        except TypeError:  # no tensor, or nothing that can be a key: the checks say what is wrong
            key = None
    if known is None:
        if key is None and lack_memory(tensors):
            return None, None
        known = None if key is None else sized.planned(options, form, q)
        if known is None:
            known = new_plan(tensors, options, sparse)
        if key is not None:
            _keep(key, known)
    return known, addresses


def _keep(key: Hashable, known: AttentionPlan | SizedPlan) -> None:
    """In place of the oldest where there are MOST_PLANS."""
    with _evicting:
        while len(_plans) >= MOST_PLANS:
            _plans.pop(next(iter(_plans)))
        _plans[key] = known


def new_plan(tensors: Tensors, options: Options, sparse: Sparse | None) -> AttentionPlan:
    """Of tensors that have memory."""
    of = given(tensors, options, sparse)
    arguments = check(of)
    variant, call = decide(arguments, of.splits, of.p_path, of.q.device)
    made = AttentionPlan(arguments, tensors, variant, call, of.statistics)
    made.teach(of)
    return made


@dataclass(frozen=True, slots=True)
class PlannedArguments(TensorArguments):
    """The tensors of a call that is planned, and where its results go."""

    _: KW_ONLY
    out: AttentionResult | None = None


class AttentionPlan:
    """A call of `attention`, prepared: `call` has its sizes, options and splits, `variant` is the kernel, `statistics`
    says what it stores beside o."""

    device: type[CudaDevice] = CudaDevice  # which prepares its launches

    def __init__(
        self, arguments: CheckedArguments, tensors: Tensors, variant: Variant, call: Call, statistics: Statistics
    ) -> None:
        self.variant, self.call, self.statistics = variant, call, statistics
        self._where = tensors[0].device if tensors[0] is not None else torch.device("cpu")
        self._form, self._each = read(tensors)[0], [in_words(x) for x in tensors]
        self._present = [place for place, name in enumerate(NAMES) if name in arguments.tensors]
        rows = call.rows
        o_dtype = torch.bfloat16 if call.output_bf16 else torch.float32
        self._new_o = _empty((*rows, call.row_elements), o_dtype, self._where)
        # Where rows of q, k and v are shorter than the kernel's, it is given an o of its own rows.
        self._new_wide = None if call.width is None else _empty((*rows, call.head_dim), o_dtype, self._where)
        stored = STORED[statistics]
        new_statistics = _empty((len(stored), *rows), torch.float32, self._where) if stored else None
        self._new_statistics: Callable[[], torch.Tensor | None] = new_statistics or (lambda: None)
        self._taken: set[Hashable] = set()  # forms of outputs that have been found to fit
        self._outputs = tuple(
            None if new is None else (new.args[0], new.keywords["dtype"]) for new in (self._new_o, new_statistics)
        )
        sizes = [-(-4 * call.partial_elements.get(name, 0) // 256) * 256 for name in PARTIAL]
        self._scratch_bytes = sum(sizes)
        workspace.refuse_too_much(call, self._scratch_bytes, self._where)
        # What lies within the statistics and within the scratch memory, and where.
        self._within = {name: ("statistics", 4 * math.prod(rows) * place) for place, name in enumerate(stored)}
        self._within |= {name: ("scratch", sum(sizes[:place])) for place, name in enumerate(PARTIAL)}
        self._draws = walkers_of(variant, call) > 0
        self._prepared = self._prepare(arguments) if self._where.type == "cuda" else None

    @method_takes(PlannedArguments)
    def __call__(self, tensors: Tensors, sparse: object, *, out: AttentionResult | None) -> AttentionResult:
        """`attention` of tensors of the shapes, dtypes and device that were planned for; ValueError for others."""
        if torch.is_grad_enabled():
            refuse_lost_gradient(tensors)
        form, addresses = read(tensors)
        if form != self._form:
            for name, got, wanted in zip(NAMES, map(in_words, tensors), self._each, strict=True):
                if got != wanted:
                    raise ValueError(f"{name}: planned for {wanted}, got {got}; make a plan for each set of shapes")
            places = zip(NAMES, np.frombuffer(addresses, np.uint64), strict=True)
            raise ValueError(next(misaligned(name, int(at)) for name, at in places if at % calls.ALIGNMENT))
        return self.run(tensors, addresses, out)

    def run(
        self, tensors: Tensors, addresses: bytes | None, out: AttentionResult | None = None, *, keeps: bool = True
    ) -> AttentionResult:
        """As a call, with tensors in the order of NAMES that are known to be as planned, and their addresses where they
        have been read. `keeps`: the memory for partial results may be kept for calls to come."""
        if out is None:
            o, statistics = self._new_o(), self._new_statistics()
            if type(o) is not torch.Tensor:
                raise TypeError(f"a plan writes to memory, and a new tensor is a {type(o).__name__}; call `attention`")
        else:
            o, statistics = self._given(out)
        into = o if self._new_wide is None else self._new_wide()
        findings: tuple[FindingRecord, ...] = ()
        if self._prepared is None:
            findings = self._emulate(tensors, into, statistics)
        else:
            if values.ON_GPUS:
                self._check_values(tensors)
            addresses = addresses or read(tensors)[1]
            if torch._C._cuda_getDevice() == self._where.index:
                self._launch(self._prepared, addresses, into, statistics, keeps)
            else:
                with torch.cuda.device(self._where):
                    self._launch(self._prepared, addresses, into, statistics, keeps)
        if into is not o:
            o.copy_(into[..., : self.call.row_elements])
        if out is not None and self._prepared is not None:
            return out
        return AttentionResult(o, statistics, self.call.normalise, findings)

    def teach(self, of: AttentionArguments) -> None:
        """What other sizes need as well, for calls that have them."""
        if self._prepared is not None:
            sized.learn(of, self._where, self.variant, self.call, self._prepared.functions)

    def _launch(
        self,
        prepared: PreparedLaunches,
        addresses: bytes,
        o: torch.Tensor,
        statistics: torch.Tensor | None,
        keeps: bool,
    ) -> None:
        # As with the device before and the capture later, torch.cuda's own function costs many times this one.
        stream: int = torch._C._cuda_getCurrentRawStream(self._where.index)
        # Held until the launch is made: what takes its place comes later in the stream.
        scratch = workspace.scratch(stream, self._scratch_bytes, self._where, keeps) if self._scratch_bytes else None
        drawn = workspace.count(stream, self._where) if self._draws else 0
        stored = 0 if statistics is None else statistics.data_ptr()
        prepared(stream, addresses, o.data_ptr(), stored, 0 if scratch is None else scratch.data_ptr(), drawn)

    def _check_values(self, tensors: Tensors) -> None:
        if self._where.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return  # nobody can wait for it
        values.check_values({NAMES[place]: tensors[place] for place in self._present}, self.call)

    def _prepare(self, arguments: CheckedArguments) -> PreparedLaunches:
        with torch.cuda.device(self._where):
            device = self.device(wait=False, index=self._where.index)
            module = device.load(artifact(self.variant, device.artifact))
            addresses = {name: tensor.data_ptr() for name, tensor in arguments.tensors.items()}

            if self._draws:
                addresses["drawn"] = workspace.count(torch._C._cuda_getCurrentRawStream(self._where.index), self._where)

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
        return out_tensors(out, self.call.normalise, self.statistics, self._where, self._outputs, self._taken)

    def _emulate(self, tensors: Tensors, o: torch.Tensor, statistics: torch.Tensor | None) -> tuple[FindingRecord, ...]:
        from fmha.harness.worker.devices.emulator_device import EmulatorDevice  # not wanted where there is a GPU

        self._check_values(tensors)
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
        module = device.load(artifact(self.variant, device.artifact))
        report = launch_attention(device, module, self.variant, self.call, addresses | results | scratch)
        for name, tensor in outputs.items():
            data = torch.from_numpy(device.download(results[name], tensor.nbytes).copy())
            tensor.copy_(data.view(tensor.dtype).reshape(tensor.shape))
        return report.findings


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
