"""What a process on the other side of the wall writes to its standard error."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from typing import IO, Final

from fmha.harness.text import lines
from fmha.harness.worker.processes.groups import GRACE_SECONDS, MARK, last_words

MOST_STDERR: Final = 1 << 20  # characters of its standard error that are handed on
_TAIL_BYTES: Final = 1 << 16


class Heard:
    """What comes from the standard error of a process that is not trusted: the first MOST_STDERR characters go to ours
    as text that a terminal and a CI system show and do not obey, each line behind MARK, so that nobody takes it for
    ours; all is read, and the end is kept.

    What floods it fills no disk and is no sign of life: with nothing handed on, a worker is silent.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = MOST_STDERR
        self._within = False  # a line whose beginning was handed on
        self._tail = bytearray()
        self._taking = threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        """Of a process that has ended."""
        self._thread.join(GRACE_SECONDS)
        return last_words(bytes(self._tail))

    def forget(self) -> None:
        """What has been written until now is no part of the end."""
        with self._taking:
            for _ in range(2):  # a pipe holds no more than one reading takes
                self._take()
            self._tail = bytearray()

    def _read(self) -> None:
        going = True
        while going:
            select.select([self._stream], [], [])
            with self._taking:
                going = self._take()
        with self._taking:
            self._stream.close()

    def _take(self) -> bool:
        """What is there, if anything; whether more may come."""
        if self._stream.closed or not select.select([self._stream], [], [], 0)[0]:
            return not self._stream.closed
        data = os.read(self._stream.fileno(), _TAIL_BYTES)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if data and self._left > 0:
            text = self._marked("\n".join(lines(data.decode("utf-8", errors="replace"))))
            cut = text if len(text) < self._left else text[: self._left] + "\n(the rest is left out)\n"
            self._left -= len(text)
            with contextlib.suppress(OSError):  # a full disk costs nobody a result
                sys.stderr.write(cut)
                sys.stderr.flush()
        return bool(data)

    def _marked(self, text: str) -> str:
        """With MARK at the beginning of each line."""
        marked = "".join(MARK + line for line in text.splitlines(keepends=True))
        begun, self._within = self._within, not text.endswith("\n")
        return marked.removeprefix(MARK) if begun else marked
