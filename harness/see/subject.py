"""A launch to look at: of one of our kernels by a configuration's name, or of any kernel by its PTX and launch.yaml."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from fmha.emulator.device import Schedule
from fmha.harness import account, config
from fmha.harness.contract.protocol import BuildResult, Resources
from fmha.harness.emulate import read_launch_file
from fmha.harness.emulate.launch import look_at
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.judge.configuration import Configuration, parse_id
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.schedules import parse_schedule
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.compilers.build import build_variants
from fmha.harness.worker.devices.emulator import Around, EmulatorDevice
from fmha.harness.worker.run import run_attention


@dataclass(frozen=True, slots=True)
class Subject:
    """`run` makes its launches, each within what its argument makes for it."""

    name: str
    run: Callable[[Around], None]
    resources: Resources | None = None  # what ptxas says of the kernel, where it was built here
    threads: int = 0  # of a CTA
    shared_bytes: int = 0  # dynamic, that the launch asks for
    ptx: Path = Path()
    root: Path = Path()  # below which its sources lie


def of_file(ptx: Path, launch: Path, schedule: str | None = None) -> Subject:
    """Of `fmha emulate`'s files. Raises UserError."""
    file = read_launch_file(launch)
    chosen, seed = _schedule(schedule) if schedule else (None, 0)

    def run(around: Around) -> None:
        look_at(ptx, file, launch.parent, around, chosen, seed)

    return Subject(ptx.name, run, None, math.prod(file.block), file.shared_bytes, ptx.resolve(), ptx.resolve().parent)


def of_configuration(
    root: Path, name: str, *, schedule: str = "realistic", seed: int | None = None, cache: Path | None = None
) -> Subject:
    """Of the attention kernel that runs a configuration, built from the sources below `root` as a run builds them.

    Raises UserError for a name that is none, or a kernel that does not build.
    """
    try:
        configuration = parse_id(name)
    except ValueError as error:
        raise UserError(f"{name}: {error}", next_step="docs/use/matrix.md explains names") from error
    matrix = config.load(root)
    build = _built(root, configuration, matrix.hosts["emulator"].arch, cache or account.folder("builds"))
    chosen, schedule_seed = _schedule(schedule)
    inputs = make_inputs(matrix.seed if seed is None else seed, configuration)

    def run(around: Around) -> None:
        device = EmulatorDevice(schedule_seed, chosen, around=around)
        run_attention(device, device.load(Path(build.ptx)), build.variant, configuration, inputs)

    shape = build.variant.shape
    return Subject(name, run, build.resources, shape.threads, shape.shared_bytes, Path(build.ptx), root)


def subject_of(
    root: Path, what: str, launch: Path | None, schedule: str | None = None, cache: Path | None = None
) -> Subject:
    """`what` is a file of PTX where `launch` is given, and a configuration's name otherwise."""
    if launch is not None:
        return of_file(Path(what), launch, schedule)
    if what.endswith((".ptx", ".cubin", ".o")) or os.sep in what:
        raise UserError(f"{what}: a file needs its launch", next_step="give --launch LAUNCH.yaml")
    return of_configuration(root, what, schedule=schedule or "realistic", cache=cache)


def _built(root: Path, configuration: Configuration, arch: str, cache: Path) -> BuildResult:
    variant = variant_for(configuration, arch)
    if isinstance(variant, str):
        raise UserError(variant)
    (result,) = build_variants(root, [variant], cache, 600.0, 1, lambda _: None)
    if result.error is not None:
        raise InfrastructureError(f"{variant.name} does not build: {result.error.partition(chr(10))[0]}")
    return result


def _schedule(text: str) -> tuple[Schedule, int]:
    try:
        name, seed = parse_schedule(text, 0)
    except ValueError as error:
        raise UserError(f"--schedule: {error}") from error
    return cast(Schedule, name), seed
