"""matrix.yaml with the attention kernels and one's own, what is called in place of ours, and random suites of any."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fmha.harness.config import Matrix, load, parse_filter
from fmha.harness.contract.codec import decode, encode
from fmha.harness.contract.protocol import Job
from fmha.harness.errors import ConfigError

KERNELS = """kernels:
  ours: fmha
  gemm: {adapter: fmha_kernels.py:Gemm, gates: {default: {cosine: 0.5, relative_l2: 0.5, max_error: 0.5}}}
"""
SUITES = """  products:
    kernel: gemm
    axes: {m: [1, 64], n: [32], k: [16]}
  drawn:
    kernel: gemm
    random: {cases: 12, m: [1, 90], n: [1, 90], k: [1, 200], tiles: [2, 8]}
"""


@pytest.fixture
def read(repository: Path, tmp_path: Path) -> Callable[..., Matrix]:
    """The repository's own file with kernels and suites more, and `old` in it `new`."""
    for path in (repository / "harness" / "examples" / "gemm").glob("*.*"):
        shutil.copy(path, tmp_path)
    text = (repository / "matrix.yaml").read_text()

    def reading(old: str = "", new: str = "") -> Matrix:
        whole = KERNELS + text.replace("suites:\n", f"suites:\n{SUITES}", 1)
        assert not old or whole.count(old) == 1
        (tmp_path / "matrix.yaml").write_text(whole.replace(old, new, 1) if old else whole)
        return load(tmp_path, own=False).complete()

    return reading


def test_both_kinds_of_kernel_are_in_one_file(read: Callable[..., Matrix], repository: Path) -> None:
    mixed, alone = read(), load(repository, own=False)
    assert mixed.suites["proven"] == alone.suites["proven"]
    assert [item.id for item in mixed.suites["products"]] == ["gemm_m1_n32_k16", "gemm_m64_n32_k16"]
    names = ("hd64_t32_sk384_causal", "gemm_m7_n5_k3")
    assert [mixed.parse(name).kernel for name in names] == ["ours", "gemm"]
    ours, gemm = (mixed.gates_for(mixed.parse(name)) for name in names)
    assert ours == alone.gates_for(alone.parse(names[0]))
    assert (dict(gemm.thresholds.limits), gemm.resources, gemm.biases) == (
        {"cosine": 0.5, "relative_l2": 0.5, "max_error": 0.5}, None, None,
    )  # fmt: skip
    assert mixed.files.keys() == {"fmha_kernels.py"}
    assert mixed.places == {"gemm": "fmha_kernels.py:Gemm"}
    chosen = parse_filter(["kernel=gemm,m=64"], mixed.keys).select(mixed.configurations("all", 0), "all")
    assert {item.kernel for item in chosen} == {"gemm"}
    assert {item.parameters["m"] for item in chosen} == {64}


def test_gates_that_a_kernel_does_not_have_are_those_of_the_file(read: Callable[..., Matrix]) -> None:
    matrix = read("{adapter: fmha_kernels.py:Gemm, gates: {default: {cosine: 0.5, relative_l2: 0.5, max_error: 0.5}}}",
                  "fmha_kernels.py:Gemm")  # fmt: skip
    limits = matrix.thresholds_for(matrix.parse("gemm_m7_n5_k3")).limits
    ours = matrix.thresholds_for(matrix.parse("hd64_t32_sk384_causal")).limits
    assert limits == {name: ours[name] for name in ("cosine", "relative_l2", "max_error")}


def test_a_random_suite_of_a_kernel_of_ones_own(read: Callable[..., Matrix]) -> None:
    matrix = read()
    few, many, other = (matrix.configurations("drawn", seed, count) for seed, count in ((1, 5), (1, 12), (2, 5)))
    assert many[:5] == few != other
    assert len(set(many)) == 12
    assert all(1 <= item.m <= 90 and 2 <= item.tiles <= 8 for item in many)
    kernel = matrix.kernels["gemm"]
    for case in many:
        for simpler in kernel.smaller(case):
            assert matrix.parse(simpler.id) == simpler != case


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ours: fmha", "attention: fmha", "kernels.attention: ours is the name of the kernels of fmha"),
        ("  gemm: ", f"  {'g' * 101}: ", "a name has at most 100 characters, and this one 101"),
        ("kernel: gemm\n    axes", "kernel: other\n    axes", "suites.products.kernel: must be one of ours, gemm"),
        ("k: [1, 200]", "k: [1, 0]", "suites.drawn.random.k: must be at least 1"),
        ("k: [1, 200]", "k: [9, 5]", r"suites.drawn.random.k: must be \[least, most\]"),
        ("k: [1, 200], ", "", "suites.drawn.random.k: is required"),
        ("cases: 12, m", "m", "suites.drawn.random.cases: must be from 1 to"),
        ("m: [1, 90], n: [1, 90], k: [1, 200], tiles: [2, 8]", "m: [1, 1], n: [1, 1], k: [1, 1]", "1 conf"),
        ("      head_dim: [64]\n", "      head_dims: [64]\n", "suites.proven.axes.head_dims: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_its_place(read: Callable[..., Matrix], old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(old, new)
    assert str(caught.value).startswith("matrix.yaml:")


def test_what_is_called_in_place_of_ours_has_their_problems(repository: Path) -> None:
    matrix = load(repository, own=False)
    paths = matrix.configurations("paths", 0)
    items = matrix.with_peers(paths, ("ours", "sdpa"))
    peers = [item for item in items if item.kernel == "sdpa"]
    assert len(peers) == len({item.problem for item in paths}) < len(paths)
    assert [item for item in items if item.kernel == "ours"] == list(paths)
    for item in peers:
        assert matrix.parse(item.id) == item
        assert item.parameters == {"kernel": "sdpa", **item.problem.parameters}
        assert "lse_error" not in matrix.thresholds_for(item).limits
    with pytest.raises(ValueError, match="a peer's is sdpa_hd64_t9_sk447_h16"):
        matrix.parse("sdpa_hd64_t9_sk447_h16_p-smem")
    job = Job("emulator", (), tuple(items[:3]), 0)
    assert decode(Job, encode(job), "job") == job
