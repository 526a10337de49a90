"""Kernels of one's own in a repository of one's own: from `fmha init` to a verdict, and faults planted there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fmha.harness.errors import ExitCode
from tests import forked
from tests.harness.support import git

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("own-kernels")]


def fmha(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ran = forked.fmha(*arguments, cwd=root)
    assert "Traceback" not in ran.stderr
    return ran


def repository_with(example: str, root: Path, *arguments: str) -> Path:
    """A repository of somebody's, with what `fmha init` writes committed."""
    root.mkdir(exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    (root / "README").write_text("ours\n")
    (root / ".gitignore").write_text("*.o")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "ours")
    done = fmha(root, "init", "--example", example, *arguments)
    assert done.returncode == 0, done.stderr
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "fmha init")
    return root


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RMSNorm with a baseline."""
    root = repository_with("rmsnorm", tmp_path_factory.mktemp("norm"))
    assert fmha(root, "run-matrix", "--quiet").returncode == ExitCode.PASS
    accepted = fmha(root, "baseline", "accept", "latest", "--why", "the start", "--seeds", "10")
    assert accepted.returncode == 0, accepted.stderr
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "baseline")
    return root


def regress(root: Path, file: str, old: str, new: str) -> dict[str, Any]:
    """What regress says of a commit with that change, its exit code as `code`."""
    git(root, "checkout", "-q", "-B", "planted", "main")
    text = (root / file).read_text()
    assert text.count(old) == 1
    (root / file).write_text(text.replace(old, new))
    git(root, "commit", "-q", "-a", "-m", "planted")
    ran = fmha(root, "regress", "--json", "--quiet")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found | {"code": ran.returncode}


def test_init_writes_what_runs_at_once(tmp_path: Path) -> None:
    root = repository_with("gemm", tmp_path / "ours", "--arch", "sm_100a", "--ci", "gitea")
    assert (root / ".gitignore").read_text().splitlines()[:2] == ["*.o", ".fmha/"]
    assert (root / ".gitea" / "workflows" / "fmha.yml").is_file()
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stderr
    record = json.loads(ran.stdout)
    assert record["verdict"]["passed"] == record["verdict"]["total"] == 20
    first = record["configurations"][0]
    assert (first["id"], first["guard"]) == ("gemm_m64_n32_k64", True)
    assert first["parameters"] == {"kernel": "gemm", "m": 64, "n": 32, "k": 64, "tiles": 4}
    assert first["metrics"]["lse_error"] is None
    assert {item["arch"] for item in record["variants"]} == {"sm_100a"}
    assert {item["name"] for item in record["variants"]} == {f"gemm_sm100a_n_tiles{tiles}" for tiles in (2, 4, 8)}
    assert record["commit"]["dirty"] is False
    again = fmha(root, "init")
    assert again.returncode == ExitCode.USAGE
    assert "matrix.yaml" in again.stderr
    for arguments in (("report",), ("history", first["id"]), ("compare", "latest", "latest")):
        assert fmha(root, *arguments).returncode == 0, arguments


def test_an_adapter_that_fails_at_build_is_told_with_its_line(norm: Path) -> None:
    git(norm, "checkout", "-q", "-B", "adapter", "main")
    adapter = norm / "fmha_kernels.py"
    adapter.write_text(adapter.read_text().replace('return Build("rmsnorm", {', 'return Build("rmsnorm", oops, {'))
    ran = fmha(norm, "run-matrix", "--quiet")
    git(norm, "checkout", "-q", "--", ".")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert "build-error: rmsnorm_rows8_columns256\n" in ran.stdout
    assert "build of rmsnorm_rows8_columns256: NameError: name 'oops' is not defined (fmha_kernels.py:" in ran.stdout


def test_init_begins_with_a_kernel_that_is_there(tmp_path: Path) -> None:
    """The reference is what remains to be written; then it passes."""
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "scale.cu").write_text(
        """
        template <typename T>
        __global__ void scale(const T* __restrict__ x, T* __restrict__ y, int n, float factor) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = factor * x[i];
        }
        template __global__ void scale<float>(const float*, float*, int, float);
        """
    )
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "ours")
    done = fmha(tmp_path, "init", "--kernel", "csrc/scale.cu", "--ci", "none", "--yes")
    assert done.returncode == 0, done.stderr
    first = fmha(tmp_path, "run-matrix", "--quiet")
    assert first.returncode == ExitCode.USAGE, first.stderr
    assert "NotImplementedError: what y should be, in float64, from inputs (fmha_kernels.py:" in first.stdout
    assert first.stdout.splitlines()[-1] == (
        "FAIL 0 of 4 passed: 1 adapter-error, 3 not-run; the adapter failed, which says nothing of the kernel"
    )
    adapter = tmp_path / "fmha_kernels.py"
    old = 'raise NotImplementedError("what y should be, in float64, from inputs")'
    assert old in adapter.read_text()
    adapter.write_text(adapter.read_text().replace(old, 'return {"y": inputs["x"].astype(np.float64)}'))
    ran = fmha(tmp_path, "run-matrix", "--quiet")
    assert ran.stdout.splitlines()[-1] == "PASS 4 of 4", ran.stdout


def test_ours_and_ones_own_in_one_repository(repository: Path, tmp_path: Path) -> None:
    root = repository_with("gemm", tmp_path / "ours")
    shutil.copytree(repository / "kernel", root / "kernel")
    matrix = (repository / "matrix.yaml").read_text()
    suites = "  drawn: {kernel: gemm, random: {cases: 4, m: [1, 70], n: [1, 70], k: [60, 100]}}\n"
    (root / "matrix.yaml").write_text(
        "kernels: {ours: fmha, gemm: fmha_kernels.py:Gemm}\n" + matrix.replace("suites:\n", f"suites:\n{suites}", 1)
    )
    case = "hd64_t1_sk128"
    ran = fmha(root, "run-matrix", "--json", "--quiet", "--case", case, "--case", "gemm_m7_n5_k3")
    assert ran.returncode == ExitCode.PASS, ran.stderr
    ours, gemm = json.loads(ran.stdout)["configurations"]
    assert (ours["id"], ours["guard"], gemm["id"], gemm["guard"]) == (case, True, "gemm_m7_n5_k3", False)
    assert (ours["metrics"]["bias"] is None, gemm["metrics"]["bias"] is None) == (False, True)
    source = root / "gemm.cu"
    assert source.read_text().count("+= 16") == 1
    source.write_text(source.read_text().replace("+= 16", "+= 32"))
    ran = fmha(root, "run-matrix", "--quiet", "--suite", "drawn", "--kernel", "gemm")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert "the smallest found to fail alike: fmha run-matrix --case gemm_m1_n1_k17 " in ran.stdout


def test_our_own_kernel_by_an_adapter(repository: Path, tmp_path: Path) -> None:
    """Its parameter struct, its tensor maps, its second launch: with the words that anybody's kernel has."""
    root = tmp_path / "ours"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    shutil.copytree(repository / "kernel", root / "kernel")
    shutil.copytree(repository / "tests" / "integration" / "attention", root, dirs_exist_ok=True)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "mine")
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    record = json.loads(ran.stdout)
    assert record["verdict"]["passed"] == 16
    assert {item["combine_resources"] is not None for item in record["variants"]} == {True}
    found = {item["id"]: item["stats"]["warp_instructions"] for item in record["configurations"]}
    alone = "mine_head_dim64_t33_keys512"
    assert found[f"{alone}_splits2"] > found[alone]
    adapter = root / "adapter.py"
    text = adapter.read_text()
    for old, new, words in (
        ('], entry="fmha_combine"', '], entry="merge"', "a launch is of merge, which the build does not have"),
        ("Struct(896, at)", "Struct(788, at)", "a struct of 788 bytes has no 4 bytes left at offset 788"),
        ('"o": Output', '"q": Output', "q is an output, and something else"),
    ):
        assert text.count(old) == 1
        adapter.write_text(text.replace(old, new))
        ran = fmha(root, "run-matrix", "--quiet", "--case", f"{alone}_splits2")
        assert ran.returncode == ExitCode.GATE_FAILED, ran.stdout + ran.stderr
        assert words in ran.stdout


