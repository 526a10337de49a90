"""A pack on its way to the host, kept as far as it has come: a connection that breaks costs only what had not arrived.

The client names a pack by its sha256, so that the same bytes are the same file, whichever connection brings them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from fmha.harness.supervisor.rundir import HostError

FOLDER = "incoming"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Upload:
    """A pack of `size` bytes with this sha256. `start` is how much of it is here."""

    def __init__(self, folder: Path, digest: str, size: int) -> None:
        if not _DIGEST.fullmatch(digest) or size < 0:
            raise HostError("the client offers what is no pack", "fmha here and there may differ; try again")
        self._path = folder / FOLDER / f"{digest}.pack"
        self._digest = digest
        self._size = size
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.start = min(self._path.stat().st_size if self._path.exists() else 0, size)

    @contextlib.contextmanager
    def taken(self, feed: Callable[[], bytes]) -> Iterator[BinaryIO]:
        """The whole pack, once `feed` has returned what is missing, piece by piece, nothing being its end; afterwards
        it is gone. Raises HostError when it is not the pack that was named.

        An earlier connection's agent may still write what had come over it. It has the same bytes for the same places,
        so that both may write, each where it is.
        """
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            trouble = ""
            at = self.start
            while piece := feed():  # to the end in any case: the client reads no answer before
                try:
                    while piece and not trouble:
                        written = os.pwrite(file.fileno(), piece, at)
                        piece, at = piece[written:], at + written
                except OSError as error:
                    trouble = error.strerror or str(error)
                if at > self._size:
                    trouble = "it is longer than was said"
            try:
                if trouble:
                    raise HostError(f"the commit cannot be kept: {trouble}", "free space there, or try again")
                if hashlib.file_digest(file, "sha256").hexdigest() != self._digest:
                    raise HostError("the pack that came is not the one that was named", "try again")
                file.seek(0)
                yield file
            finally:
                self._path.unlink(missing_ok=True)
