"""The worked example of docs/emulator.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from harness.cli import run

ROOT = Path(__file__).parents[2]


def test_the_triton_kernel_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/emulator.md").read_text().partition("### A kernel made by Triton")[2]
    launch, command = re.search(r"```yaml\n(.*?)```\s+fmha ([^\n]+)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    words = command.split()
    assert words[-1] == "vector_add.yaml"
    (tmp_path / words[-1]).write_text(launch)
    assert run([words[0], str(ROOT / words[1]), words[2], str(tmp_path / words[-1])]) == 0
    assert "PASS: 0 findings" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.arange(2500, dtype=np.float32) + 0.5)
