"""What the timing model says of a call, from a few of its CTAs on the emulator: docs/understand/timing.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fmha.emulator.timing.architecture import Architecture, architecture
from fmha.emulator.timing.launch_time import LaunchTiming, Modelled
from fmha.emulator.timing.shape import sampled, sampled_by
from fmha.harness.contract.device import Device, LaunchConfig, LaunchReport, LoadedModule, Params
from fmha.harness.contract.protocol import Variant
from fmha.harness.errors import UserError
from fmha.harness.kernel_side.launch import Call, forward_grid, launch_attention, tile_rows, walkers_of
from fmha.harness.see.lengths import PERIOD, Given, from_end, lengths_of, numbers, pieces_of, seen_by, work_of
from fmha.harness.see.sass import Sass, disassembled
from fmha.harness.see.walked import TileOrder as Drawn
from fmha.harness.see.walked import pairs
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.run_attention import place

Order = Literal["ptx", "sass"]
_AT_ONCE = 128 * PERIOD  # elements of a tensor that are made and copied together
PIECES_OF_A_CTA = 2  # at least, in the mean, where three CTAs that draw row tiles stand for all


@dataclass(frozen=True, slots=True)
class CallTime:
    """The launches of a call, by their entries, and what the model says of each."""

    architecture: Architecture
    timings: tuple[tuple[str, LaunchTiming], ...]
    bytes: float  # that have to come from memory once: Q, K, V and the outputs, or all that its launches touch
    flop: float | None  # None where nobody has said: then the model's own time of its products is their floor
    sass: Mapping[str, Sass] = field(default_factory=dict)  # by entry, where warps execute in its order

    def launches(self, times: Mapping[str, float] | None = None) -> tuple[Modelled, ...]:
        """The modelled launches, with other constants if they are given."""
        return tuple(timing.modelled(times) for _, timing in self.timings)

    def seconds(self, times: Mapping[str, float] | None = None) -> float:
        """Of a call among others on a stream, what launches cost included."""
        return seconds_of(self.architecture, self.launches(times))


def of_timings(gpu: str, timings: Sequence[tuple[str, LaunchTiming]]) -> CallTime:
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


def tensors_of(device: Device, call: Call) -> dict[str, int]:
    """The call's tensors on a device, inputs of drawn numbers among them: their addresses by FmhaParams' names."""
    rows, keys = call.batch * call.t * call.heads, call.batch * call.s_k * call.kv_heads
    addresses = {}
    tensors = {"q": rows, "k": keys} | ({} if call.shared_kv else {"v": keys})
    for k, (name, count) in enumerate(tensors.items()):
        elements = count * call.head_dim
        addresses[name] = device.alloc(2 * elements, name)
        data = numbers(min(elements, _AT_ONCE), k)
        for first in range(0, elements, _AT_ONCE):
            device.upload(addresses[name] + 2 * first, data[: elements - first])
    addresses["o"] = device.alloc(rows * call.head_dim * (2 if call.output_bf16 else 4), "o")
    for name in ("row_max", "row_sum", "lse"):
        addresses[name] = device.alloc(rows * 4, name)
    for name, count in call.partial_elements.items():
        addresses[name] = device.alloc(count * 4, name)
    return addresses


def model(
    gpu: str, variant: Variant, artifact: Path, call: Call, order: Order = "ptx", of: Given | None = None
) -> CallTime:
    """Launches `call` on a device that keeps time, over the operands `of` a configuration, or over random numbers of
    the call's sizes."""
    # With balanced splits each CTA leaves for the combine kernel which planes it has a part of: all have to run.
    device = _Gridded(gpu, order, sampled=call.balance is None)
    addresses = tensors_of(device, call) if of is None else place(device, call, of.inputs, of.others)
    lengths = [(call.t, call.s_k)] * call.batch if of is None else lengths_of(of)
    walkers, module = walkers_of(variant, call), device.load(artifact)
    if walkers and "drawn" not in addresses:
        addresses["drawn"] = device.alloc(4, "drawn")
    if walkers and call.total_q is not None:  # which row tiles there are each CTA finds out, and that once
        pieces = pieces_of(variant, call, lengths)
        if len(pieces) < PIECES_OF_A_CTA * walkers:  # the three that are recorded say nothing of the longest then
            raise UserError(
                f"packed queries of {len(pieces)} row tiles, which {walkers} CTAs draw: three say too little of so few",
                where=variant.name,
                next_step="take more or longer sequences, or measure it",
            )
        device.counter = addresses["drawn"]
        launch_attention(device, module, variant, call, addresses)
        device.timings[0][1].pieces = pieces
    elif walkers:
        _draw(device, module, variant, call, addresses, work_of(variant, call, lengths))
    else:  # each row tile has a CTA of its own
        addresses.pop("drawn", None)
        if of is not None:
            device.work = work_of(variant, call, lengths)
        launch_attention(device, module, variant, call, addresses)
    for n, (_, timing) in enumerate(device.timings):  # what the next launch reads stays in L2
        read = {base for _, behind in device.timings[n + 1 :] for base in behind.read}
        if written := sum(timing.written.values()):
            timing.to_memory = 1 - sum(timing.written.get(base, 0.0) for base in read) / written
    rows, keys = (sum(each) for each in zip(*lengths, strict=True))
    seen = sum(seen_by(call, *each) for each in lengths)
    if of is not None and of.inputs.sparse is not None:
        seen += of.inputs.sparse.indices.size
        keys += sum(np.unique(lists).size for lists in of.inputs.sparse.indices)
    moved = 2.0 * call.head_dim * (rows * call.heads * 2 + keys * call.kv_heads * (1 if call.shared_kv else 2))
    flop = 4.0 * seen * call.heads * call.head_dim
    return in_order(
        order,
        CallTime(architecture(gpu), tuple(device.timings), moved, flop),
        lambda: artifact.read_text(encoding="utf-8"),
        artifact,
    )


