"""The folder of an archive, and what is said when it cannot be written to."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fmha.harness.errors import InfrastructureError


def prepare(directory: Path) -> None:
    """Create the directory and prove that a file can be made in it. Raises InfrastructureError."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".probe-", dir=directory)
        os.close(descriptor)
        os.unlink(name)


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot archive: {error.strerror}",
            where=str(directory),
            next_step="free space or name another folder with --results",
        ) from error
