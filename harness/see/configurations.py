"""A configuration's launches, of our kernels or of one's own, built from the sources below a root as runs do."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from fmha.emulator.device import Around, Schedule
from fmha.emulator.timing.architecture import architecture
from fmha.harness import account, config
from fmha.harness.config.kernels import parse
from fmha.harness.config.own_kernels import OwnKernel
from fmha.harness.contract.device import DeviceError, IllegalError
from fmha.harness.contract.protocol import BuildResult, Cell, Variant
from fmha.harness.errors import UserError
from fmha.harness.judge.case import Case
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.schedules import parse_schedule
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.see.call_time import CallTime, Order, in_order, model, of_timings
from fmha.harness.see.launch_subject import Clock, LaunchSubject
from fmha.harness.see.modelled_call import chosen
from fmha.harness.worker.compilers.build_kernels import build_variants
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.run_attention import run_attention
from fmha.harness.worker.subjects.called import Called, subject_of
from fmha.harness.worker.subjects.declared import Declared

BUILD_SECONDS = 600.0
GPU_OF = {"sm_90a": "h200", "sm_100a": "b200"}  # whose time is modelled where nobody names a GPU


def of_configuration(
    root: Path, name: str, *, schedule: str = "realistic", seed: int | None = None, cache: Path | None = None
) -> LaunchSubject:
    """Of the kernel of matrix.yaml in `root` that runs a configuration. It is built when it is first looked at.

    Raises UserError for a name that is none, or of what launches nothing.
    """
    matrix = config.load(root)
    cell = cell_of(matrix, name)
    arch = matrix.hosts["emulator"].arch if "emulator" in matrix.hosts else "sm_100a"
    drawn = matrix.seed if seed is None else seed
    timing, schedule_seed = parsed_schedule(schedule)
    folder = cache or account.folder("builds")
    if isinstance(cell, Configuration):
        return _ours(root, cell, arch, timing, schedule_seed, drawn, folder)
    kernel = matrix.kernels[cell.kernel]
    declared = subject_of(kernel.adapter) if isinstance(kernel, OwnKernel) else None
    if declared is None or isinstance(declared, Called) or not isinstance(cell, Case):
        what = f"{cell.kernel} is a library's function: it is called, and none of its launches is seen here"
        raise UserError(what, where=name)
    return _own(root, cell, declared, arch, timing, schedule_seed, drawn, folder)


def is_ours(name: str) -> bool:
    """Whether it is the name of a configuration of attention."""
    try:
        parse_id(name)
    except ValueError:
        return False
    return True


def cell_of(matrix: config.Matrix, name: str) -> Cell:
    """The configuration of a name. UserError for what is none."""
    try:
        return parse(name, matrix.kernels)
    except ValueError as error:
        raise UserError(str(error), where=name) from error


def parsed_schedule(text: str) -> tuple[Schedule, int]:
    """UserError for a schedule that there is none of."""
    try:
        name, seed = parse_schedule(text, 0)
    except ValueError as error:
        raise UserError(f"--schedule: {error}") from error
    return cast(Schedule, name), seed


def _ours(
    root: Path, cell: Configuration, arch: str, schedule: Schedule, schedule_seed: int, seed: int, cache: Path
) -> LaunchSubject:
    variant = variant_for(cell, arch)
    if isinstance(variant, str):
        raise UserError(variant, where=cell.id)
    build = functools.cache(lambda: built(root, variant, cache))
    inputs = functools.cache(lambda: make_inputs(seed, cell))

    def run(around: Around) -> None:
        device = EmulatorDevice(schedule_seed, schedule, around=around)
        with _told(cell.id):
            run_attention(device, device.load(Path(build().ptx)), variant, cell, inputs())

    def time(gpu: str, order: Order) -> CallTime:
        one = chosen(cell, architecture(gpu))
        return model(gpu, one.variant, Path(built(root, one.variant, cache).ptx), one.call, order, one.of)

    return LaunchSubject(cell.id, run, time, GPU_OF.get(arch, "b200"), build, root=root)


def _own(
    root: Path,
    cell: Case,
    declared: Declared,
    arch: str,
    schedule: Schedule,
    schedule_seed: int,
    seed: int,
    cache: Path,
) -> LaunchSubject:
    build = functools.cache(lambda: built(root, _variant(declared, cell, arch), cache))
    inputs = functools.cache(lambda: declared.inputs(seed, cell))

    def launched(device: EmulatorDevice, build: BuildResult) -> None:
        with _told(cell.id):
            declared.run(device, device.load(Path(build.ptx)), build.variant, cell, inputs())

    def run(around: Around) -> None:
        launched(EmulatorDevice(schedule_seed, schedule, around=around), build())

    def time(gpu: str, order: Order) -> CallTime:
        timed, clock = built(root, _variant(declared, cell, architecture(gpu).arch), cache), Clock()
        reordered = order == "sass"
        device = EmulatorDevice(
            0, "realistic", checks=False, threads=1, timing=gpu, around=clock, sampled=False, reordered=reordered
        )
        launched(device, timed)
        ptx = Path(timed.ptx)
        return in_order(order, of_timings(gpu, clock.timings), lambda: ptx.read_text(encoding="utf-8"), ptx)

    return LaunchSubject(cell.id, run, time, GPU_OF.get(arch, "b200"), build, root=root)


def _variant(declared: Declared, cell: Case, arch: str) -> Variant:
    variant = declared.variant_for(cell, arch)
    if isinstance(variant, str):
        raise UserError(variant, where=cell.id)
    return variant


def built(root: Path, variant: Variant, cache: Path) -> BuildResult:
    """UserError, with the compiler's own words, for what does not build."""
    (result,) = build_variants(root, [variant], cache, BUILD_SECONDS, 1, lambda _: None)
    if result.error is not None:
        raise UserError(f"it does not build: {result.error.strip()}", where=variant.name)
    return result


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What cannot be launched is the asker's to know; a run would call it a crash."""
    try:
        yield
    except (DeviceError, IllegalError, ValueError) as error:
        raise UserError(str(error), where=name) from error
