"""The client's side of the line to an agent: JSON lines both ways, with a time limit on every wait."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from harness.errors import InfrastructureError, UserError
from harness.hosts.shipment import COMMAND, GREETING, preamble

ANSWER_SECONDS = 60.0
SYNC_SECONDS = 1200.0
MOST_CHATTER = 200  # lines that the account's start-up files may print before the agent speaks
_WORDS = 300


class LineError(InfrastructureError):
    """The line broke: nothing is known to have gone wrong at its other end."""


class Carrier(Protocol):
    """A process with pipes, here or at the other end of a connection."""

    def write(self, data: bytes) -> None: ...

    def read(self, seconds: float) -> bytes:
        """What has come, as soon as anything has; nothing at the end. LineError after `seconds`."""

    def epitaph(self) -> str:
        """What the process said on its standard error, and its exit code, once `read` has returned nothing."""

    def close(self) -> None: ...


class Line:
    """One session with an agent, which is taken for lost when nothing has come for `silence` seconds."""

    def __init__(self, carrier: Carrier, where: str, silence: float) -> None:
        self._carrier = carrier
        self._where = where
        self._silence = silence
        self._pending = b""

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, folder: str, request: Mapping[str, Any]) -> None:
        """Sends everything up to the request in one go, and waits for the agent to greet."""
        self._carrier.write(preamble(folder) + _encoded({**request, "silence": self._silence}))
        chatter = []
        deadline = time.monotonic() + ANSWER_SECONDS
        for _ in range(MOST_CHATTER):
            line = self._read_line(max(0.0, deadline - time.monotonic()))
            if line == GREETING:
                return
            chatter.append(line)
        raise InfrastructureError(f"no agent answers; the host says {chatter[0][:_WORDS]!r}", where=self._where)

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The agent's next message that is no beat. Raises as `receive` does, and LineError after `seconds`."""
        deadline = time.monotonic() + seconds
        while "beat" in (message := self.receive()):
            if time.monotonic() > deadline:
                raise LineError(f"no answer within {seconds:.0f} s", where=self._where)
        return message

    def receive(self) -> dict[str, Any]:
        """The agent's next message; there is a beat when it has nothing else to say. Raises LineError, or what the
        agent reports as its error."""
        line = self._read_line(self._silence)
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise LineError(f"the agent wrote what is no message: {line[:_WORDS]!r}", where=self._where) from error
        if "error" in message:
            kind = UserError if message["usage"] else InfrastructureError
            raise kind(message["error"], where=self._where, next_step=message["next"])
        return message

    def send(self, message: Mapping[str, Any]) -> None:
        self._carrier.write(_encoded(message))

    def send_pack(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._carrier.write(struct.pack(">I", len(piece)) + piece)
        self._carrier.write(struct.pack(">I", 0))

    def close(self) -> None:
        self._carrier.close()

    def _read_line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            data = self._carrier.read(max(0.0, deadline - time.monotonic()))
            if not data:
                raise LineError(self._carrier.epitaph(), where=self._where)
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line + b"\n"


class LocalCarrier:
    """An agent on this machine."""

    def __init__(self, python: str) -> None:
        words = [os.path.expanduser(python), *shlex.split(COMMAND)]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the client
                bufsize=0,
            )
        except OSError as error:
            raise InfrastructureError(f"cannot be started: {error.strerror}", where=python) from error

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self._process.stdin.write(view) or 0 :]
        except OSError as error:
            raise LineError(f"the agent is gone: {error.strerror}") from error

    def read(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise LineError(f"the agent said nothing for {seconds:.0f} s")
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def epitaph(self) -> str:
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        return f"the agent ended with exit code {self._process.wait()}" + (f": {said[-1][:_WORDS]}" if said else "")

    def close(self) -> None:
        """Closes the line; the agent ends by itself once it notices, and is waited for."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _encoded(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
