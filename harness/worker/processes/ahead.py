"""Work that is begun before its answer is needed, in a thread: mostly of waiting for another program."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Begins `work`; a call returns what it returned, or raises what it raised, once it has."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __call__(self) -> T:
        """What the work returned, once it has; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._done[0]

    def _run(self) -> None:
        try:
            self._done.append(self._work())
        except BaseException as error:
            self._error = error
