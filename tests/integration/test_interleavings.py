"""What the default run says of waits that nobody repeats, and of launches that write what they were given to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.errors import ExitCode
from tests.forked import fmha
from tests.harness.support import git
from tools.mutants.examine import copy_kernel

pytestmark = [pytest.mark.nvcc, pytest.mark.slow]

CASE = "hd64_t32_sk384"
MBARRIER = "common/ptx/mbarrier.cuh"
RETRY = '        "@!complete bra wait;\\n\\t"\n'


def told(repository: Path, root: Path, changed: dict[str, str], case: str = CASE) -> dict[str, Any]:
    """The record of a kernel in which files are changed."""
    copy_kernel(repository, root, changed)
    (root / "matrix.yaml").write_text((repository / "matrix.yaml").read_text())
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "changed")
    ran = fmha("run-matrix", "--case", case, "--drawn", "5", "--quiet", "--json", cwd=root)
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    found: dict[str, Any] = next(item for item in json.loads(ran.stdout)["configurations"] if item["id"] == case)
    return found


def replaced(repository: Path, name: str, *pairs: tuple[str, str]) -> str:
    text = (repository / "kernel" / name).read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def once(repository: Path, hint: str) -> str:
    """Each wait, tried once."""
    return replaced(repository, MBARRIER, (RETRY, ""), ("complete, [%0], %1;", f"complete, [%0], %1{hint};"))


@pytest.mark.parametrize("hint", ["", ", 0x989680"])
def test_waits_that_are_tried_once_are_red(repository: Path, tmp_path: Path, hint: str) -> None:
    item = told(repository, tmp_path, {MBARRIER: once(repository, hint)})
    assert item["status"] in ("hazard", "fail")
    assert any(reason.startswith("under schedule spurious:") for reason in item["reasons"])
    assert all(reason.startswith("under schedule ") for reason in item["reasons"])  # realistic sees nothing


def test_waits_of_softmax_alone_that_are_tried_once_are_red(repository: Path, tmp_path: Path) -> None:
    text = (repository / "kernel" / MBARRIER).read_text()
    start, end = text.index("// Returns once the phase"), text.index("}  // namespace")
    more = text[start:end].replace("mbarrier_wait", "mbarrier_once").replace(RETRY, "")
    role = replaced(
        repository,
        "sm100/softmax_role.cuh",
        ("ptx::mbarrier_wait(shared.score_full", "ptx::mbarrier_once(shared.score_full"),
        ("ptx::mbarrier_wait(shared.output_full(), (j", "ptx::mbarrier_once(shared.output_full(), (j"),
    )
    item = told(repository, tmp_path, {MBARRIER: text[:end] + more + text[end:], "sm100/softmax_role.cuh": role})
    assert item["status"] in ("hazard", "fail")
    assert all(reason.startswith("under schedule ") for reason in item["reasons"])


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("sink", "hd64_t32_sk384_sink-finite"),
        ("kv_lens", "hd64_t32_sk384_lens-ragged"),
        ("block_table", "hd64_t32_sk384_page64"),
        ("sparse_indices", "hd64_t32_sk384_top64_of256"),
    ],
)
def test_an_epilogue_that_writes_into_an_input_is_red(repository: Path, tmp_path: Path, name: str, case: str) -> None:
    """When all has been read: no number is another for it."""
    place, last = "sm100/fmha_fwd.cu", "ptx::tmem_dealloc(tmem, Traits::kTmemColumns); });\n"
    written = f"    if (params.{name} && threadIdx.x == 0) *(volatile int*)params.{name} = 0x3f;\n"
    text = replaced(repository, place, (last, last + written))
    item = told(repository, tmp_path, {place: text}, case)
    assert item["status"] == "fail", item["reasons"]
    assert item["reasons"][0].startswith(f"a launch changed its input {name}: element [0")
