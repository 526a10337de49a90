"""Kernels to look at: one of ours, built once, and small ones of PTX."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.see.configurations import of_configuration
from fmha.harness.see.launch_subject import LaunchSubject

CASE = "hd64_t32_sk256_p-smem"


@pytest.fixture(scope="session")
def ours(repository: Path, build_cache: Path) -> LaunchSubject:
    """head_dim 64, P through shared memory, two tiles of keys."""
    return of_configuration(repository, CASE, cache=build_cache)
