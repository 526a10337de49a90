"""What git lists of a commit, read as it comes and no further than any commit needs.

A tree of ten folders that are one and the same, of ten each, and so on, is a few kilobytes and has as many files as its
author likes. So git is ended where it says too much; nothing of what it would have said is kept.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fmha.harness.supervisor.rundir import HostError

MOST_NAMES = 200_000  # files and folders of one commit
MOST_BYTES = 64 << 20  # of all that is said of them
_PIECE = 1 << 16


class ListingError(HostError):
    """git failed, or took too long; `said` is its standard error."""

    def __init__(self, what: str, said: bytes = b"") -> None:
        super().__init__(what)
        self.said = said


def names_of(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    seconds: float,
    most_names: int = MOST_NAMES,
    most_bytes: int = MOST_BYTES,
) -> list[bytes]:
    """What a git command with -z prints, item by item. Raises HostError for more than that, ListingError where git does
    not get to its end."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            list(command), cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        )
        assert process.stdout is not None
        limit = threading.Timer(seconds, process.kill)
        limit.start()
        data, count, began = bytearray(), 0, time.monotonic()
        try:
            while piece := os.read(process.stdout.fileno(), _PIECE):
                data += piece
                count += piece.count(b"\0")
                if count > most_names or len(data) > most_bytes:
                    raise HostError(
                        f"the commit has more than {most_names} files and folders, or {most_bytes >> 20} MiB of names",
                        "see who has made it: it may have one folder many times",
                    )
            code = process.wait()
        finally:
            limit.cancel()
            process.kill()  # which does nothing to one that has ended
            process.wait()
            process.stdout.close()
        if code != 0:
            said.seek(0)
            late = time.monotonic() - began >= seconds
            raise ListingError(f"took longer than {seconds:g} s" if late else "failed", said.read(_PIECE))
    return [item for item in bytes(data).split(b"\0") if item]
