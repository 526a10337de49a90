"""How the mutation tool runs kernels that Triton and the CuTe DSL compiled: --launch thirdparty.py:NAME.

Released kernels break rules of the strict profile. Those that the kernel itself breaks, in any of the schedules, say
nothing about a mutant and are left out; every other rule of that profile, and the numbers, judge it.
"""

from __future__ import annotations

import functools

import emulator
from emulator.device import Schedule
from emulator.mutation import Trial
from emulator.mutation.run import Launch, schedule_plan
from tests.emulator.thirdparty.running import case, execute, mismatch, module_of

# A mutant that waits for what never comes ends soon: the kernels execute less than this.
MAX_INSTRUCTIONS = 3_000_000
RANDOMS = 8


def _run(name: str, module: emulator.Module, schedule: Schedule, seed: int) -> tuple[frozenset[str], bool]:
    device = emulator.Device(seed=seed, schedule=schedule, max_instructions=MAX_INSTRUCTIONS)
    report, outputs = execute(name, device, module)
    right = all(mismatch(expected, outputs[key]) is None for key, expected in case(name).expected.items())
    return frozenset(f.rule for f in report.findings if f.severity == "error"), right


@functools.cache
def broken_by(name: str) -> frozenset[str]:
    """The rules that the kernel itself breaks."""
    runs = (_run(name, module_of(name), schedule, seed) for schedule, seed in schedule_plan(RANDOMS))
    return frozenset().union(*(rules for rules, _ in runs))


def __getattr__(name: str) -> Launch:
    if name.startswith("__"):
        raise AttributeError(name)

    def launch(module: emulator.Module, schedule: Schedule, seed: int) -> Trial:
        rules, right = _run(name, module, schedule, seed)
        return Trial(tuple(sorted(rules - broken_by(name))), right)

    return launch
