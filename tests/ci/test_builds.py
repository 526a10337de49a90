"""Kernels of ours are compiled once for a checkout, and again where something has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builds import Builds, bring, keep

VARIANT = "sm90_hd64_rows64"


def entry(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.ptx").write_text(text)
    return folder / name


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_run_takes_what_an_earlier_one_has_kept(repository: Path, tmp_path: Path) -> None:
    kept, first, second = (tmp_path / name for name in ("kept", "first/builds", "second/builds"))
    first.parent.mkdir()
    made = Builds(repository, first, kept)[VARIANT]
    assert not made.cached
    bring(kept, second)
    again = Builds(repository, second, kept)[VARIANT]
    assert again.cached
    assert Path(again.ptx).is_relative_to(second)
    assert Path(again.ptx).read_bytes() == Path(made.ptx).read_bytes()
    # What was kept is held to its manifest, like any entry of the cache.
    third = tmp_path / "third/builds"
    bring(kept, third)
    (ptx,) = third.glob("*/*.ptx")
    ptx.write_text("nothing")
    assert not Builds(repository, third, tmp_path / "elsewhere")[VARIANT].cached


def test_an_entry_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for name in ("a-1-1", "a_b-1-1", "a-2-1"):
        keep(entry(tmp_path / "made", name, name), name.partition("-")[0], kept)
    assert sorted(path.name for path in kept.iterdir()) == ["a-2-1", "a_b-1-1"]
    assert (kept / "a-2-1/kernel.ptx").read_text() == "a-2-1"


def test_what_is_brought_is_there_once(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "run/builds"
    bring(kept, folder)
    assert not folder.exists()  # nothing was kept
    entry(kept, "a-1-1", "kept")
    bring(kept, folder)
    shutil.rmtree(folder / "a-1-1")
    bring(kept, folder)  # another worker, later
    assert list(folder.iterdir()) == []


def test_a_checkout_that_cannot_be_written_keeps_none(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("a file, where the folder would be")
    keep(entry(tmp_path / "made", "a-1-1", "x"), "a", tmp_path / "build" / "test-kernels")
    assert (tmp_path / "build").is_file()
