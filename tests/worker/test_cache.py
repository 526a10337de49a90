import fcntl
import json
import os

import pytest

from fmha.harness.worker.compilers import cache


def build(folder, key="k", text="artefact"):
    """An entry of one file, published as `folder`/entry."""
    with cache.workspace(folder) as space:
        work = space / "entry"
        work.mkdir()
        (work / "a.txt").write_text(text)
        return cache.publish(work, folder / "entry", key, {"note": 1})


def test_what_is_published_is_found(tmp_path):
    manifest = build(tmp_path)
    assert cache.lookup(tmp_path / "entry", "k") == manifest
    assert manifest["note"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "entry"]


def remove_manifest(entry):
    (entry / cache.MANIFEST).unlink()


def truncate_manifest(entry):
    (entry / cache.MANIFEST).write_text((entry / cache.MANIFEST).read_text()[:20])


def forget_files(entry):
    (entry / cache.MANIFEST).write_text(json.dumps({"key": "k"}))


def flip_a_byte(entry):
    (entry / "a.txt").write_text("artefacT")


def remove_artefact(entry):
    (entry / "a.txt").unlink()


@pytest.mark.parametrize(
    "damage", [remove_manifest, truncate_manifest, forget_files, flip_a_byte, remove_artefact], ids=lambda f: f.__name__
)
def test_a_damaged_entry_is_none_and_is_replaced(tmp_path, damage):
    manifest = build(tmp_path)
    damage(tmp_path / "entry")
    assert cache.lookup(tmp_path / "entry", "k") is None
    assert build(tmp_path) == manifest
    assert cache.lookup(tmp_path / "entry", "k") == manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "entry"]


def test_another_key_is_another_entry(tmp_path):
    build(tmp_path)
    assert cache.lookup(tmp_path / "entry", "other") is None


def test_the_first_of_two_builders_wins(tmp_path):
    first = build(tmp_path, text="first")
    assert build(tmp_path, text="second") == first
    assert (tmp_path / "entry" / "a.txt").read_text() == "first"


def fail_in_workspace(folder):
    with cache.workspace(folder) as space:
        (space / "half").write_text("x")
        raise KeyboardInterrupt


def test_a_workspace_goes_whatever_happens(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fail_in_workspace(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_workspaces_of_the_dead_are_swept_and_of_the_living_kept(tmp_path):
    dead, living = tmp_path / "tmp-dead", tmp_path / "tmp-living"
    dead.mkdir()
    living.mkdir()
    descriptor = os.open(living, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with cache.workspace(tmp_path) as own:
            assert own.is_dir()
        assert not dead.exists()
        assert living.exists()
    finally:
        os.close(descriptor)
