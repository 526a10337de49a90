"""The agent's side of the line: JSON objects, one a line, and the frames of a pack."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any


class GoneError(Exception):
    """The client is not there any more."""


class Conversation:
    def __init__(self) -> None:
        self._in = sys.stdin.buffer
        self._out = os.dup(1)
        os.dup2(2, 1)  # whatever else prints does not get into the conversation
        self._heard = time.monotonic()
        self._gone = False
        self._sending = threading.Lock()
        self._beating: threading.Thread | None = None
        self._quiet = threading.Event()

    def receive(self) -> dict[str, Any]:
        line = self._in.readline()
        if not line.endswith(b"\n"):
            raise GoneError
        message: dict[str, Any] = json.loads(line)
        return message

    def frame(self) -> bytes:
        """The next piece of a pack; nothing at its end."""
        (length,) = struct.unpack(">I", self._exactly(4))
        return self._exactly(length)

    def send(self, message: dict[str, Any]) -> None:
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
        threading.Thread(target=self._listen, daemon=True).start()

    def present(self, seconds: float) -> bool:
        """Whether the client has been heard within `seconds` and has not closed the line."""
        return not self._gone and time.monotonic() - self._heard < seconds

    def _beat(self, seconds: float) -> None:
        with contextlib.suppress(GoneError):
            while not self._quiet.wait(seconds):
                self.send({"beat": time.time()})

    def _listen(self) -> None:
        while self._in.readline():
            self._heard = time.monotonic()
        self._gone = True

    def _exactly(self, length: int) -> bytes:
        data = self._in.read(length)
        if len(data) != length:
            raise GoneError
        return data
