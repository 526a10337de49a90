"""Python files of a repository as modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fmha.harness.worker.subjects.repository_modules import module_of

FILES = {
    "theirs_once/__init__.py": "from theirs_once.state import TRIED\nTRIED.append(1)\n"
    "if len(TRIED) == 1:\n    raise AssertionError('not compiled with CUDA')\n",
    "theirs_once/state.py": "TRIED = []\n",
    "theirs_once/kernel.py": "VALUE = 3\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("theirs_once")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_a_package_that_cannot_be_imported_cannot_be_for_the_next_case_either(root: Path) -> None:
    """What of it could be imported is not there for the next one to go on with."""
    for _ in range(2):
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            module_of(root, "theirs_once/kernel.py")
        assert not [name for name in sys.modules if name.startswith("theirs_once")]


def test_of_a_package_that_is_left_bare_the_module_is_there(root: Path) -> None:
    assert module_of(root, "theirs_once/kernel.py", ("theirs_once",)).VALUE == 3
    for name in [name for name in sys.modules if name.startswith("theirs_once")]:
        del sys.modules[name]