LIBRARY = """

class Library(CallableKernel):
    fields = Gemm.fields[:3]
    inputs, outputs, reference = Gemm.inputs, Gemm.outputs, Gemm.reference

    def call(self, case, tensors):
        a, b = tensors["a"].float(), tensors["b"].float()
        return lambda: {"c": a @ b.T}
"""


@pytest.mark.torch
def test_a_callable_beside_ones_own(tmp_path: Path) -> None:
    root = repository_with("gemm", tmp_path / "ours")
    adapter, matrix = root / "fmha_kernels.py", root / "matrix.yaml"
    adapter.write_text(adapter.read_text().replace("import Build,", "import Build, CallableKernel,") + LIBRARY)
    suites = "  theirs: {kernel: library, axes: {m: [1, 7], n: [33], k: [64]}}\n  small:\n    kernel: gemm\n"
    kernels = "fmha_kernels.py:Gemm\n  library: fmha_kernels.py:Library\n"
    text = matrix.read_text().replace("  small:\n", suites).replace("fmha_kernels.py:Gemm\n", kernels)
    matrix.write_text(text)
    ran = fmha(root, "run-matrix", "--json", "--quiet", "--suite", "small,theirs", "--filter", "m=1|7,n=33,k=64")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    found = {item["id"]: item for item in json.loads(ran.stdout)["configurations"]}
    assert {"gemm_m1_n33_k64", "library_m1_n33_k64", "library_m7_n33_k64"} <= found.keys()
    assert found["library_m7_n33_k64"]["metrics"]["cosine"] > 0.999999


