"""matrix.yaml with kernels of one's own: what it says, and every way in which it is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fmha.harness.config import Matrix, load, matrix_document, parse_filter
from fmha.harness.config.own_kernels import own_thresholds_section
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.judge.identity import identity
from fmha.harness.judge.metrics import OF_ANY_KERNEL, Metric


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    for path in (repository / "harness" / "examples" / "gemm").glob("*.*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def read(project: Path) -> Matrix:
    return load(project, own=False).complete()


def test_the_example(project: Path) -> None:
    matrix = read(project)
    names = [item.id for item in matrix.suites["small"]]
    assert len(names) == len(set(names))
    assert names[0] == matrix.guard.fallback.id == "gemm_m64_n32_k64"
    assert matrix.parse("gemm_m7_n5_k3_tiles2").id == "gemm_m7_n5_k3_tiles2"
    chosen = parse_filter(["m=64,k=16|64"], matrix.keys).select(matrix.suites["small"], "small")
    assert {(item.m, item.k) for item in chosen} == {(64, 16), (64, 64)}
    with pytest.raises(UserError, match="use one of m, n, k, tiles"):
        parse_filter(["hd=64"], matrix.keys)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "fmha_kernels.py:Gemm",
            "fmha_kernels.py:Other",
            "kernels.gemm: fmha_kernels.py: Other cannot be made",
        ),
        ("fmha_kernels.py:Gemm", "missing.py:Gemm", "kernels.gemm: .*missing.py:Gemm: no such file"),
        ("fmha_kernels.py:Gemm", "fmha_kernels.py:Field", "cannot be made: TypeError"),
        ("fmha_kernels.py:Gemm", "Gemm", "kernels.gemm"),
        ("k: [16, 64, 200]", "k: [0]", "suites.small.axes: k: must be at least 1 and at most"),
        ("k: [16, 64, 200]", "k: [a]", "suites.small.axes: k: must be a whole number, not 'a'"),
        ("k: [16, 64, 200]", "depth: [1]", "suites.small.axes: depth: kernel gemm has no such field"),
        ("      k: [16, 64, 200]\n", "", "suites.small.axes: k: is required"),
        ("gemm_m64_n32_k64}", "gemm_m64_n32}", "guard.case: gemm_m64_n32: k: is required"),
        ("gemm_m64_n32_k64}", "norm_m64}", "guard.case: norm_m64: no kernel is named so"),
        ("default_suite: small", "default_suite: large", "default_suite: no suite is named 'large'"),
        ("cosine: 0.999999, ", "", "gates.default.cosine: is required"),
        ("max_error: 2e-6}", "max_error: 2e-6, lse_error: 1}", "gates.default.lse_error: unknown key"),
    ],
)
def test_what_is_wrong_names_its_place(project: Path, old: str, new: str, words: str) -> None:
    path = project / "matrix.yaml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=words) as caught:
        read(project)
    assert str(caught.value).startswith("matrix.yaml:")


def test_a_metric_that_came_later_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it needs no edit of any matrix.yaml; the three that were there from the beginning are asked for."""
    metrics = {**OF_ANY_KERNEL, "mean_error": Metric("mean error", "`mean abs(o - o_ref)`", 1e-6, 1e-3)}
    monkeypatch.setattr(matrix_document, "METRICS", metrics)
    section = own_thresholds_section(metrics)
    limits = {"cosine": 0.9999, "relative_l2": 1e-3, "max_error": 1e-3}
    assert section(**limits).limits() == limits
    assert section(**limits, mean_error=1e-4).limits() == {**limits, "mean_error": 1e-4}
    for name in limits:
        with pytest.raises(ValueError, match=name):
            section(**{other: limit for other, limit in limits.items() if other != name})


def test_an_error_of_the_adapter_names_its_line(project: Path) -> None:
    with (project / "fmha_kernels.py").open("a") as file:
        file.write("\nimport no_such_module\n")
    line = len((project / "fmha_kernels.py").read_text().splitlines())
    with pytest.raises(ConfigError, match=rf"No module named 'no_such_module' \(fmha_kernels.py:{line}\)"):
        read(project)


def test_who_changes_the_reference_changes_the_judge(project: Path) -> None:
    before = read(project)
    adapter = project / "fmha_kernels.py"
    adapter.write_text(adapter.read_text().replace('@ from_bf16(inputs["b"]).T', '@ from_bf16(inputs["b"]).T * 1.0'))
    after = read(project)
    first, second = (identity(item.judged_sha256, own=item.files) for item in (before, after))
    assert first.changed(second) == ("fmha_kernels.py",)


@pytest.mark.parametrize("whole", [True, False])
def test_the_file_of_the_page(repository: Path, tmp_path: Path, whole: bool) -> None:
    """kernels.md's is read as it stands, and without what it says may be left out."""
    for path in (repository / "harness" / "examples" / "rmsnorm").glob("*.*"):
        shutil.copy(path, tmp_path)
    page = (repository / "docs/use/kernels.md").read_text()
    lines = page.split("## matrix.yaml\n\n```yaml\n")[1].split("```")[0].splitlines()
    kept = [line for line in lines if whole or "may be left out" not in line]
    assert len(lines) - len(kept) == (0 if whole else 6)
    (tmp_path / "matrix.yaml").write_text("\n".join(kept) + "\n")
    matrix = read(tmp_path)
    assert (matrix.default_suite, matrix.seed) == ("small", 0)
    assert (matrix.limits.build_seconds, matrix.limits.silence_seconds, matrix.limits.total_seconds) == (300, 60, 300)
    assert len(matrix.suites["small"]) == 12
