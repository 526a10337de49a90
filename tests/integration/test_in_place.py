"""Kernels that change their input, add to what is there, or have small types and C++ names: as people write them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.forked import fmha
from tests.harness.support import git

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("in-place")]
FILES = Path(__file__).parent / "in_place"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    root = tmp_path / "kernels"
    shutil.copytree(FILES, root)
    (root / ".gitignore").write_text("results/\n.fmha/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "ours")
    return root


def ran(root: Path, *arguments: str) -> dict[str, Any]:
    """What a run says, each configuration by its name."""
    done = fmha("run-matrix", "--quiet", "--isolation", "off", *arguments, cwd=root)
    assert "Traceback" not in done.stderr
    (path,) = (root / "results").glob("*.json")
    found = {item["id"]: item for item in json.loads(path.read_text())["configurations"]}
    return {"code": done.returncode, "items": found}


def test_they_pass_as_they_are(kernels: Path) -> None:
    """RoPE and AdamW in place, a residual add of two types by C++ names, beta C, atomics from zero, e4m3."""
    found = ran(kernels, "--suite", "all")
    assert found["code"] == 0
    assert {item["status"] for item in found["items"].values()} == {"pass"}


@pytest.mark.parametrize(
    ("case", "file", "old", "new", "said"),
    [
        ("rope_n5", "kernels.cu", "x[at + half] = a * s + b * c;", "x[at + half] = b;", "cosine"),
        ("adamw_n100", "kernels.cu", "if (i >= n) return;\n    m[i]", "if (i >= n - 1) return;\n    m[i]", "max_error"),
        ("residual_n100", "adapters.py", '(case.n,), case.dtype, first="input"', "(case.n,), case.dtype",
         "x is an output, and something else: what is changed in place is an Output with first='input'"),
        ("gemm_n3", "kernels.cu", "sum + beta * c", "sum + 0 * c", "cosine"),
        ("gemm_n3", "adapters.py", '{"c": Output((case.n, 32), first="input")}',
         '{"c": Output((case.n, 16), first="input")}',
         "c is an output of (3, 16) items of f32, and its input has (3, 32)"),
        ("histogram_n1000", "adapters.py", '"u32", first="zeros"', '"u32"', "max_error"),
        ("quantise_n4", "kernels.cu", "c < columns; c += 32) q", "c < columns - 1; c += 32) q", "unwritten"),
        ("quantise_n4", "kernels.cu", "/ 448.0f", "/ 240.0f", "relative_l2"),
        ("quantise_n4", "adapters.py", 'COLUMNS), "e4m3")', 'COLUMNS), "e4m4")', "e4m3 is likely meant"),
        ("gemm_n3", "adapters.py", '"gemm<16>"', '"gemm<32>"', "there is no gemm<32>; there are"),
        ("residual_n1", "adapters.py", '"add<float>"', '"add"',
         "add is the name of several: residual::add<float>(float*, float const*, int)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(kernels: Path, case: str, file: str, old: str, new: str, said: str) -> None:
    text = (kernels / file).read_text()
    assert text.count(old) == 1
    (kernels / file).write_text(text.replace(old, new))
    found = ran(kernels, "--case", case)
    item = found["items"][case]
    assert item["status"] != "pass"
    assert said in " ".join([*item["reasons"], item.get("error") or ""]), item


def test_an_input_that_is_no_output_may_not_be_changed(kernels: Path) -> None:
    """What is declared as changed in place is held against the reference; all else has to stay as it was."""
    text = (kernels / "kernels.cu").read_text()
    (kernels / "kernels.cu").write_text(
        text.replace("m[i] = 0.9f * m[i]", "((float *)g)[i] = g[i] + 1; m[i] = 0.9f * m[i]")
    )
    item = ran(kernels, "--case", "adamw_n100")["items"]["adamw_n100"]
    assert item["status"] == "fail"
    assert any("g" in reason and "input" in reason for reason in item["reasons"]), item["reasons"]


def test_a_look_at_one(kernels: Path) -> None:
    """By the name that C++ has."""
    done = fmha("launches", "residual_n1_dtype-bf16", cwd=kernels)
    assert done.returncode == 0, done.stderr
    assert "1 residual::add<__nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16 const*, int): grid 1x1x1" in done.stdout
    assert fmha("budget", "--launch", "add<__nv_bf", "residual_n1_dtype-bf16", cwd=kernels).returncode == 0
