from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fmha.harness.archive import RunRecord
from fmha.harness.cli.progress import Silent
from fmha.harness.contract.protocol import BuildResult
from fmha.harness.errors import ExitCode
from fmha.harness.evidence.watch import Watcher, code_of
from fmha.harness.stages.pipeline import Request
from tests.evidence.records import VARIANT
from tests.harness.support import git
from tests.integration.processes import eventually

BUILD_SECONDS = 250

PTX = """.version 9.0
.file 1 "a.cu"
.entry k() {
  .loc 1 7 3
  // a comment
  ret;
}
"""


def built(path: Path, text: str, error: str | None = None) -> BuildResult:
    path.write_text(text)
    return BuildResult(VARIANT, str(path), "", None, "", "", (), 0.0, False, error)


def test_line_numbers_are_not_code(tmp_path: Path) -> None:
    code = code_of(built(tmp_path / "a.ptx", PTX))
    assert code_of(built(tmp_path / "a.ptx", PTX.replace(".loc 1 7 3", ".loc 1 8 3"))) == code
    assert code_of(built(tmp_path / "a.ptx", PTX.replace("ret;", "exit;"))) != code
    assert code_of(built(tmp_path / "a.ptx", PTX, error="a.cu(3): error")) != code


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "passed"),
    [([], "PASS 1 of 1"), pytest.param(["--json"], '"verdict": "PASS"', marks=pytest.mark.nightly)],
    ids=["words", "json"],
)
def test_a_save_runs_the_guard_again(repository: Path, tmp_path: Path, flags: list[str], passed: str) -> None:
    """The real command: a first round, one after a save that is fine, one after a save that breaks the build."""
    root = tmp_path / "checkout"
    shutil.copytree(repository / "kernel", root / "kernel")
    matrix = yaml.safe_load((repository / "matrix.yaml").read_text())
    small = {"small": {"axes": {"head_dim": [64], "t": [32], "s_k": [256]}}}
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix | {"suites": small, "default_suite": "small"}))
    (root / ".gitignore").write_text("/.fmha/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    said = tmp_path / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fmha", "watch", *flags],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(repository), "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        assert eventually(lambda: said.read_text().count(passed) == 1, BUILD_SECONDS)
        source = root / "kernel" / "sm100" / "fmha_fwd.cu"

        def saved(text: str, words: str, times: int) -> bool:
            """Whether the words are said so often in the end. Saved again and again: the watch may not have begun."""

            def again() -> bool:
                source.write_text(text)
                return said.read_text().count(words) >= times

            return eventually(again, BUILD_SECONDS)

        whole = source.read_text()
        assert saved(f"// A comment.\n{whole}", passed, 2)
        assert saved(f"{whole}\n#error half an edit\n", "half an edit", 1)
        assert not (root / "results").exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ExitCode.PASS
        if flags:
            rounds = [json.loads(line) for line in said.read_text().splitlines()]
            assert {one["format"] for one in rounds} == {"fmha-watch/1"}
            assert rounds[0]["configurations"] == [{"id": "hd64_t32_sk256", "status": "pass", "reasons": []}]
            assert (rounds[-1]["verdict"], rounds[-1]["passed"]) == ("FAIL", 0)
    finally:
        process.kill()
        process.wait()


NORMS = """
kernels: {norm: fmha_kernels.py:RmsNorm}
default_suite: small
seed: 0
suites: {small: {axes: {rows: [1], columns: [64], threads: [32, 64, 128]}}}
gates: {default: {cosine: 0.999999, relative_l2: 1e-6, max_error: 2e-6}}
guard: {case: norm_rows1_columns64}
limits: {build_seconds: 300, configuration_silence_seconds: 60, configuration_total_seconds: 300}
hosts: {emulator: {kind: emulator, arch: sm_90a}}
"""


@pytest.mark.nvcc
def test_what_a_save_has_touched_is_run_whose_ever_the_kernel(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (repository / "harness" / "examples" / "rmsnorm").glob("*.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "matrix.yaml").write_text(NORMS)
    (tmp_path / ".gitignore").write_text("/.fmha/\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "start")
    monkeypatch.chdir(tmp_path)
    ran: list[str] = []

    def show(record: RunRecord, path: Path | None) -> None:
        ran.extend(item.id for item in record.configurations)

    watcher = Watcher(Request(tmp_path), tmp_path, Silent(io.StringIO()), show)

    def round_of() -> list[str]:
        ran.clear()
        assert watcher.round() is ExitCode.PASS
        return ran

    guard, others = "norm_rows1_columns64", ["norm_rows1_columns64_threads32", "norm_rows1_columns64_threads64"]
    assert round_of() == [guard]
    source, adapter = tmp_path / "rmsnorm.cu", tmp_path / "fmha_kernels.py"
    text = source.read_text()
    slower = "#if THREADS == 32\n  __nanosleep(1);\n#endif\n"
    source.write_text(text.replace("  float total = 0.0f;\n", f"{slower}  float total = 0.0f;\n"))
    assert round_of() == [guard, guard, others[0]]
    adapter.write_text(f"{adapter.read_text()}\n# changed\n")
    assert round_of() == [guard, guard, *others]
