"""Hostile PTX for the core: what it does to a process is told, and the PTX of one that died is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import fuzz

KERNELS = sorted((fuzz.REPOSITORY / "tests" / "emulator" / "thirdparty").glob("vector_add.ptx"))


def test_changed_kernels_are_refused_or_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "MANY", 30)
    assert fuzz.process(KERNELS, 1, tmp_path) == 0
    counts = dict(line.split() for line in (tmp_path / "counts").read_text().splitlines())
    assert sum(map(int, counts.values())) == 30
    assert {"PtxError", "findings", "clean"} & counts.keys()
    assert not any(name.startswith("internal") for name in counts)
    assert [path.name for path in tmp_path.iterdir()] == ["counts"]


def test_the_ptx_of_a_process_that_dies_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "tried", lambda text, seed: os.abort())
    assert fuzz.process(KERNELS, 1, tmp_path) != 0
    assert ".entry" in (tmp_path / "1.ptx").read_text()
