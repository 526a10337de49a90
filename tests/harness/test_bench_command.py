"""`fmha bench` where it cannot run says in one line what is missing."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed here")
def test_without_its_packages_it_says_so() -> None:
    done = subprocess.run([sys.executable, "-m", "fmha", "bench"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "triton" in done.stderr
    assert "fmha[cuda,bench]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
