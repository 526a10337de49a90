"""A program run to its end, on a CUDA runtime of ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import fmha.emulator
from fmha.emulator.programs.images import RUNTIME, why_not
from fmha.emulator.programs.program_device import Options, ProgramDevice, ProgramHistory
from fmha.emulator.programs.wire import serve

LIBRARY: Final = "libfmha_cuda.so.13"
NAMES: Final = (RUNTIME, "libcuda.so.1", "libcuda.so")  # what programs and those that load by name ask for
VARIABLE: Final = "FMHA_PROGRAM"  # where the library finds this process
_PATIENCE: Final = 10.0  # seconds for a launch to stop, and for a program that was told to end


class ProgramError(Exception):
    """A program that cannot be run; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Ran:
    """`code` is the program's own, or as shells have it 128 and the signal that ended it."""

    seen: ProgramHistory
    code: int
    signal: str = ""
    cut: tuple[str, ...] = ()  # kernels that were running when it ended
    asked: bool = False  # whether it has used CUDA at all


def library() -> Path:
    """The shared library that programs are given. ProgramError where the installation has none."""
    for folder in fmha.emulator.__path__:
        path = Path(folder) / "programs" / LIBRARY
        if path.is_file():
            return path
    raise ProgramError(f"this installation of fmha has no {LIBRARY}: install it again")


def run_program(
    words: Sequence[str],
    options: Options,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    stdout: IO[str] | None = None,
) -> Ran:
    """Runs `PROGRAM ARGS...`, its kernels on the machine. What is found is told by `say` as soon as it is there.

    ProgramError for what cannot be started; an error of the machine itself is raised when the program has ended. The
    program has our standard input and output, unless `stdout` is given.
    """
    found = shutil.which(words[0])
    if found is None:
        raise ProgramError(f"{words[0]}: no program")
    if why := why_not(Path(found)):
        raise ProgramError(f"{words[0]}: {why}")
    with _Server(options, say) as server:
        environment = os.environ | {VARIABLE: str(server.address)}
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{server.folder}:{before}" if before else str(server.folder)
        try:
            process = subprocess.Popen([found, *words[1:]], env=environment, stdout=stdout)
        except OSError as error:
            raise ProgramError(f"{words[0]}: {error.strerror}") from error
        with _ended(process):
            code = process.wait()
        server.close()
        if server.failure is not None:
            raise server.failure
        name = signal.Signals(-code).name if code < 0 else ""
        return Ran(server.seen, 128 - code if code < 0 else code, name, tuple(server.cut), server.asked)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens here, the program does not outlive it."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(slots=True)
class _Line:
    """To one process of the program."""

    machine: ProgramDevice
    connection: socket.socket
    thread: threading.Thread | None = None


@dataclass(slots=True)
class _Server:
    """Answers every process of the program, each with a machine of its own."""

    options: Options
    say: Callable[[str], None]
    seen: ProgramHistory = field(default_factory=ProgramHistory)
    cut: list[str] = field(default_factory=list)
    lines: list[_Line] = field(default_factory=list)
    asked: bool = False
    failure: BaseException | None = None  # of ours: what the program has seen since is no result
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _socket: socket.socket | None = None
    _accepting: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folder(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name)

    @property
    def address(self) -> Path:
        return self.folder / "socket"

    def __enter__(self) -> _Server:
        target = library()
        self._folder = tempfile.TemporaryDirectory(prefix="fmha-")
        for name in NAMES:
            (self.folder / name).symlink_to(target)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self.address))
        self._socket.listen()
        self._accepting = threading.Thread(target=self._accept, args=(self._socket,), daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        assert self._folder is not None
        self._folder.cleanup()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed
                return
            line = _Line(ProgramDevice(self.options, self.seen, self._told), connection)
            line.thread = threading.Thread(target=self._serve, args=(line,), daemon=True)
            with self._lock:
                self.lines.append(line)
                line.thread.start()

    def _serve(self, line: _Line) -> None:
        try:
            serve(line.connection, line.machine.answer)
        except BaseException as error:  # an onlooker may want to begin again
            with self._lock:
                self.failure = self.failure or error

    def _told(self, text: str) -> None:
        with self._lock:
            self.say(text)

    def close(self) -> None:
        """The program is over: launches that still run are stopped, and processes that it has left are on their own."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._socket = None
        assert self._accepting is not None
        self._accepting.join(_PATIENCE)
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.connection.shutdown(socket.SHUT_RDWR)
            if line.machine.launching:
                self.cut.append(line.machine.launching)
                line.machine.stop()
        for line in self.lines:
            assert line.thread is not None
            line.thread.join(_PATIENCE)
        self.asked = bool(self.lines)
        self.lines.clear()  # each knows this object: a circle, with the device's memory in it
