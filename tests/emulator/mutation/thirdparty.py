"""How the mutation tool runs kernels that Triton and the CuTe DSL compiled: --launch thirdparty.py:NAME.

Released kernels break rules of the strict profile. What the kernel itself breaks, rule and line, in any of the
schedules, says nothing about a mutant and is left out; everything else that profile reports, and the numbers, judge it.
"""

from __future__ import annotations

import functools

from fmha import emulator
from fmha.emulator.device import Schedule
from fmha.emulator.mutation import MutantTrial
from fmha.emulator.mutation.notice import Launch, schedule_plan
from tests.emulator.thirdparty.running import case, execute, mismatch, module_of

# A mutant that waits for what never comes ends soon: the kernels execute less than this.
MAX_INSTRUCTIONS = 3_000_000
RANDOMS = 8


Broken = frozenset[tuple[str, int]]  # rule and PTX line, which a mutant keeps


def _run(name: str, module: emulator.Module, schedule: Schedule, seed: int) -> tuple[Broken, bool]:
    device = emulator.Device(seed=seed, schedule=schedule, max_instructions=MAX_INSTRUCTIONS)
    report, outputs = execute(name, device, module)
    right = all(mismatch(expected, outputs[key]) is None for key, expected in case(name).expected.items())
    errors = (f for f in report.findings if f.severity == "error")
    return frozenset((f.rule, f.place.ptx_line if f.place else 0) for f in errors), right


@functools.cache
def broken_by(name: str) -> Broken:
    """What the kernel itself breaks, and where."""
    runs = (_run(name, module_of(name), schedule, seed) for schedule, seed in schedule_plan(RANDOMS))
    return frozenset().union(*(broken for broken, _ in runs))


def __getattr__(name: str) -> Launch:
    if name.startswith("__"):
        raise AttributeError(name)

    def launch(module: emulator.Module, schedule: Schedule, seed: int) -> MutantTrial:
        broken, right = _run(name, module, schedule, seed)
        return MutantTrial(tuple(sorted(rule for rule, _ in broken - broken_by(name))), right)

    return launch
