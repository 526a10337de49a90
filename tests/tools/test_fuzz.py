"""Hostile PTX for the core: what it does to a process is told, and the PTX of one that died is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import fuzz

KERNELS = sorted((fuzz.REPOSITORY / "tests" / "emulator" / "thirdparty").glob("vector_add.ptx"))


def test_changed_kernels_are_refused_or_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "MANY", 30)
    assert os.waitpid(fuzz.begun(KERNELS, 1, tmp_path), 0)[1] == 0
    counts = dict(line.split() for line in (tmp_path / "counts").read_text().splitlines())
    assert sum(map(int, counts.values())) == 30
    assert {"PtxError", "findings", "clean"} & counts.keys()
    assert not any(name.startswith("internal") for name in counts)
    assert [path.name for path in tmp_path.iterdir()] == ["counts"]


def test_the_ptx_of_a_process_that_dies_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "tried", lambda text, seed: os.abort())
    assert os.waitpid(fuzz.begun(KERNELS, 1, tmp_path), 0)[1] != 0
    assert ".entry" in (tmp_path / "1.ptx").read_text()


def test_several_at_once_are_counted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "tried", lambda text, seed: os.abort())
    begun: list[int] = []

    def one(kernels: list[Path], seed: int, keep: Path) -> int:
        monkeypatch.setattr(fuzz.time, "monotonic", lambda: float(len(begun)))
        begun.append(seed)
        return original(kernels, seed, keep)

    original = fuzz.begun
    monkeypatch.setattr(fuzz, "begun", one)
    monkeypatch.setattr(fuzz.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr("sys.argv", ["fuzz", "--seconds", "4", "--processes", "3", "--keep", str(tmp_path)])
    assert fuzz.main() == 1
    said = capsys.readouterr().out
    assert "4 processes of 40 kernels, 4 of them did not end by themselves" in said
    assert all(f"seed {seed}: SIGABRT" in said for seed in range(4))


def test_what_the_decoder_raises_is_told_of_this_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "internal-KeyError-5-7.ptx").write_text(".entry")
    monkeypatch.setattr("sys.argv", ["fuzz", "--seconds", "0", "--keep", str(tmp_path)])
    assert fuzz.main() == 0
    assert "the decoder raised" not in capsys.readouterr().out
    assert (tmp_path / "earlier" / "internal-KeyError-5-7.ptx").exists()

    def one(kernels: list[Path], seed: int, keep: Path) -> int:
        now.append(100.0)
        return original(kernels, seed, keep)

    now, original = [0.0], fuzz.begun
    monkeypatch.setattr(fuzz, "MANY", 1)
    monkeypatch.setattr(fuzz, "tried", lambda text, seed: {}["none"])
    monkeypatch.setattr(fuzz, "begun", one)
    monkeypatch.setattr(fuzz.time, "monotonic", lambda: now[-1])
    monkeypatch.setattr("sys.argv", ["fuzz", "--seconds", "50", "--keep", str(tmp_path)])
    assert fuzz.main() == 1
    assert "the decoder raised KeyError" in capsys.readouterr().out
