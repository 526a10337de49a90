"""`fmha.emulated`: code whose kernels run on the emulator, as a decorator or in a `with`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final, TypeVar, overload

from fmha.emulator.device import PROFILES, SCHEDULES, Profile, Schedule
from fmha.harness.errors import UserError
from fmha.harness.scripted.script_machine import (
    ARCHS,
    LaunchRefusedError,
    ScriptFinding,
    ScriptLaunch,
    ScriptMachine,
    ScriptOptions,
)

__all__ = [
    "HazardError",
    "LaunchRefusedError",
    "ScriptFinding",
    "ScriptLaunch",
    "ScriptMachine",
    "checked",
    "emulated",
    "running",
]

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_TOLD: Final = 8  # hazards in an error's text
_RUNNING: list[ScriptMachine] = []


class HazardError(AssertionError):
    """Kernels that were launched have hazards; `hazards` has them all."""

    def __init__(self, hazards: list[ScriptFinding]) -> None:
        self.hazards = tuple(hazards)
        rest = len(hazards) - MOST_TOLD
        more = [f"and {rest} more"] if rest > 0 else []
        super().__init__("\n".join([f"{len(hazards)} hazards", *map(str, hazards[:MOST_TOLD]), *more]))


def checked(arch: str, schedule: str, profile: str, seed: int = 0, threads: int = 1) -> ScriptOptions:
    """UserError for a word that the machine does not know."""
    for name, given, known in (
        ("arch", arch, tuple(ARCHS)),
        ("schedule", schedule, SCHEDULES),
        ("profile", profile, PROFILES),
    ):
        if given not in known:
            raise UserError(f"--{name}: {given!r} is not one of {', '.join(known)}")
    timing: Schedule = next(word for word in SCHEDULES if word == schedule)
    rules: Profile = next(word for word in PROFILES if word == profile)
    return ScriptOptions(arch, timing, seed, rules, threads)


def say(told: ScriptFinding) -> None:
    """A finding, on standard error as soon as it is there."""
    remedy = told.finding.remedy
    print(f"{told}\n  what to do: {remedy}" if remedy else told, file=sys.stderr, flush=True)


@contextlib.contextmanager
def running(options: ScriptOptions, tell: Callable[[ScriptFinding], None] = say) -> Iterator[ScriptMachine]:
    """The machine on which kernels run that are launched within. Hazards are told and kept; nothing is raised."""
    machine = ScriptMachine(options)
    _RUNNING.append(machine)
    try:
        with contextlib.ExitStack() as stack:
            if len(_RUNNING) == 1:  # the outermost puts everything in place
                if find_spec("torch") is not None:
                    from fmha.harness.scripted import graphs, torch_device

                    stack.enter_context(torch_device.replaced(lambda: _RUNNING[-1]))
                    stack.enter_context(graphs.replaced(lambda: _RUNNING[-1], tell))
                if find_spec("triton") is not None:
                    from fmha.harness.scripted.triton_driver import installed

                    stack.enter_context(installed(lambda: _RUNNING[-1], tell))
            yield machine
    finally:
        _RUNNING.remove(machine)


class _Emulated(contextlib.ContextDecorator):
    def __init__(self, options: ScriptOptions) -> None:
        self._options = options
        self._stack: list[contextlib.ExitStack] = []

    def __enter__(self) -> ScriptMachine:
        stack = contextlib.ExitStack()
        machine = stack.enter_context(_strict(self._options))
        self._stack.append(stack)
        return machine

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.pop().__exit__(*error)


@contextlib.contextmanager
def _strict(options: ScriptOptions) -> Iterator[ScriptMachine]:
    with running(options, lambda told: None) as machine:
        yield machine
    if machine.hazards:
        raise HazardError(machine.hazards)


@overload
def emulated(function: Function) -> Function: ...


@overload
def emulated(
    *, arch: str = ..., schedule: str = ..., seed: int = ..., profile: str = ..., threads: int = ...
) -> _Emulated: ...


def emulated(
    function: Any = None,
    *,
    arch: str = "sm_100a",
    schedule: str = "realistic",
    seed: int = 0,
    profile: str = "lenient",
    threads: int = 1,
) -> Any:
    """Kernels that the code launches run on the emulator, with tensors on the CPU: Triton's, through torch.

    As `@emulated`, `@emulated(arch="sm_90a")` or `with emulated() as machine:`. `machine.launches` and
    `machine.findings` say what was run and found. At the end HazardError is raised when there were hazards.
    """
    made = _Emulated(checked(arch, schedule, profile, seed, threads))
    return made if function is None else functools.wraps(function)(made(function))