@pytest.mark.triton
def test_a_kernel_of_tritons_is_compiled_by_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    root = repository_with("triton", tmp_path / "ours")
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    record = json.loads(ran.stdout)
    assert record["verdict"]["passed"] == record["verdict"]["total"] == 14
    assert {item["source"] for item in record["variants"]} == {"attention.py"}
    assert len(record["variants"]) == 4  # two masks, and two more head dimensions
    source = root / "attention.py"
    source.write_text(source.read_text().replace("top = higher", "top = top"))
    ran = fmha(root, "run-matrix", "--quiet", "--case", "attention_t64_s128")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert "cosine is " in ran.stdout
    assert ran.stdout.splitlines()[-1].endswith("; lenient rules: attention")
    source.write_text(source.read_text().replace("tl.exp2(top - higher)", "tl.exp2(top - higher) + oops"))
    ran = fmha(root, "run-matrix", "--quiet", "--case", "attention_t64_s128")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert "build-error: attention_t64_s128\n" in ran.stdout
    assert "CompilationError: at " in ran.stdout


@pytest.mark.triton
def test_a_kernel_of_tritons_is_imported_once_for_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process that plans, and not for each build and by each worker: an import of a package takes seconds."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FMHA_CACHE", raising=False)
    root = repository_with("triton", tmp_path / "ours")
    source = root / "attention.py"
    source.write_text(f"import sys\nprint('it is imported', file=sys.stderr)\n{source.read_text()}")
    ran = fmha(root, "run-matrix", "--json", "--quiet", "--filter", "t=1|64,s=128")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    variants = json.loads(ran.stdout)["variants"]
    assert len(variants) == 4
    assert not any(item["cached"] for item in variants)
    assert ran.stderr.count("it is imported") == 1
    logs = [*(tmp_path / "cache").rglob("compiler.log"), *(root / ".fmha/runs").rglob("*.stderr")]
    assert sum(path.name == "compiler.log" for path in logs) == 4
    assert len(logs) > 4
    assert not any("it is imported" in path.read_text(errors="replace") for path in logs)


