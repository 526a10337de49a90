"""The fmha that goes to a host with kernels of one's own; tests/remote/test_own_kernels.py has it go there."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from fmha.harness.errors import InfrastructureError
from fmha.harness.hosts import installed_commit


def test_one_that_was_only_found_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installed_commit.metadata, "version", missing)
    with pytest.raises(InfrastructureError, match="was not installed") as raised:
        installed_commit.committed(tmp_path, "emulator")
    assert raised.value.next_step == "pip install it"
