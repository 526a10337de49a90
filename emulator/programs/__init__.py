"""Whole programs that nvcc has built, unmodified: their CUDA runtime is ours, their kernels run on the machine.

A program is loaded with the shared library of `runtime/` as its libcudart and libcuda. That asks this process over a
socket (`wire`), where a `ProgramDevice` for each of its processes answers; `run` starts the program and hears it to
its end. docs/use/programs.md is the guide.
"""

from fmha.emulator.programs.gpu_models import GPUS
from fmha.emulator.programs.program_device import Keeping, Options, ProgramLaunch, ToldFinding
from fmha.emulator.programs.program_run import ProgramError, Ran, run_program

__all__ = ["GPUS", "Keeping", "Options", "ProgramError", "ProgramLaunch", "Ran", "ToldFinding", "run_program"]
