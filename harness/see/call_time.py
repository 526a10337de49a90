"""What the timing model says of a call, from a few of its CTAs on the emulator: docs/understand/timing.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import Module, load_ptx
from fmha.emulator.timing.architecture import Architecture, architecture
from fmha.emulator.timing.launch import Modelled, Timing
from fmha.harness.contract.device import Device
from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.kernel_side.choice import splits_of
from fmha.harness.kernel_side.launch import Call, choose_splits, launch_attention, walkers_of
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.sass import Sass, disassembled
from fmha.harness.worker.devices.emulator import EmulatorDevice

Order = Literal["ptx", "sass"]
_PERIOD = 1 << 16  # elements that are drawn; tensors repeat them, each from a place of its own


@dataclass(frozen=True, slots=True)
class CallTime:
    """The launches of a call, by their entries, and what the model says of each."""

    architecture: Architecture
    timings: tuple[tuple[str, Timing], ...]
    bytes: float  # that have to come from memory once: Q, K, V and the outputs, or all that its launches touch
    flop: float | None  # None where nobody has said: then the model's own time of its products is their floor
    sass: Mapping[str, Sass] = field(default_factory=dict)  # by entry, where warps execute in its order

    def launches(self, times: Mapping[str, float] | None = None) -> tuple[Modelled, ...]:
        return tuple(timing.modelled(times) for _, timing in self.timings)

    def seconds(self, times: Mapping[str, float] | None = None) -> float:
        """Of a call among others on a stream, what launches cost included."""
        return seconds_of(self.architecture, self.launches(times))


def of_timings(gpu: str, timings: Sequence[tuple[str, Timing]]) -> CallTime:
    """Of launches that were recorded, of which nobody says what they compute."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    for _, timing in timings:
        for found, known in ((timing.read, read), (timing.written, written)):
            for base, nbytes in found.items():
                known[base] = max(nbytes, known.get(base, 0.0))
    first = {base: nbytes for base, nbytes in read.items() if base not in written}
    return CallTime(architecture(gpu), tuple(timings), sum(first.values()) + sum(written.values()), None)


def seconds_of(gpu: Architecture, launches: tuple[Modelled, ...]) -> float:
    """Of the launches of one call: the first waits for the GPU, those behind it overlap the one before."""
    overhead = gpu.launch_us.value + gpu.combine_us.value * (len(launches) - 1)
    return overhead * 1e-6 + sum(m.seconds for m in launches)


def call_for(item: Configuration, gpu: Architecture) -> Call:
    """The call that a configuration's sizes ask for. Where the configuration leaves the splits open, they are those
    that `attention` takes: by the rule of fmha.harness.kernel_side.choice, or as many as fill the GPU."""
    left, right = item.bounds
    call = Call(
        head_dim=item.head_dim,
        batch=item.batch,
        t=item.t,
        heads=item.heads,
        s_k=item.s_k,
        shared_kv=item.kv == "shared",
        window_left=left,
        window_right=right,
        scale=item.head_dim**-0.5,
        normalise=item.output != "unnormalised",
        output_bf16=item.output == "bf16",
        splits=item.splits,
        kv_heads=item.kv_heads,
    )
    if item.splits > 1:
        return call
    splits = splits_of(gpu.arch, call.planes)
    if splits is None:
        variant = variant_for(item, gpu.arch)
        splits = 1 if isinstance(variant, str) else choose_splits(variant, call, gpu.multiprocessors)
    return replace(call, splits=splits)


def numbers(count: int, tensor: int) -> NDArray[np.uint16]:
    """What a tensor holds, as bf16."""
    drawn = round_to_bf16(np.random.default_rng(0).standard_normal(_PERIOD, np.float32))
    return np.resize(np.roll(drawn, 12345 * tensor), count)


def tensors_of(device: Device, call: Call) -> dict[str, int]:
    """The call's tensors on a device, inputs of drawn numbers among them: their addresses by FmhaParams' names."""
    rows, keys = call.batch * call.t * call.heads, call.batch * call.s_k * call.kv_heads
    addresses = {}
    tensors = {"q": rows, "k": keys} | ({} if call.shared_kv else {"v": keys})
    for k, (name, count) in enumerate(tensors.items()):
        data = numbers(count * call.head_dim, k)
        addresses[name] = device.alloc(data.nbytes, name)
        device.upload(addresses[name], data)
    addresses["o"] = device.alloc(rows * call.head_dim * (2 if call.output_bf16 else 4), "o")
    for name in ("row_max", "row_sum", "lse"):
        addresses[name] = device.alloc(rows * 4, name)
    for name, count in call.partial_elements.items():
        addresses[name] = device.alloc(count * 4, name)
    return addresses


def model(gpu: str, variant: Variant, artifact: Path, call: Call, order: Order = "ptx") -> CallTime:
    """Launches `call` on a device that keeps time. Inputs are random; lists are not modelled."""
    device = EmulatorDevice(0, "realistic", checks=False, threads=1, timing=gpu, reordered=order == "sass")
    addresses = tensors_of(device, call)
    # Without `drawn` each row tile has a CTA of its own: of CTAs that draw, the few that run would draw the whole grid.
    launch_attention(device, device.load(artifact), variant, call, addresses)
    device.timings[0][1].drawn = walkers_of(variant, call) > 0
    seen = float(call.s_k)
    if call.window_left is not None and call.window_right is not None:
        seen = min(seen, call.window_left + call.window_right + 1.0)
    elif call.window_left is not None or call.window_right is not None:
        seen -= min(call.t - 1, call.s_k) / 2
    rows, keys = call.batch * call.t * call.heads, call.batch * call.s_k * call.kv_heads
    moved = 2.0 * call.head_dim * (rows * 2 + keys * (1 if call.shared_kv else 2))
    found = CallTime(architecture(gpu), tuple(device.timings), moved, 4.0 * rows * seen * call.head_dim)
    return in_order(order, found, load_ptx(artifact), artifact)


def in_order(order: Order, time: CallTime, module: Module, where: Path) -> CallTime:
    """The same launches with their warps in an order. For SASS they are `module`'s, which lies at `where`, and a device
    that is `reordered` has recorded them."""
    if order == "ptx":
        return time
    sources = [source for _, timing in time.timings for source in timing.sources]
    listings = disassembled(module.parsed.source, time.architecture.arch, sources, where)
    for entry, timing in time.timings:
        timing.ranks = listings[entry].ranks(timing.sources)
    return replace(time, sass=listings)
