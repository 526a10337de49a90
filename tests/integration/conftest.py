"""What every test of faults is held to."""

from collections.abc import Iterator

import psutil
import pytest

from tests import forked


def children() -> set[psutil.Process]:
    return {child for child in psutil.Process().children(recursive=True) if child.pid not in forked.loaded}


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """A test leaves no process behind; servers that other tests share were there before."""
    before = children()
    yield
    assert children() <= before
