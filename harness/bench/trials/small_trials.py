"""Trials at small sizes on the emulator: that each can be launched, is right and shows no hazard."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmha.harness.bench.shapes.build_shapes import PTX, command
from fmha.harness.bench.shapes.check_numbers import verdict
from fmha.harness.bench.shapes.launch_problem import BuiltKernel, run_once
from fmha.harness.bench.shapes.launch_shapes import BuildShape
from fmha.harness.bench.shapes.problem import Problem, draw, reference
from fmha.harness.bench.shapes.tried_variants import ALL
from fmha.harness.bench.trials.trial import Trial
from fmha.harness.worker.devices.emulator_device import EmulatorDevice


def small(trial: Trial) -> Problem:
    """The same launch with a tile or two a split, a batch entry or two."""
    p, keys = trial.problem, ALL[trial.shape].keys
    if trial.long:
        return replace(p, t=200, s_k=200, batch=2)
    return replace(p, s_k=p.splits * keys + keys // 2, batch=min(p.batch, 2))


def attempt(trial: Trial) -> dict[str, Any]:
    """What `fmha.harness.bench.trials.tried` keeps of a trial, without times; RuntimeError for a wrong number or a
    hazard."""
    p, shape = small(trial), ALL[trial.shape]
    inputs = draw(p)
    out, findings = run_once(EmulatorDevice(0, "realistic"), kernel_of(shape), p, inputs)
    good, error, _ = verdict(p, out, reference(p, inputs))
    if findings or not good:
        raise RuntimeError(f"{trial.describe()}: {findings[0] if findings else f'relative error {error:.1e}'} of {p}")
    return {"relative_error": error}


@functools.cache
def kernel_of(shape: BuildShape) -> BuiltKernel:
    """The kernel of `shape`, compiled once a process."""
    with tempfile.TemporaryDirectory(prefix="fmha-trial-") as folder:
        target = Path(folder) / "kernel.ptx"
        subprocess.run(command(shape, target, PTX), check=True)
        return BuiltKernel(EmulatorDevice(0, "realistic").load(target), shape)
