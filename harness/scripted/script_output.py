"""Where what a script prints goes when standard output is for what is said of it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from io import TextIOWrapper


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Whatever writes to standard output meanwhile writes to standard error: Python, libraries and child processes."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def own_stdout() -> Iterator[TextIOWrapper]:
    """Standard output as it is now, for who speaks while a script does that is `aside`."""
    sys.stdout.flush()
    with open(os.dup(1), "w", encoding="utf-8", errors="backslashreplace") as stream:
        yield stream
