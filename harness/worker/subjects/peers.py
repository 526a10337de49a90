"""What users call instead of our kernels, on the same configurations: torch's SDPA and FlashAttention.

A peer is a callable over torch tensors, on a GPU or on this CPU: nothing of it is built. It has our inputs, our
reference and our gates of an output in bf16, and says nothing of LSE. What it cannot do is not run, with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fmha.harness.contract.device import Device, LaunchReport, LoadedModule
from fmha.harness.contract.protocol import Beside, BuildResult, LaunchShape, Measurement, PeerCell, Timed, Variant
from fmha.harness.judge.configuration import Configuration

if TYPE_CHECKING:  # clients ask which peers there are, and wait for neither NumPy nor torch
    import numpy as np
    from numpy.typing import NDArray

    from fmha.harness.judge.oracle.inputs import Inputs
    from fmha.harness.judge.oracle.reference import Reference


class PeerRefusedError(Exception):
    """What is called does not take the configuration; the message says why."""


Call = Callable[[], Any]  # o [batch, t, heads, head_dim] as a tensor


@dataclass(frozen=True, slots=True)
class Tensors:
    """q [batch, t, heads, head_dim]; k and v [batch, s_k, head_dim]: bf16, where the device is."""

    q: Any
    k: Any
    v: Any
    scale: float


def _sdpa(backend: str, item: Configuration, x: Tensors) -> Call:
    """Any mask by a tensor of bools, which a backend that is named does not take."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = (item.batch, item.heads, item.t, item.head_dim)
    q = x.q.transpose(1, 2).contiguous()
    k, v = (keys[:, None].expand(item.batch, item.heads, item.s_k, item.head_dim) for keys in (x.k, x.v))
    mask = None
    left, right = item.bounds
    if (left, right) != (None, None):
        place = torch.arange(item.t, device=q.device)[:, None] + item.s_k - item.t
        key = torch.arange(item.s_k, device=q.device)[None]
        seen = torch.ones((item.t, item.s_k), dtype=torch.bool, device=q.device)
        seen &= True if left is None else key >= place - left
        seen &= True if right is None else key <= place + right
        mask = seen
    run = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, attn_mask=mask, scale=x.scale)

    def call() -> Any:
        if not backend:
            return run().view(shape).transpose(1, 2)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return run().view(shape).transpose(1, 2)

    return call


def _fa3(item: Configuration, x: Tensors) -> Call:
    """Its decode entry, which chooses splits itself. Keys of one head, a window as (left, right), -1 for no limit."""
    fa3 = import_module("fa3_fwd_interface")
    left, right = item.bounds
    window = (-1 if left is None else left, -1 if right is None else right)
    k, v = x.k[:, :, None], x.v[:, :, None]
    how: dict[str, Any] = {"causal": item.mask == "causal", "num_splits": 0, "softmax_scale": x.scale}
    how |= {"window_size": window} if item.mask in ("window", "band") else {}
    return lambda: fa3.flash_attn_with_kvcache(x.q, k, v, **how)


@dataclass(frozen=True, slots=True)
class _Maker:
    make: Callable[[Configuration, Tensors], Call]
    module: str  # that has to be installed
    gpu: bool  # alone
    most: int  # head_dim


_NO_KERNEL: Final = "No available kernel"  # of a backend of SDPA that is named

PEERS: Final[Mapping[str, _Maker]] = {
    "sdpa": _Maker(partial(_sdpa, ""), "torch", False, 512),
    "flash2": _Maker(partial(_sdpa, "FLASH_ATTENTION"), "torch", True, 256),
    "cudnn": _Maker(partial(_sdpa, "CUDNN_ATTENTION"), "torch", True, 256),
    "fa3": _Maker(_fa3, "fa3_fwd_interface", True, 256),
}


