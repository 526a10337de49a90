from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evidence.conftest import fmha as fmha
from tests.harness.conftest import checkout as checkout
from tests.report.browser import Browser, started


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for the module; skips where there is none."""
    with started(tmp_path_factory.mktemp("profile")) as found:
        yield found
