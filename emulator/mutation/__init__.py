"""Mutation of PTX: does the machine see a kernel's synchronisation and operands being broken, one at a time?

`python -m fmha.emulator.mutation KERNEL.ptx --launch SPEC` deletes, weakens or steps every synchronisation
instruction and every barrier or descriptor operand, runs each mutant under several schedules, and reports which were
noticed.
"""

from fmha.emulator.mutation.notice import Launch, MutantOutcome, MutantTrial, MutationError, run_mutants, schedule_plan
from fmha.emulator.mutation.operators import PtxMutant, mutants_of
from fmha.emulator.mutation.redundant import Redundant, load_redundant

__all__ = [
    "Launch",
    "MutantOutcome",
    "MutantTrial",
    "MutationError",
    "PtxMutant",
    "Redundant",
    "load_redundant",
    "mutants_of",
    "run_mutants",
    "schedule_plan",
]
