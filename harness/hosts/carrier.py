"""A process with pipes that carries bytes to an agent: the agent itself, or the ssh that leads to one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shlex
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts.shipment import COMMAND

WRITE_SECONDS = 30.0  # without a byte taken, and the line is lost
EXIT_SECONDS = 5.0  # between the last that a process writes and its exit code
LOCAL_EXIT_SECONDS = 60.0  # an agent here ends by itself
AHEAD_BYTES = 1 << 18  # that a process may be given before it reads any
_KEPT_BYTES = 1 << 16  # of what it says on its standard error
_WORDS = 300


_open: weakref.WeakSet[ProcessCarrier] = weakref.WeakSet()
_left = threading.Event()


def abandon() -> None:
    """Ends every line that is open, and lets none be opened any more: whoever waits for one stops waiting. For a client
    that is told to end while hosts are asked in threads of their own."""
    _left.set()
    for carrier in list(_open):
        carrier.kill()


def pause(seconds: float) -> None:
    """Waits, but not once the lines have been abandoned."""
    _left.wait(seconds)


class LineError(InfrastructureError):
    """The line broke: nothing is known to have gone wrong at its other end."""


class BusyError(LineError):
    """The other end has no room for one more just now: it is worth another attempt."""


class UnknownHostError(InfrastructureError):
    """Nobody has set the host up here: its name means nothing to the program that would reach it."""


class Carrier(Protocol):
    """A process with pipes, here or at the other end of a connection."""

    def write(self, data: bytes) -> None:
        """Sends bytes; OSError or InfrastructureError where nobody takes them."""

    def read(self, seconds: float) -> bytes:
        """What has come, as soon as anything has; nothing at the end, and None of it after `seconds`: LineError."""

    def epitaph(self) -> str:
        """What the process said on its standard error, and its exit code, once `read` has returned nothing."""

    def close(self) -> None: ...


class ProcessCarrier:
    """A process of ours. It has no terminal, so that nothing in it can ask for a password; Ctrl-C does not reach it."""

    def __init__(self, words: Sequence[str], where: str, environment: Mapping[str, str] | None = None) -> None:
        self.where = where
        self._said = bytearray()
        if _left.is_set():
            raise InfrastructureError("interrupted", where=where)
        try:
            self._process = subprocess.Popen(
                list(words),
                env=None if environment is None else dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot be started: {error.strerror}", where=words[0]) from error
        self._stdin, self._stdout, self._stderr = map(_there, self._pipes())
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stderr.fileno(), False)
        _open.add(self)

    def kill(self) -> None:
        """Ends the process at once."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def offer(self, data: bytes) -> bytes:
        """Writes what is taken without waiting, and returns the rest."""
        with contextlib.suppress(OSError):  # an account has only so many large pipes; whoever writes the rest waits
            fcntl.fcntl(self._stdin.fileno(), fcntl.F_SETPIPE_SZ, AHEAD_BYTES)
        with contextlib.suppress(OSError):  # what has ended is found so by whoever writes the rest
            return data[os.write(self._stdin.fileno(), data) :]
        return data

    def write(self, data: bytes) -> None:
        """Waits as long as bytes are taken."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._stdin.fileno(), view) :]
            except BlockingIOError:
                if not self._wait(self._stdin, selectors.EVENT_WRITE, WRITE_SECONDS):
                    raise LineError(f"nothing was taken for {WRITE_SECONDS:.0f} s", where=self.where) from None
            except OSError as error:  # it ended, or was never started, before it had read everything
                raise LineError(self.epitaph(), where=self.where) from error

    def read(self, seconds: float) -> bytes:
        if not self._wait(self._stdout, selectors.EVENT_READ, seconds):
            raise TimeoutError
        return os.read(self._stdout.fileno(), 1 << 16)

    def epitaph(self) -> str:
        code = self.exit_code()
        if code is None:
            return "the connection was lost"
        from fmha.harness.worker.processes.groups import describe_exit  # here: a connection is begun before all else

        said = self.said().splitlines()
        return f"the agent ended with {describe_exit(code)}" + (f": {said[-1][:_WORDS]}" if said else "")

    def exit_code(self) -> int | None:
        """None when it has not ended by itself within EXIT_SECONDS."""
        try:
            return self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """The last of its standard error."""
        self._drain()
        return self._said.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Closes the line; the agent ends by itself once it notices, and is waited for."""
        self._end(LOCAL_EXIT_SECONDS)

    def _end(self, patience: float) -> None:
        for stream in self._pipes():
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pipes(self) -> tuple[IO[bytes] | None, ...]:
        return self._process.stdin, self._process.stdout, self._process.stderr

    def _wait(self, stream: IO[bytes], event: int, seconds: float) -> bool:
        """Whether the stream is ready within `seconds`. What is said on standard error is taken meanwhile: a process
        that cannot get rid of it would stand still."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            selector.register(self._stderr, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(max(0.0, deadline - time.monotonic()))]
                if stream in ready:
                    return True
                if self._stderr in ready and not self._drain():
                    selector.unregister(self._stderr)
                if time.monotonic() >= deadline:
                    return False

    def _drain(self) -> bool:
        """Takes what standard error has; False once it has ended."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = os.read(self._stderr.fileno(), _KEPT_BYTES)
                if not data:
                    return False
                self._said += data
                del self._said[:-_KEPT_BYTES]
                if len(data) < _KEPT_BYTES:
                    return True
        return True


class LocalCarrier(ProcessCarrier):
    """An agent on this machine."""

    def __init__(self, python: str) -> None:
        super().__init__([os.path.expanduser(python), *shlex.split(COMMAND)], python)


def _there(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
