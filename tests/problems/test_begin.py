"""What `fmha init --problem` reads of a problem, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha.harness.errors import UserError
from fmha.harness.problems.begin import files
from fmha.harness.problems.constants import constants, fields, module_with

TEXT = """
N = 1024 * 2
shape = (512, N // 4, 7)
eps = 1e-5
negative = -1
big = 10 ** 9
total = N * 3
"""


def test_the_numbers_at_the_top_are_fields() -> None:
    found = {item.field: item.value for item in constants(TEXT)}
    assert found == {"n": 2048, "shape_0": 512, "shape_2": 7}
    assert [field.name for field in fields(TEXT)] == ["n", "shape_0", "shape_2"]


def test_what_follows_from_a_number_follows_from_its_value() -> None:
    made = module_with(TEXT, "problem.py", {"n": 8, "shape_0": 3, "shape_2": 5})
    assert (made.N, made.shape, made.total) == (8, (3, 2, 5), 24)


def test_a_problem_without_a_number_has_a_field_all_the_same() -> None:
    assert [field.name for field in fields("def get_inputs(): return []\n")] == ["variant"]


def test_sizes_are_made_small_and_equal_ones_stay_equal(tmp_path: Path) -> None:
    (tmp_path / "19_Big_.py").write_text("batch = 4096\nrows = 8192\ncolumns = 8192\ndef get_inputs(): return []\n")
    (tmp_path / "answer.py").write_text("")
    made = files(tmp_path, "19_Big_.py", "answer.py")
    assert "big_batch48_rows48_columns48, big_batch64_rows64_columns64" in made["matrix.yaml"]
    assert "batch 4096, rows 8192, columns 8192" in made["matrix.yaml"]
    assert 'class Big(KernelBench):\n    problem = "19_Big_.py"\n    source = "answer.py"' in made["fmha_kernels.py"]


def test_of_a_definition_the_open_axes_are_given(tmp_path: Path) -> None:
    axes = {"M": {"type": "var"}, "N": {"type": "const", "value": 4096}}
    (tmp_path / "gemm_n4096.json").write_text(json.dumps({"axes": axes}))
    (tmp_path / "solution.json").write_text("{}")
    made = files(tmp_path, "gemm_n4096.json", "solution.json")
    assert "cases: [gemmn4096_m3, gemmn4096_m16]" in made["matrix.yaml"]
    assert "FlashInferBench" in made["fmha_kernels.py"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("problem.py", "x = 1\n", "it has no get_inputs"),
        ("problem.py", "def get_inputs(:\n", "it is no problem that fmha knows"),
        ("problem.json", "{}", "it is no problem that fmha knows: 'axes'"),
        ("problem.json", "nothing", "it is no problem that fmha knows"),
    ],
)
def test_what_is_no_problem_is_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "answer.py").write_text("")
    with pytest.raises(UserError, match=said):
        files(tmp_path, name, "answer.py")
    with pytest.raises(UserError, match="there is no file"):
        files(tmp_path, name, "../answer.py")
