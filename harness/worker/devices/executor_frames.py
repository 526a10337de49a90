"""Messages between the worker and its executor: a line of JSON, then as many raw bytes as it announces.

No pickles: what reads a message makes numbers, text and bytes of it, and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PIPE_BYTES: Final = 1 << 20  # what the kernel lets anybody have: fewer switches between the two ends
MOST_WORDS: Final = 1 << 16  # bytes of a line, but for one that says of a launch
MOST_REPORT: Final = 16 << 20  # of that one: as much as a worker may say of a configuration
MOST_VALUES: Final = 1 << 20  # in one line: a value is a hundred bytes of memory and may be two of text


class ExecutorFrameError(Exception):
    """What came is no message; the text says why."""


class EndedError(Exception):
    """The other end says no more."""


class Channel:
    """Both directions of one end. Messages come and go whole; no two threads at once."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Takes over both descriptors, of pipes."""
        self._incoming, self._outgoing = io.BufferedReader(io.FileIO(incoming), 1 << 16), outgoing
        for descriptor in (incoming, outgoing):
            with contextlib.suppress(OSError):  # more than this account may have: slower then
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def send(self, header: Mapping[str, Any], payload: NDArray[Any] | bytes = b"") -> None:
        """An array in C's order, as it lies in memory. EndedError when nobody reads any more."""
        view = memoryview(payload) if isinstance(payload, bytes) else payload.data
        announced = {**header, "bytes": view.nbytes} if view.nbytes else header
        line = json.dumps(announced, default=_plain, separators=(",", ":")).encode() + b"\n"
        left = [memoryview(line), *([view.cast("B")] if view.nbytes else [])]
        try:
            while left:
                sent = os.writev(self._outgoing, left)
                while left and sent >= left[0].nbytes:
                    sent -= left.pop(0).nbytes
                if left:
                    left[0] = left[0][sent:]
        except OSError as error:
            raise EndedError from error

    def receive(self, most: int) -> dict[str, Any]:
        """The header of the next message, a line of `most` bytes; its "bytes" are still to be taken. FrameError,
        EndedError."""
        line = self._incoming.readline(most)
        if not line.endswith(b"\n"):
            raise ExecutorFrameError(f"a line of more than {most} bytes") if len(line) >= most else EndedError
        if line.count(b",") > MOST_VALUES:
            raise ExecutorFrameError(f"a line of more than {MOST_VALUES} values")
        try:
            header = json.loads(line, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            raise ExecutorFrameError(f"a line that is no JSON ({error})") from error
        if not isinstance(header, dict):
            raise ExecutorFrameError("a line that is no object")
        return header

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """The raw bytes of a message. EndedError."""
        data = np.empty(nbytes, dtype=np.uint8)
        view, at = data.data, 0
        while at < nbytes:
            taken = self._incoming.readinto(view[at:])
            if not taken:
                raise EndedError
            at += taken
        return data

    def close(self) -> None:
        self._incoming.close()
        os.close(self._outgoing)


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
