from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forked
from tests.harness.conftest import checkout as checkout


@pytest.fixture
def fmha(checkout: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `fmha` in the checkout."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return forked.fmha(*arguments, cwd=checkout, env=os.environ | environment, timeout=120)

    return run
