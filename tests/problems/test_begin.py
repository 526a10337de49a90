"""What `fmha init --problem` reads of a problem, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fmha.harness.errors import UserError
from fmha.harness.judge.case import case_of
from fmha.harness.problems.begin import files
from fmha.harness.problems.constants import constants, fields, module_with
from fmha.harness.problems.flashinfer_bench import FlashInferBench
from fmha.harness.problems.small import small

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


def test_sizes_are_made_small_and_equal_ones_stay_equal_in_the_first(tmp_path: Path) -> None:
    (tmp_path / "19_Big_.py").write_text("batch = 4096\nrows = 8192\ncolumns = 8192\ndef get_inputs(): return []\n")
    (tmp_path / "answer.py").write_text("")
    made = files(tmp_path, "19_Big_.py", "answer.py")
    assert "big_batch48_rows64_columns64, big_batch43_rows47_columns45" in made["matrix.yaml"]
    assert "guard: {case: big_batch48_rows64_columns64}" in made["matrix.yaml"]
    assert "batch 4096, rows 8192, columns 8192" in made["matrix.yaml"]
    assert 'class Big(KernelBench):\n    problem = "19_Big_.py"\n    source = "answer.py"' in made["fmha_kernels.py"]


@pytest.mark.parametrize(
    "own",
    [
        {"m": 1024, "k": 4096, "n": 2048},
        {"m": 16, "k": 32, "n": 64},
        {"m": 4096, "k": 4096, "n": 4096},
        {"b": 32, "m": 128, "k": 256, "n": 512},
        {"a": 1 << 20, "b": 16, "c": 1 << 15, "d": 17, "e": 33, "f": 64},
        {"n": 2},
        {"n": 9},
    ],
)
def test_no_two_sizes_can_be_exchanged_and_one_case_is_odd(own: dict[str, int]) -> None:
    even, odd = small(own, divides=False)
    large = [name for name in own if own[name] > 8]
    for made in (even, odd):
        assert len({made[name] for name in large}) >= len({own[name] for name in large})
        assert all(0 < made[name] <= own[name] for name in own)
    assert len({odd[name] for name in large}) == len(large)
    assert all(odd[name] % 2 == 1 for name in large)


def test_what_divides_a_size_still_does() -> None:
    own = {"heads": 8, "width": 512, "rows": 4096}
    even, odd = small(own, divides=True)
    assert all(made["heads"] == 8 and made["width"] % 8 == 0 == made["rows"] % 8 for made in (even, odd))
    assert odd["width"] // 8 % 2 == 1
    assert odd["width"] != odd["rows"]


def test_of_a_definition_the_open_axes_are_given(tmp_path: Path) -> None:
    """Each another one, but for those that follow from another."""
    axes = {"M": {"type": "var"}, "K": {"type": "var"}, "N": {"type": "const", "value": 4096}, "L": {"type": "var"}}
    constraints = ["L == M + 1", "K == indptr[-1].item()", "K == Z"]
    (tmp_path / "gemm_n4096.json").write_text(json.dumps({"axes": axes, "constraints": constraints}))
    (tmp_path / "solution.json").write_text("{}")
    made = files(tmp_path, "gemm_n4096.json", "solution.json")
    assert "cases: [gemmn4096_m16_k24_l17, gemmn4096_m3_k5_l4]" in made["matrix.yaml"]
    assert "FlashInferBench" in made["fmha_kernels.py"]


def test_a_definitions_numbers_are_drawn_and_never_one(tmp_path: Path) -> None:
    axes = {"head_dim": {"type": "const", "value": 64}, "rows": {"type": "var"}}
    (tmp_path / "definition.json").write_text(json.dumps({"axes": axes}))

    class Ours(FlashInferBench):
        definition = "definition.json"
        home = tmp_path

    kernel = Ours()
    case = case_of("ours", kernel.fields, {"rows": 3})
    assert kernel.number("sm_scale", "float32", case) == 0.125
    assert kernel.number("eps", "float32", case) == 1e-5
    assert 0.3 <= kernel.number("alpha", "float32", case) <= 0.9
    assert kernel.number("alpha", "float32", case) == kernel.number("alpha", "float32", case)
    assert kernel.number("top_k", "int32", case) in (2, 3)


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
