"""`fmha`: the entry point, and the one place where errors become lines and exit codes."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from fmha.harness.errors import CommitError, ExitCode, FmhaError, InterruptionError, UserError
from fmha.harness.text import one_line

LEAVE_SECONDS = 3.0  # what clearing up has after a second signal: a group of processes is given two to end by itself
_INTERRUPTED = 128 + signal.SIGINT  # how Typer ends where it is interrupted itself, and says nothing
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class CommandSession:
    """What parsing the command line leaves behind: the command to execute, and whether tracebacks are wanted."""

    debug: bool = False
    action: Callable[[], int] | None = None


def main() -> NoReturn:
    """The command `fmha`: what it is started with in, exit code out."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Parse, execute, and answer for every error. Returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    session = CommandSession(debug=os.environ.get("FMHA_DEBUG", "") not in ("", "0"))
    for stop in _STOPS:
        if signal.getsignal(stop) is not signal.SIG_IGN:  # nohup means it
            signal.signal(stop, _stop)
    try:
        # Typer swallows KeyboardInterrupt and broken pipes in its own way, so it only parses.
        code = _parse(arguments, session)
        if session.action is None:
            return code
        code = session.action()
        sys.stdout.flush()
        return code
    except BaseException as error:
        return _answer(error, session.debug)


def exit_code_of(error: BaseException) -> ExitCode:
    """The mapping of errors to exit codes."""
    if isinstance(error, UserError):
        return ExitCode.USAGE
    if isinstance(error, CommitError):
        return ExitCode.GATE_FAILED
    if isinstance(error, InterruptionError | KeyboardInterrupt):
        return ExitCode.INCOMPLETE
    return ExitCode.INFRASTRUCTURE


def _parse(arguments: Sequence[str], session: CommandSession) -> int:
    from fmha.harness.hosts import early  # here, so that an interrupt in the slow imports has its answer too

    early.begin(arguments, Path.cwd())
    gc.disable()
    from fmha.harness.cli.app import application

    try:
        application()(args=list(arguments), prog_name="fmha", obj=session)
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            raise KeyboardInterrupt from stop
        return stop.code if isinstance(stop.code, int) else ExitCode.PASS
    finally:
        # What is loaded stays: looking through it takes a tenth of a second, at the latest when we end. Once a process:
        # a second time would keep the garbage of the command before, with a device and its memory in it.
        if not gc.get_freeze_count():
            gc.freeze()
        gc.enable()
    return ExitCode.PASS


def _answer(error: BaseException, debug: bool) -> int:
    """One line a problem on standard error; the traceback when it was asked for."""
    match error:
        case FmhaError():
            lines = str(error).splitlines()
        case KeyboardInterrupt():
            lines = ["interrupted"]
        case BrokenPipeError():
            _drop(sys.stdout)
            lines = ["the output was closed before everything was written"]
        case OSError():
            if not error.filename:
                _drop(sys.stdout)
            lines = [f"{error.filename}: {error.strerror}" if error.filename else f"cannot write: {error.strerror}"]
        case _:
            lines = [f"internal error: {type(error).__name__}: {error}; FMHA_DEBUG=1 shows where"]
    try:
        if debug:
            import traceback

            traceback.print_exception(error)
        for line in lines:
            print(f"fmha: {one_line(line)}", file=sys.stderr)
        sys.stderr.flush()
    except OSError:  # standard error may be what broke
        _drop(sys.stderr)
    return exit_code_of(error)


def _drop(stream: TextIO) -> None:
    """Python flushes its streams once more at exit; what a broken one still holds must not fail there again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """The first signal unwinds the stack, which clears up. Whoever says it again does not want to wait for that."""
    for stop in _STOPS:
        signal.signal(stop, _leave)
    raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    """The second signal: what is cleared up by now is, and a moment later this process has ended, whatever it waits
    for. A signal that is said twice at once, as `timeout` and a terminal do, still leaves the moment."""
    for stop in _STOPS:
        signal.signal(stop, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, LEAVE_SECONDS)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, b"fmha: interrupted\n")
    os._exit(ExitCode.INCOMPLETE)
