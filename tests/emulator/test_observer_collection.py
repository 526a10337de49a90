"""An observer that whom it tells knows, as a debugger's does, is a cycle: Python's collector takes it."""

from __future__ import annotations

import gc
import weakref

from fmha.emulator import _core


class _Session:
    def __init__(self) -> None:
        self.observer = _core.Observer(self.tell)

    def tell(self, kind: str, event: dict[str, object]) -> None:
        del kind, event


def test_an_observer_that_is_known_to_whom_it_tells_is_collected() -> None:
    session = _Session()
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_an_observer_in_use_is_not() -> None:
    session = _Session()
    gone = weakref.ref(session)
    observer = session.observer
    del session
    gc.collect()
    assert gone() is not None
    del observer
    gc.collect()
    assert gone() is None
