"""The agent's side of the line: JSON objects, one a line, and the frames of a pack."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

MOST_LINE_BYTES = 64 << 20  # of one message: a job has the text of a matrix.yaml, and what configurations have cost
MOST_FRAME_BYTES = 16 << 20
PATIENCE_SECONDS = 1200.0  # the client may have to make a large pack before it can send any of it


class GoneError(Exception):
    """The client is not there any more."""


class Conversation:
    """The line to the client: requests in, answers out, over standard input and output."""

    def __init__(self) -> None:
        stdin = sys.stdin.buffer
        assert isinstance(stdin, io.BufferedReader)
        os.set_blocking(0, False)  # the request may come later than what goes ahead of it
        self._pending = stdin.read1(1 << 16) or b""  # what has come by now: whoever unpacked us has read some of it
        os.set_blocking(0, True)
        self._out = os.dup(1)
        os.dup2(2, 1)  # whatever else prints does not get into the conversation
        self._heard = time.monotonic()
        self._gone = False
        self._sending = threading.Lock()
        self._beating: threading.Thread | None = None
        self._quiet = threading.Event()

    def receive(self) -> dict[str, Any]:
        """The next message; one that is none is the end: whoever says it is no client of ours."""
        try:
            message = json.loads(self._line())
        except (ValueError, RecursionError) as error:
            raise GoneError from error
        if not isinstance(message, dict):
            raise GoneError
        return message

    def frame(self) -> bytes:
        """The next piece of a pack; nothing at its end."""
        (length,) = struct.unpack(">I", self._exactly(4))
        if length > MOST_FRAME_BYTES:
            raise GoneError
        return self._exactly(length)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message, a line of JSON. GoneError where the client has gone."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                while data:
                    data = data[os.write(self._out, data) :]
        except OSError as error:
            self._gone = True
            raise GoneError from error

    @contextlib.contextmanager
    def beating(self, seconds: float) -> Iterator[None]:
        """Says every `seconds` that we are there, until `quiet` or the end of the context. Starts a thread."""
        self._quiet.clear()
        self._beating = threading.Thread(target=self._beat, args=(seconds,), daemon=True)
        self._beating.start()
        try:
            yield
        finally:
            self.quiet()

    def quiet(self) -> None:
        """Ends `beating`, and its thread."""
        self._quiet.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None

    def listen(self) -> None:
        """From here on the client only says that it is there. Starts a thread; `present` tells what it has heard."""
        self._heard = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()

    def present(self, seconds: float) -> bool:
        """Whether the client has been heard within `seconds` and has not closed the line."""
        return not self._gone and time.monotonic() - self._heard < seconds

    def _beat(self, seconds: float) -> None:
        with contextlib.suppress(GoneError):
            while not self._quiet.wait(seconds):
                self.send({"beat": time.time()})

    def _listen(self) -> None:
        with contextlib.suppress(GoneError):
            while self._line():
                self._heard = time.monotonic()
        self._gone = True

    def _line(self) -> bytes:
        looked = 0
        while self._pending.find(b"\n", looked) < 0:
            looked = len(self._pending)
            if looked > MOST_LINE_BYTES:
                raise GoneError
            self._read()
        line, _, self._pending = self._pending.partition(b"\n")
        return line + b"\n"

    def _exactly(self, length: int) -> bytes:
        pieces, missing = [self._pending[:length]], length - len(self._pending)
        self._pending = self._pending[length:]
        while missing > 0:
            self._read()
            pieces.append(self._pending[:missing])
            self._pending, missing = self._pending[missing:], missing - len(self._pending)
        return b"".join(pieces)

    def _read(self) -> None:
        """More of what the client says. A connection that is lost without a word is given up in the end."""
        if not select.select([0], [], [], PATIENCE_SECONDS)[0] or not (data := os.read(0, 1 << 16)):
            raise GoneError
        self._pending += data