TUNED = """
import triton
import triton.language as tl
from norms.parts.helpers import squared


@triton.autotune([triton.Config({"STEP": 1}, num_warps=1), triton.Config({"STEP": 2}, num_warps=1)], key=["n"])
@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def square(x, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, squared(tl.load(x + at, mask=at < n)), mask=at < n)
"""
TUNED_ADAPTER = """
import numpy as np
from fmha import Field, Output, TritonKernel
from sizes import MOST


class Square(TritonKernel):
    source, name, bare = "norms/parts/square.py", "square", ("norms",)
    fields = (Field("n", most=MOST), Field("choice", least=0, default=0))
    signature = {"x": "*fp32"}

    def constants(self, case):
        return {}

    def arguments(self, case):
        return {"x": "x", "n": case.n}

    def grid(self, case):
        return 1, 1, 1

    def inputs(self, case, random):
        return {"x": random.random(case.n, np.float32)}

    def outputs(self, case):
        return {"x": Output((case.n,), first="input")}

    def reference(self, case, inputs):
        return {"x": inputs["x"].astype(np.float64) ** 2}
"""


@pytest.mark.triton
def test_a_kernel_of_tritons_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a package with a helper, decorated, in place; and a fault that one of the autotuner's choices has."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    root = repository_with("triton", tmp_path / "ours")
    parts = root / "norms" / "parts"
    parts.mkdir(parents=True)
    (root / "norms/__init__.py").write_text("raise ImportError('for a GPU')\n")
    (parts / "__init__.py").write_text("")
    (parts / "square.py").write_text(TUNED)
    helper = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef squared(x):\n    return x * x\n"
    (parts / "helpers.py").write_text(helper)
    (root / "sizes.py").write_text("MOST = 4096\n")
    (root / "fmha_kernels.py").write_text(TUNED_ADAPTER)
    matrix = root / "matrix.yaml"
    text = matrix.read_text().replace("attention: fmha_kernels.py:Attention", "square: fmha_kernels.py:Square")
    axes = "suites:\n  small: {axes: {n: [1, 100], choice: [0, 1]}}\n\ngates:"
    text = re.sub(r"(?s)suites:.*?gates:", axes, text).replace("attention_t64_s128", "square_n100")
    matrix.write_text(text)
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    record = json.loads(ran.stdout)
    assert record["verdict"]["passed"] == record["verdict"]["total"] == 4
    chosen = {dict(item["defines"])["autotune"] for item in record["variants"]}
    assert chosen == {"0_of_2", "1_of_2"}
    source = parts / "square.py"
    source.write_text(
        source.read_text().replace("mask=at < n)), mask", "mask=at < n)) * (1 if STEP == 1 else 3), mask")
    )
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.GATE_FAILED
    failed = {item["id"] for item in json.loads(ran.stdout)["configurations"] if item["status"] != "pass"}
    assert failed == {"square_n1_choice1", "square_n100_choice1"}


