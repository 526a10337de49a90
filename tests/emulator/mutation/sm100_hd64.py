"""How the mutation tool runs our head_dim 64 kernel: two whole tiles of keys and more, and a ragged configuration."""

from __future__ import annotations

import functools

from emulator import Module
from emulator.device import Schedule
from emulator.mutation import Trial
from harness.reference import Reference, reference
from harness.worker.devices.emulator import EmulatorDevice
from harness.worker.inputs import Inputs, make_inputs
from harness.worker.measure import measure
from harness.worker.protocol import Configuration
from harness.worker.run import run_attention
from harness.worker.variants import VARIANTS

VARIANT = next(variant for variant in VARIANTS if variant.name == "sm100_hd64_ptmem")
CONFIGURATIONS = (Configuration(64, t=128, s_k=512), Configuration(64, t=72, s_k=300))
MAX_RELATIVE_L2 = 5e-3  # P and the inputs are bf16
MAX_LSE_ERROR = 1e-4


@functools.lru_cache
def _problem(configuration: Configuration) -> tuple[Inputs, Reference]:
    inputs = make_inputs(0, configuration)
    return inputs, reference(inputs)


def launch(module: Module, schedule: Schedule, seed: int) -> Trial:
    rules: list[str] = []
    right = True
    for configuration in CONFIGURATIONS:
        inputs, expected = _problem(configuration)
        outputs = run_attention(EmulatorDevice(seed, schedule), module, VARIANT, configuration, inputs)
        rules += [f.rule for f in outputs.report.findings if f.severity == "error"]
        if rules:
            break
        m = measure(configuration, outputs, expected)
        right = right and m.relative_l2 < MAX_RELATIVE_L2 and m.lse_error < MAX_LSE_ERROR
        right = right and not m.nonfinite_mismatches and not m.unwritten
    return Trial(tuple(rules), right)
