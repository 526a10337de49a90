from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.conftest import checkout as checkout


@pytest.fixture
def fmha(checkout: Path, repository: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `fmha` in the checkout."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fmha", *arguments],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(repository)} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run