class _Gridded(EmulatorDevice):
    """One that keeps time, and launches in the grid that it is told."""

    def __init__(self, gpu: str, order: Order, sampled: bool) -> None:
        super().__init__(
            0, "realistic", checks=False, threads=1, timing=gpu, reordered=order == "sass", sampled=sampled
        )
        self.grid: tuple[int, int, int] | None = None

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        return super().launch(module, entry, replace(config, grid=self.grid or config.grid), params)


def _draw(
    device: _Gridded,
    module: LoadedModule,
    variant: Variant,
    call: Call,
    addresses: Mapping[str, int],
    work: list[float],
) -> None:
    """A call whose CTAs draw row tiles: those that are looked at do one each, and then two of some."""
    device.grid = row_tiles, _, _ = forward_grid(variant, call, draws=False)
    windowed = call.window_left is not None or call.window_right is not None
    even = call.t * call.planes.heads % tile_rows(variant, call) == 0
    lacking = None if even else row_tiles - 1 if from_end(variant, call) else 0  # the last row tile is the first CTA's
    ctas, twos = pairs(call, work, lacking, row_tiles)
    own = {n for two in twos for n in two.own}
    if work == work[:row_tiles] * (len(work) // row_tiles):
        places = {*(sampled(row_tiles) if windowed else (0, row_tiles - 1)), *(n % row_tiles for n in own)}
        if lacking is not None:  # it and the one beside it
            places |= {lacking, min(max(lacking, 1), max(row_tiles - 2, 0))}
    else:
        device.work, places = work, {*sampled_by(work), *own}
    device.looked_at = sorted(places)
    launch_attention(device, module, variant, call, addresses)
    entry, timing = device.timings.pop()
    timing.order = Drawn.of(call, row_tiles, walkers_of(variant, call)).ctas()
    if twos:
        device.work, device.looked_at, device.counter = (), [two.cta for two in twos], addresses["drawn"]
        device.grid = ctas, 1, 1
        launch_attention(device, module, variant, call, addresses)
        timing.pairs = device.timings.pop()[1], [(two.cta, two.own) for two in twos]
    device.timings.append((entry, timing))


def in_order(order: Order, time: CallTime, ptx: Callable[[], str], where: Path) -> CallTime:
    """The same launches with their warps in an order. For SASS they are of `ptx`, which lies at `where`, and a device
    that is `reordered` has recorded them."""
    if order == "ptx":
        return time
    sources = [source for _, timing in time.timings for source in timing.sources]
    listings = disassembled(ptx(), time.architecture.arch, sources, where)
    for entry, timing in time.timings:
        timing.ranks = listings[entry].ranks(timing.sources)
    return replace(time, sass=listings)
