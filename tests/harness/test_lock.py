"""`fmha lock`: what pip is held to. A package of ours stands for those of an index."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.stages.lock_file import BUILD, lock, required

pytest.importorskip("pip")


def wheel(folder: Path, name: str, version: str, requires: str = "", body: str = "") -> Path:
    """A wheel of one module."""
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": body,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text.encode())}")
    files[f"{name}-{version}.dist-info/RECORD"] = "\n".join([*lines, f"{name}-{version}.dist-info/RECORD,,", ""])
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel(folder, "upper", "1.0", "lower>=1")
    wheel(folder, "lower", "1.5")
    return folder


def install(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "lock").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "pip", "install", "-q", "--require-hashes", "--target", str(folder / "to")]
    return subprocess.run([*command, "-r", str(folder / "lock")], capture_output=True, text=True, check=False)


def test_all_that_is_required_has_a_digest_and_pip_holds_to_it(index: Path, tmp_path: Path) -> None:
    lines = lock(["upper>=1"], "3.12", "x86_64")
    assert [line.split(" ")[0] for line in lines] == ["lower==1.5", "upper==1.0"]
    assert all(" --hash=sha256:" in line for line in lines)
    assert install(lines, tmp_path).returncode == 0
    wheel(index, "lower", "1.5", body="print('another one')\n")  # of the same name and version
    refused = install(lines, tmp_path)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr


def test_what_is_not_there_is_told(index: Path) -> None:
    with pytest.raises(InfrastructureError, match="pip finds no wheels of all that is required"):
        lock(["nowhere>=1"], "3.12", "x86_64")


def test_an_extra_is_asked_for_by_its_name() -> None:
    assert any(item.startswith("nvidia-cuda-nvcc") for item in required(["nvcc"]))
    assert not any(item.startswith("nvidia") for item in required([]))
    with pytest.raises(UserError, match="there is no extra 'nosuch'"):
        required(["nosuch"])


def test_what_builds_is_what_pyproject_says(repository: Path) -> None:
    document = tomllib.loads((repository / "pyproject.toml").read_text())
    assert {*BUILD} == {*document["build-system"]["requires"], *document["dependency-groups"]["build"]}