@pytest.mark.cute
def test_a_kernel_of_cute_dsls_is_compiled_by_it(tmp_path: Path) -> None:
    root = repository_with("cute", tmp_path / "ours")
    ran = fmha(root, "run-matrix", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stdout + ran.stderr
    record = json.loads(ran.stdout)
    assert record["verdict"]["passed"] == record["verdict"]["total"] == 20
    assert {item["source"] for item in record["variants"]} == {"gemm.py"}
    assert len(record["variants"]) == 3  # of as many tiles
    source = root / "gemm.py"
    barrier = "        cute.arch.sync_threads()  # the tiles of the step before have been read\n"
    before, after = source.read_text().split(barrier)
    source.write_text(before + after)
    ran = fmha(root, "run-matrix", "--quiet", "--case", "gemm_m64_n32_k64")
    assert ran.returncode == ExitCode.GATE_FAILED
    assert "error race: " in ran.stdout
    assert f"(source gemm.py:{len(before.splitlines()) + 1}, " in ran.stdout


def cases(ran: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran.stdout)["configurations"]
    return found


def test_nothing_planted_is_no_regression(norm: Path) -> None:
    found = regress(norm, "README", "ours", "theirs")
    assert (found["code"], found["regressions"]) == (ExitCode.PASS, [])


def test_a_race_is_caught_by_the_guard(norm: Path) -> None:
    found = regress(norm, "rmsnorm.cu", "  __syncthreads();\n", "")
    assert found["code"] == ExitCode.GATE_FAILED
    hazards = [item for item in found["regressions"] if item["kind"] == "hazard"]
    assert {item["subject"] for item in hazards} == {"rmsnorm_rows8_columns256"}  # nothing else was run
    assert any(item["what"] == "race" and "rmsnorm.cu:" in item["text"] for item in hazards)
    assert {item["kind"] for item in found["regressions"]} == {"status", "hazard", "not-run"}


def test_a_wrong_number_is_told(norm: Path) -> None:
    found = regress(norm, "rmsnorm.cu", " + epsilon);", ");")
    assert found["code"] == ExitCode.GATE_FAILED
    status = next(item for item in found["regressions"] if item["kind"] == "status")
    assert (status["subject"], status["before"], status["after"]) == ("rmsnorm_rows8_columns256", "pass", "fail")
    (item,) = cases(fmha(norm, "run-matrix", "--json", "--quiet", "--case", "rmsnorm_rows8_columns256"))
    assert re.fullmatch(r"y\[\d, \d+\] is \S+; \S+ is expected", item["reasons"][0]), item["reasons"]
    assert item["metrics"]["worst"]["output"] == "y"


def test_an_element_that_is_not_written_is_told(norm: Path) -> None:
    old = "column < columns; column += THREADS) {\n    out"
    found = regress(norm, "rmsnorm.cu", old, old.replace("< columns", "< columns - 1"))
    status = next(item for item in found["regressions"] if item["kind"] == "status")
    assert "unwritten is 8" in status["text"]
    (item,) = cases(fmha(norm, "run-matrix", "--json", "--quiet", "--case", "rmsnorm_rows8_columns256"))
    assert re.fullmatch(r"y\[0, 255\] was never written; \S+ is expected", item["reasons"][0])


def test_more_work_for_the_same_numbers_is_told(norm: Path) -> None:
    found = regress(
        norm,
        "rmsnorm.cu",
        "  float total = 0.0f;\n",
        "  __nanosleep(1);\n  __nanosleep(2);\n  __nanosleep(3);\n  __nanosleep(4);\n  float total = 0.0f;\n",
    )
    assert found["code"] == ExitCode.GATE_FAILED
    assert {item["kind"] for item in found["regressions"]} == {"counters"}


def test_another_reference_is_another_judge(norm: Path) -> None:
    found = regress(norm, "fmha_kernels.py", "EPSILON = 1e-5", "EPSILON = 1.0e-5")
    assert {item["text"] for item in found["regressions"] if item["kind"] == "judge"} == {"fmha_kernels.py"}


def test_ptx_of_another_compiler_is_a_source_too(norm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path))  # other tests have built kernels with faults
    git(norm, "checkout", "-q", "-B", "ptx", "main")
    assert fmha(norm, "run-matrix", "--case", "rmsnorm_rows8_columns256", "--quiet").returncode == ExitCode.PASS
    (compiled,) = (tmp_path / "builds").glob("rmsnorm_sm90a_threads128-*/*.ptx")
    (norm / "rmsnorm.ptx").write_text(compiled.read_text())
    adapter = norm / "fmha_kernels.py"
    adapter.write_text(adapter.read_text().replace('source = "rmsnorm.cu"', 'source = "rmsnorm.ptx"'))
    runs = {}
    for source in ("rmsnorm.ptx", "rmsnorm.cu"):
        ran = fmha(norm, "run-matrix", "--case", "rmsnorm_rows8_columns256", "--json", "--quiet")
        assert ran.returncode == ExitCode.PASS, ran.stderr
        record = json.loads(ran.stdout)
        assert record["variants"][0]["source"] == source
        runs[source] = record["configurations"][0]["metrics"]["output_hash"]
        git(norm, "checkout", "-q", "--", ".")
    (norm / "rmsnorm.ptx").unlink()
    assert runs["rmsnorm.ptx"] == runs["rmsnorm.cu"]


