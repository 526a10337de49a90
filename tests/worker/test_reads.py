"""What a compiler's process says it has read, and that nothing in it goes otherwise for being listened to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMPILER = """
import os, shutil
import helper
shutil.copy2("link", "copy", follow_symlinks=False)
os.path.exists("tuned.json")
print(os.listdir("tables"))
"""


def test_what_imports_look_through_is_no_question(tmp_path: Path) -> None:
    """A file beside a module, as README.md in a repository's root, is none of a build's inputs."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "compiler.py").write_text(COMPILER)
    command = [sys.executable, "-m", "fmha.harness.worker.compilers.reads", "list.json", "compiler"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
    told = json.loads((tmp_path / "list.json").read_text())
    assert list(told["listed"]) == [str(tmp_path / "tables")]
    assert str(tmp_path / "tuned.json") in told["read"]
    assert told["modules"]["helper"] == str(tmp_path / "helper.py")
    assert (tmp_path / "copy").is_symlink()
