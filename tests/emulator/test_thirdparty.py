"""Kernels that Triton and CuTe DSL compiled run right, and clean of false positives.

The oracle is float64 NumPy, its tolerance the rounding of the formats (thirdparty/oracle.py). The profile is lenient:
both compilers leave out fences that the ISA asks for.
"""

from __future__ import annotations

import pytest

from fmha import emulator
from tests.emulator.thirdparty.running import NAMES, case, execute, mismatch

# Only the random schedule draws from the seed.
RUNS = [("realistic", 0), ("early", 0), ("late", 0), ("random", 0), ("random", 1), ("random", 2)]


@pytest.mark.parametrize(("schedule", "seed"), RUNS, ids=[f"{s}-{n}" for s, n in RUNS])
@pytest.mark.parametrize("name", NAMES)
def test_runs_right_and_clean(name: str, schedule: emulator.device.Schedule, seed: int) -> None:
    device = emulator.Device(seed=seed, schedule=schedule, profile="lenient")
    report, outputs = execute(name, device)
    assert [str(f) for f in report.findings] == []
    wrong = {key: mismatch(expected, outputs[key]) for key, expected in case(name).expected.items()}
    assert {key: line for key, line in wrong.items() if line} == {}
