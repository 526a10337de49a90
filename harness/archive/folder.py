"""The folder of an archive, and what is said when it cannot be written to."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fmha.harness.errors import InfrastructureError

BASELINES = "baselines"
_HEAD_BYTES = 1 << 12
_COMMIT = re.compile(rb'"commit": *\{"sha": *"([0-9a-f]{40,64})"')


def prepare(directory: Path) -> None:
    """Create the directory and prove that a file can be made in it. Raises InfrastructureError."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".probe-", dir=directory)
        os.close(descriptor)
        os.unlink(name)


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Errors of the file system in here become an InfrastructureError that says what to do."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"cannot archive: {error.strerror}",
            where=str(directory),
            next_step="free space or name another folder with --results",
        ) from error


def baseline_commits(results: Path) -> tuple[str, ...]:
    """The commits that the baselines of an archive are of, as far as their files say.

    Asked before every run elsewhere: a record is a megabyte, and its commit is among the first of it.
    """
    found = []
    for path in sorted((results / BASELINES).glob("*.json")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            found += _COMMIT.findall(file.read(_HEAD_BYTES))[:1]
    return tuple(sha.decode("ascii") for sha in found)
