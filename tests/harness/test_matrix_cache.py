"""What matrix.yaml means is kept in the account's folder, and is what reading it anew gives."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fmha.harness.config import Matrix, interpret, load, matrix_cache
from fmha.harness.config.plain import matrix_of, plain_of
from fmha.harness.errors import ConfigError

WARM = """
import sys
from pathlib import Path
from fmha.harness.config import load
matrix = load(Path(sys.argv[1])).complete()
print(matrix.sha256, sorted({name.partition(".")[0] for name in sys.modules} & {"pydantic", "yaml"}))
"""


@pytest.fixture
def root(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FMHA_HOSTS", str(tmp_path / "hosts.yaml"))
    (tmp_path / "hosts.yaml").write_text("hosts: {}\n")
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copy(repository / "matrix.yaml", folder)
    return folder


def files(root: Path) -> list[Path]:
    return sorted((root.parent / "cache" / matrix_cache.FOLDER).glob("[0-9a-f]*"))


def anew(root: Path) -> Matrix:
    raw = (root / "matrix.yaml").read_bytes()
    return interpret(raw.decode(), "matrix.yaml", hashlib.sha256(raw).hexdigest())


def test_what_is_kept_is_what_was_read(root: Path):
    read = anew(root)
    again = matrix_of(json.loads(json.dumps(plain_of(read))))
    for field in dataclasses.fields(read):
        ours, theirs = getattr(again, field.name), getattr(read, field.name)
        assert (dict(ours) if field.name == "suites" else ours) == theirs, field.name
    assert dataclasses.replace(again).judged_sha256 == read.judged_sha256  # made anew of its parts


def start(root: Path) -> str:
    done = subprocess.run([sys.executable, "-c", WARM, str(root)], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_second_start_reads_no_yaml(root: Path):
    first, second = start(root), start(root)
    assert first.endswith("['pydantic', 'yaml']\n")
    assert second.endswith("[]\n")
    assert first.split()[0] == second.split()[0]
    assert len(files(root)) == 1


def test_another_text_other_hosts_and_other_code_are_others(root: Path, monkeypatch: pytest.MonkeyPatch):
    raw = (root / "matrix.yaml").read_bytes()
    names = {
        matrix_cache.name_of(raw, b""),
        matrix_cache.name_of(raw, None),
        matrix_cache.name_of(raw + b"\n", b""),
        matrix_cache.name_of(raw, b"x"),
    }
    monkeypatch.setattr(matrix_cache, "_code", lambda: b"other")
    assert len(names | {matrix_cache.name_of(raw, b"")}) == 5


def test_one_s_own_hosts_are_those_of_now(root: Path):
    assert "mine" not in load(root).hosts
    (root.parent / "hosts.yaml").write_text("hosts:\n  mine: {kind: ssh, alias: there}\n")
    assert load(root).hosts["mine"].remote.alias == "there"  # type: ignore[union-attr]
    assert "mine" not in load(root, own=False).hosts


@pytest.mark.parametrize("damage", ["cut", "loosened", "no JSON"])
def test_what_is_damaged_is_read_anew(root: Path, damage: str):
    good = start(root)
    (path,) = files(root)
    data = path.read_bytes()
    changed = {
        "cut": data[: len(data) // 2],
        "loosened": data.replace(b'"lse_error":', b'"lse_error":9'),
        "no JSON": hashlib.sha256(b"[").hexdigest().encode() + b"\n[",
    }[damage]
    assert changed != data
    path.write_bytes(changed)
    assert start(root).split()[0] == good.split()[0]
    assert path.read_bytes() == data


def test_a_file_that_is_wrong_is_kept_by_nobody(root: Path):
    (root / "matrix.yaml").write_text("seed: none\n")
    for _ in range(2):
        with pytest.raises(ConfigError):
            load(root)
    assert not files(root)


def test_a_folder_in_the_checkout_is_not_taken(root: Path, monkeypatch: pytest.MonkeyPatch):
    """A commit could bring it, with gates that hold nothing."""
    monkeypatch.setenv("FMHA_CACHE", str(root / "cache"))
    raw = (root / "matrix.yaml").read_bytes()
    loose = plain_of(anew(root)) | {"seed": 4711}
    text = json.dumps(loose).encode()
    path = root / "cache" / matrix_cache.FOLDER / matrix_cache.name_of(raw, b"hosts: {}\n")
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert load(root).seed != 4711
    monkeypatch.setenv("FMHA_CACHE", str(root.parent / "elsewhere"))
    shutil.copytree(root / "cache", root.parent / "elsewhere")
    assert matrix_cache.take(root, path.name).seed == 4711  # type: ignore[union-attr]
