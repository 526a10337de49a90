"""The launches of a program that nvcc has built, or of a Python script: made anew by each look, from its beginning."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from fmha.emulator import programs
from fmha.emulator.device import Around
from fmha.emulator.timing.architecture import architecture
from fmha.harness.errors import UserError
from fmha.harness.scripted import script_machine
from fmha.harness.scripted.script_output import aside
from fmha.harness.scripted.script_run import run_script
from fmha.harness.see.call_time import CallTime, Order, of_timings
from fmha.harness.see.configurations import GPU_OF, parsed_schedule
from fmha.harness.see.launch_subject import Clock, LaunchSubject


def of_program(words: Sequence[str], arch: str, schedule: str | None = None) -> LaunchSubject:
    """What it prints goes to standard error. Raises UserError for one that cannot be started."""
    timing, seed = parsed_schedule(schedule or "realistic")

    def run(around: Around) -> None:
        launched(programs.Options(arch, timing, seed, around=around))

    def time(gpu: str, order: Order) -> CallTime:
        _as_written(order, shlex.join(words))
        clock = Clock()
        launched(programs.Options(architecture(gpu).arch, around=clock, timing="whole", timed_as=gpu))
        return of_timings(gpu, clock.timings)

    def launched(options: programs.Options) -> None:
        try:
            ran = programs.run_program(words, options, lambda line: None, sys.stderr)
        except programs.ProgramError as error:
            raise UserError(str(error)) from error
        for what in ran.seen.refused:
            print(f"fmha: {words[0]}: refused: {what}", file=sys.stderr)
        _ended(shlex.join(words), ran.code)

    return LaunchSubject(shlex.join(words), run, time, GPU_OF.get(arch, "b200"))


def of_script(words: Sequence[str], arch: str, schedule: str | None = None) -> LaunchSubject:
    """`words` are those behind `python`. What it prints goes to standard error. Raises UserError for no script."""
    timing, seed = parsed_schedule(schedule or "realistic")

    def run(around: Around) -> None:
        launched(script_machine.ScriptOptions(arch, timing, seed, around=around))

    def time(gpu: str, order: Order) -> CallTime:
        _as_written(order, shlex.join(words))
        clock = Clock()
        launched(script_machine.ScriptOptions(architecture(gpu).arch, timing=gpu, whole=True, around=clock))
        return of_timings(gpu, clock.timings)

    def launched(options: script_machine.ScriptOptions) -> None:
        with aside():
            ran = run_script(words, options, lambda told: None)
        _ended(shlex.join(words), ran.failed)

    return LaunchSubject(shlex.join(words), run, time, GPU_OF.get(arch, "b200"))


def _as_written(order: Order, name: str) -> None:
    """UserError for SASS: a program has modules of its own, and how it had them compiled is not known here."""
    if order == "sass":
        what = "--order sass: launches of a program or a script are modelled in the PTX's order alone"
        step = "write one by `fmha launches --write`, and name its kernel.ptx"
        raise UserError(what, where=name, next_step=step)


def _ended(name: str, code: int) -> None:
    if code:
        print(f"fmha: {name} ended with {code}; its launches until then are looked at", file=sys.stderr)
