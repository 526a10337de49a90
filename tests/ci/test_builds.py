"""What tests run is compiled once for a checkout, and again where something has changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests import compiled
from tests.builds import Builds, bring, keep_all

VARIANT = "sm90_hd64_rows64"


def entry(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.ptx").write_text(text)
    (folder / name / "manifest.json").write_text("{}")
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


def test_what_was_used_last_is_kept(tmp_path: Path) -> None:
    made, kept = tmp_path / "made", tmp_path / "kept"
    for age, name in enumerate(("c-1-1", "a-1-1", "b-1-1")):
        os.utime(entry(made, name, 1000 * name), (99 - age, 99 - age))
    (made / "half-1-1").mkdir()  # whoever built it was killed
    keep_all(made, kept)
    assert sorted(path.name for path in kept.iterdir() if path.is_dir()) == ["a-1-1", "b-1-1", "c-1-1"]
    os.utime(made / "b-1-1", (200, 200))  # by a later run
    keep_all(made, kept, most_bytes=14_000)
    assert sorted(path.name for path in kept.iterdir() if path.is_dir()) == ["b-1-1", "c-1-1"]
    assert (kept / "b-1-1/kernel.ptx").read_text() == 1000 * "b-1-1"


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
    entry(tmp_path / "made", "a-1-1", "x")
    keep_all(tmp_path / "made", tmp_path / "build" / "test-kernels")
    assert (tmp_path / "build").is_file()


@pytest.mark.nvcc
def test_what_a_test_compiles_is_taken_until_a_file_or_a_flag_is_another(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def made(run: str, header: str, *flags: str) -> str:
        """In a folder of its own, as each run of the tests has one."""
        folder = tmp_path / run
        folder.mkdir()
        (folder / "value.h").write_text(f"#define VALUE {header}\n")
        (folder / "kernel.cu").write_text('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }\n')
        source = folder / "kernel.cu"
        return compiled.nvcc(folder / "kernel.ptx", source, "-ptx", "-arch=sm_90a", *flags, kept=kept).read_text()

    first = made("one", "7531")
    assert "7531" in first
    (entry_of_it,) = kept.iterdir()
    (entry_of_it / "kernel.ptx").write_text("kept")
    assert made("two", "7531") == "kept"
    assert made("three", "7531", "-G") not in ("kept", first)
    changed = made("four", "7532")
    assert "7532" in changed
    assert made("five", "7532") == changed
