"""The time limit of each test: one thread looks after those of all tests, in place of one that is started for each.

pytest-timeout starts and ends a thread a test, which is more than most of our twelve thousand tests take. What happens
when a limit has passed is pytest-timeout's own.
"""

from __future__ import annotations

import threading
from time import monotonic  # by this name no test replaces it
from typing import Any

import pytest
from pytest_timeout import timeout_timer

PERIOD = 1.0  # seconds: how late it may notice


class Watch:
    """Ends the process when the test that runs has passed its limit, as `method: thread` of pytest-timeout does."""

    def __init__(self) -> None:
        self._running: tuple[float, pytest.Item, Any] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, item: pytest.Item, settings: Any) -> None:
        self._running = monotonic() + settings.timeout, item, settings
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="time limits", daemon=True)
            self._thread.start()

    def end(self) -> None:
        self._running = None

    def _look(self) -> None:
        never = threading.Event()
        while not never.wait(PERIOD):
            running = self._running
            if running is not None and monotonic() >= running[0]:
                self._running = None  # told once, should somebody debug it
                timeout_timer(*running[1:])