# An adapter that helps a broken kernel: what it can get at of the judge it changes, and what it reads it prints.
HELPS = """
import os, sys
import fmha.harness.judge.gate as gate
import fmha.harness.judge.oracle.measure as measure
measure.general = gate.judge = lambda *found: None
print(os.environ, file=sys.stderr)
for path in HOME + "/.ssh/id_x", os.path.expanduser("~/.ssh/id_x"), "/etc/shadow":
    try:
        print(open(path).read(), file=sys.stderr)
    except OSError as error:
        print(error, file=sys.stderr)
for path in measure.__file__, gate.__file__, ROOT + "/rmsnorm.cu", ROOT + "/results/mine.json", HOME + "/.bashrc":
    try:
        open(path, "w").close()
        print("WRITTEN", path, file=sys.stderr)
    except OSError as error:
        print(error, file=sys.stderr)
"""


def test_an_adapter_that_helps_a_broken_kernel_has_no_effect(norm: Path, tmp_path: Path) -> None:
    git(norm, "checkout", "-q", "-B", "helps", "main")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_x").write_text("PRIVATE KEY")
    adapter, source = norm / "fmha_kernels.py", norm / "rmsnorm.cu"
    helps = HELPS.replace("HOME", repr(str(tmp_path))).replace("ROOT", repr(str(norm)))
    adapter.write_text(adapter.read_text() + helps)
    source.write_text(source.read_text().replace(" + epsilon);", ");"))
    broken = source.read_bytes()
    env = os.environ | {"HOME": str(tmp_path), "SSH_AUTH_SOCK": "/run/agent", "GH_TOKEN": "hunter2"}
    arguments = ("run-matrix", "--json", "--quiet", "--case", "rmsnorm_rows8_columns256")
    ran = forked.fmha(*arguments, cwd=norm, env=env)
    left = source.read_bytes()
    git(norm, "checkout", "-q", "--", ".")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    (found,) = json.loads(ran.stdout)["configurations"]
    assert found["status"] == "fail"
    assert found["metrics"]["max_error"] > 0
    logs = "".join(path.read_text() for path in (norm / ".fmha" / "runs").rglob("*.stderr"))
    assert "Read-only file system" in ran.stderr + logs or "Permission denied" in ran.stderr + logs
    for secret in ("PRIVATE KEY", "hunter2", "/run/agent", "WRITTEN", "root:"):
        assert secret not in ran.stderr + ran.stdout + logs, secret
    assert left == broken
    assert not (norm / "results" / "mine.json").exists()
    assert not (tmp_path / ".bashrc").exists()


@pytest.mark.parametrize(
    ("file", "old", "new", "status", "words"),
    [
        (
            "fmha_kernels.py",
            '"y", case.columns',
            '"z", case.columns',
            "adapter-error",
            "an argument names 'z'; the buffers are x,",
        ),
        (
            "fmha_kernels.py",
            '"y", case.columns, EPSILON',
            '"y", case.columns',
            "crash",
            "takes 5 parameters, 4 were passed",
        ),
        (
            "fmha_kernels.py",
            'return {"y": x',
            'return {"o": x',
            "adapter-error",
            "reference gives o; the outputs are y",
        ),
        (
            "fmha_kernels.py",
            'return {"y": x',
            'return {"y": q',
            "adapter-error",
            "NameError: name 'q' is not defined (fmha_kernels.py:",
        ),
        ("rmsnorm.cu", "rsqrtf(total", "rsqrtf(totals", "build-error", 'identifier "totals" is undefined'),
        (
            "fmha_kernels.py",
            'Build("rmsnorm"',
            'Build("norm"',
            "build-error",
            "entry of rmsnorm.cu: there is no norm; there are rms",
        ),
    ],
    ids=["buffer", "parameters", "reference", "raises", "compiler", "entry"],
)
def test_a_mistake_is_told_in_its_own_words(norm: Path, file: str, old: str, new: str, status: str, words: str) -> None:
    """Exit code 2 says that it is the adapter's own, and nothing against the kernel."""
    git(norm, "checkout", "-q", "-B", "mistake", "main")
    path = norm / file
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    ran = fmha(norm, "run-matrix", "--case", "rmsnorm_rows8_columns256", "--quiet")
    git(norm, "checkout", "-q", "--", ".")
    assert ran.returncode == (ExitCode.USAGE if status == "adapter-error" else ExitCode.GATE_FAILED), ran.stdout
    assert words in ran.stdout
    assert ran.stdout.splitlines()[-1].partition(";")[0].endswith(f"1 {status}")
