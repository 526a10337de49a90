"""What docs/use/emulator.md promises: its worked example as it stands there, tensors of torch."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from fmha.harness.cli import run

ROOT = Path(__file__).parents[2]


def test_the_triton_kernel_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/use/emulator.md").read_text().partition("### A kernel made by Triton")[2]
    launch, command = re.search(r"```yaml\n(.*?)```\s+fmha ([^\n]+)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    words = command.split()
    assert words[-1] == "vector_add.yaml"
    (tmp_path / words[-1]).write_text(launch)
    assert run([words[0], str(ROOT / words[1]), words[2], str(tmp_path / words[-1])]) == 0
    assert "NO HAZARD: 0 findings" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.arange(2500, dtype=np.float32) + 0.5)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64"])
def test_torch_tensors_of_any_type_are_written(dtype: str) -> None:
    import torch

    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype)).T
    device = emulator.Device()
    buffer = device.alloc(tensor.nbytes)
    device.write(buffer.address, tensor)
    back = torch.from_numpy(device.read(buffer.address, buffer.nbytes)).view(tensor.dtype).reshape(4, 3)
    assert torch.equal(back.to(torch.float32), tensor.to(torch.float32))
