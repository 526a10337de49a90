"""The launch of a file of PTX, as its launch.yaml describes it."""

from __future__ import annotations

from pathlib import Path

from fmha import emulator
from fmha.emulator.device import Around
from fmha.emulator.timing.architecture import architecture
from fmha.harness.emulate import read_launch_file
from fmha.harness.emulate.launch_file import load, look_at, timed
from fmha.harness.errors import UserError
from fmha.harness.see.call_time import CallTime, Order, in_order, of_timings
from fmha.harness.see.configurations import parsed_schedule
from fmha.harness.see.launch_subject import LaunchSubject


def of_file(ptx: Path, launch: Path, schedule: str | None = None) -> LaunchSubject:
    """Of `fmha emulate`'s files. Raises UserError."""
    file = read_launch_file(launch)
    chosen, seed = parsed_schedule(schedule) if schedule else (None, 0)

    def run(around: Around) -> None:
        look_at(ptx, file, launch.parent, around, chosen, seed)

    def time(gpu: str, order: Order) -> CallTime:
        module = load(ptx)
        target = module.target
        if target[-1].isalpha() and target != architecture(gpu).arch:
            what = f"it is for {target}, which runs on no GPU but its own, and {gpu} is {architecture(gpu).arch}"
            raise UserError(what, where=str(ptx))
        timing = timed(ptx, file, launch.parent, gpu, reordered=order == "sass")
        found = of_timings(gpu, [(file.entry or next(iter(module.entries)), timing)])
        return in_order(order, found, lambda: module.parsed.source, ptx)

    return LaunchSubject(ptx.name, run, time, gpu_for(load(ptx)), file=ptx.resolve(), root=ptx.resolve().parent)


def gpu_for(module: emulator.Module) -> str:
    """The GPU that PTX is for, where nobody names one."""
    return "h200" if module.target.startswith("sm_90") else "b200"