def refusal(name: str, item: Configuration) -> str | None:
    """Why a peer is not called for a problem, whatever the device; None where it is."""
    for field, usual in (("topk", 0), ("sink", "none"), ("kv_lens", "full"), ("query_offsets", "aligned")):
        if getattr(item, field) != usual:
            return f"{name} is not called with {field} {getattr(item, field)}"
    if item.data == "extreme" or not item.s_k or (item.mask != "none" and item.t > item.s_k):
        return f"{name} is not called where rows see no key, or for logits that float32 holds and bf16 does not"
    if item.head_dim > PEERS[name].most:
        return f"{name} has no head_dim {item.head_dim}"
    return None


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What a peer gave."""

    o: NDArray[np.uint16]  # bf16 bits
    report: LaunchReport


class Peer:
    """One of PEERS as the worker has it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def lenient(self) -> bool:
        return False

    @property
    def adapter(self) -> None:
        """None: its variants have no choice."""

    def built_in(self, tree: Path) -> None:
        """Nothing is built."""

    def variant_for(self, cell: PeerCell, arch: str) -> Variant | str:
        """A variant without a source: nothing is built. Or in words why the peer does not run it."""
        if refused := refusal(self._name, cell.of):
            return refused
        shape = LaunchShape(0, 0, 0, 0, 0)
        return Variant(f"{self._name}_{arch.replace('_', '')}", arch, "", self._name, None, None, shape, sources=())

    def inputs(self, seed: int, cell: PeerCell) -> Inputs:
        from fmha.harness.judge.oracle.inputs import make_inputs

        return make_inputs(seed, cell.of)

    def reference(self, cell: PeerCell, inputs: Inputs) -> Reference:
        """By the definition of attention."""
        from fmha.harness.judge.oracle.reference import reference

        return reference(inputs)

    def run(
        self, device: Device, module: LoadedModule | None, variant: Variant, cell: PeerCell, inputs: Inputs
    ) -> PeerRun:
        call = self._call(device, cell, inputs)
        import torch

        try:
            o = call().to(torch.bfloat16)
        except RuntimeError as error:
            if _NO_KERNEL not in str(error):
                raise
            raise PeerRefusedError(f"{self._name}: {str(error).splitlines()[0]}") from error
        return PeerRun(o.contiguous().view(torch.uint16).cpu().numpy(), LaunchReport())

    def writes(self, cell: PeerCell) -> Container[str]:
        return ()

    def measure(self, cell: PeerCell, ran: PeerRun, expected: Reference) -> Measurement:
        """Metrics that every kernel has."""
        import numpy as np

        from fmha.harness.judge.oracle.bf16 import from_bf16
        from fmha.harness.judge.oracle.measure import WrittenOutput, general

        values = from_bf16(ran.o)
        o = WrittenOutput("o", values, expected.o, np.zeros(values.shape, np.bool_))
        return general([o], hashlib.sha256(ran.o.tobytes()).hexdigest())

    def timed(
        self,
        device: Device,
        build: BuildResult,
        beside: Beside,
        cell: PeerCell,
        inputs: Inputs,
        expected: Reference,
        judged: Measurement,
    ) -> Timed:
        from fmha.harness.worker.launch.time_builds import UntimedError

        raise UntimedError(f"{self._name} is no commit's")

    def timed_alone(
        self,
        device: Device,
        build: BuildResult,
        cell: PeerCell,
        inputs: Inputs,
        expected: Reference,
        judged: Measurement,
    ) -> Timed:
        from fmha.harness.worker.launch.time_builds import time_alone
        from fmha.harness.worker.subjects.tensor_calls import batch_of_calls

        return time_alone(device, partial(batch_of_calls, self._call(device, cell, inputs)))

    def _call(self, device: Device, cell: PeerCell, inputs: Inputs) -> Call:
        maker = PEERS[self._name]
        if maker.gpu and device.name != "cuda":
            raise PeerRefusedError(f"{self._name} runs on a GPU alone")
        if util.find_spec(maker.module) is None:
            raise PeerRefusedError(f"{self._name} needs the module {maker.module}, which is not installed here")
        import torch

        where = "cuda" if device.name == "cuda" else "cpu"

        def tensor(bits: NDArray[np.uint16]) -> torch.Tensor:
            return torch.from_numpy(bits).view(torch.bfloat16).to(where)

        k = tensor(inputs.k)
        v = k if inputs.v is None else tensor(inputs.v)
        return maker.make(cell.of, Tensors(tensor(inputs.q), k, v, inputs.scale))


def every_peer() -> dict[str, Peer]:
    """All peers, by name."""
    return {name: Peer(name) for name in PEERS}
