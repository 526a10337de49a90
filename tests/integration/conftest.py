"""What every test of faults is held to."""

from collections.abc import Iterator

import psutil
import pytest


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """A test leaves no process behind; servers that other tests share were there before."""
    before = children()
    yield
    assert children() <= before
