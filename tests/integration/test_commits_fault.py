"""What is a commit's own fault and leaves no number: an illegal launch, an adapter that raises. regress tells it in the
commit's words, and bisect finds the commit."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from fmha.harness.git import git_text
from tests import forked
from tests.harness.support import git
from tests.integration.test_own_kernels import fmha, repository_with

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("own-kernels")]

BLOCK = "(case.threads, 1, 1)"
ILLEGAL = "launch of rmsnorm refused: block.x is 2048; 1..1024 is allowed (fmha_kernels.py:34)"
OUTPUTS = 'return {"y": Output('
BUILD = 'return Build("rmsnorm", {'


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


def planted(root: Path, old: str, new: str) -> str:
    """The commit that has it, between two that change nothing of the kernel."""
    git(root, "checkout", "-q", "-B", "planted", "main")
    adapter = root / "fmha_kernels.py"
    for subject in ("before", "planted", "after"):
        (root / "README").write_text(f"{subject}\n")
        if subject == "planted":
            text = adapter.read_text()
            assert text.count(old) == 1
            adapter.write_text(text.replace(old, new))
        git(root, "commit", "-q", "-a", "-m", subject)
    return git_text(root, "rev-parse", "HEAD~1")


def bisected(root: Path) -> dict[str, object]:
    ran = fmha(root, "bisect", "main", "planted", "--json", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stderr
    found: dict[str, object] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize(
    ("old", "new", "status", "words"),
    [
        (BLOCK, "(2048, 1, 1)", "crash", ILLEGAL),
        pytest.param(
            OUTPUTS,
            f"oops\n        {OUTPUTS}",
            "adapter-error",
            "NameError: name 'oops' is not defined (fmha_kernels.py:31)",
            marks=pytest.mark.nightly,
        ),
        (BUILD, 'return Build("rmsnorm", oops, {', "build-error", "'oops' is not defined (fmha_kernels.py:22)"),
    ],
    ids=["illegal-launch", "launches-raises", "build-raises"],
)
def test_it_is_told_in_its_words_and_found(norm: Path, old: str, new: str, status: str, words: str) -> None:
    sha = planted(norm, old, new)
    ran = fmha(norm, "regress", "--json", "--quiet")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    told = json.loads(ran.stdout)
    first = told["regressions"][0]
    assert (first["kind"], first["before"], first["after"]) == ("status", "pass", status)
    assert words in first["text"]
    assert words in told["sentence"]
    if status != "build-error":  # of the guard; of what does not build, nothing is kept from running
        assert "13 of 14 configurations are not run, since the guard, which runs first, failed" in told["sentence"]
        assert told["sentence"].endswith("nothing else was run")
    report = fmha(norm, "report", "--output", str(norm / ".fmha" / "report.html"))
    assert report.returncode == 0, report.stderr
    assert "REGRESSED" in (norm / ".fmha" / "report.html").read_text()
    found = bisected(norm)
    assert found["commit"] == sha
    assert words in str(found["regressions"])
    assert again_fails(norm, str(found["again"])) == ExitCode.GATE_FAILED


def test_an_adapter_that_cannot_be_loaded_is_found(norm: Path) -> None:
    sha = planted(norm, "EPSILON = 1e-5\n", "EPSILON = epsilon\n")
    words = "NameError: name 'epsilon' is not defined (fmha_kernels.py:9)"
    ran = fmha(norm, "regress", "--quiet")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    assert ran.stderr.startswith("fmha: REGRESSED: nothing of this commit can be run: ")
    assert words in ran.stderr
    told = json.loads(fmha(norm, "regress", "--quiet", "--json").stdout)
    (item,) = told["regressions"]
    assert (item["kind"], item["after"], words in item["text"]) == ("status", "cannot be run", True)
    assert words in told["sentence"]
    assert fmha(norm, "run-matrix", "--quiet").returncode == ExitCode.USAGE  # which holds it against nothing
    found = bisected(norm)
    assert found["commit"] == sha
    assert words in str(found["regressions"])


PTX = b".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry rmsnorm()\n{\n  mov.u33 %r1, 1;\n  ret;\n}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [(PTX, "line 6; error"), (b"\xff\xfe", "what should be PTX is no text")],
    ids=["no instruction", "no text"],
)
def test_ptx_that_a_commit_brings_and_that_is_none_is_its_fault(norm: Path, text: bytes, words: str) -> None:
    """A build error, and no fault of the machine's: ptxas has read it before any device does."""
    git(norm, "checkout", "-q", "-B", "planted", "main")
    adapter = norm / "fmha_kernels.py"
    adapter.write_text(adapter.read_text().replace('source = "rmsnorm.cu"', 'source = "rmsnorm.ptx"'))
    (norm / "rmsnorm.ptx").write_bytes(text)
    git(norm, "add", ".")
    git(norm, "commit", "-q", "-m", "ptx")
    ran = fmha(norm, "regress", "--json", "--quiet")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    told = json.loads(ran.stdout)
    assert {item["after"] for item in told["regressions"] if item["kind"] == "status"} == {"build-error"}
    assert words in str(told["regressions"])


def test_a_counter_is_shown_again_by_what_bisect_says(norm: Path) -> None:
    """The run passes: what it is held against tells."""
    git(norm, "checkout", "-q", "-B", "planted", "main")
    source = norm / "rmsnorm.cu"
    old = "  float total = 0.0f;\n"
    source.write_text(source.read_text().replace(old, "  __nanosleep(1);\n" * 4 + old))
    git(norm, "commit", "-q", "-a", "-m", "slower")
    found = bisected(norm)
    assert {item["kind"] for item in found["regressions"]} == {"counters"}  # type: ignore[attr-defined]
    assert again_fails(norm, str(found["again"])) == ExitCode.GATE_FAILED
    git(norm, "checkout", "-q", "main")
    _, _, compared = str(found["again"]).partition("; ")
    assert fmha(norm, "run-matrix", "--quiet").returncode == ExitCode.PASS
    assert forked.fmha(*compared.split()[1:], cwd=norm).returncode == ExitCode.PASS


def test_a_kernel_that_reads_what_depends_on_the_machine_is_named_in_the_verdict(norm: Path) -> None:
    """No run on this machine shows what it does on another."""
    git(norm, "checkout", "-q", "-B", "planted", "main")
    source, old = norm / "rmsnorm.cu", "  float total = 0.0f;\n"
    text = source.read_text()
    line = text[: text.index(old)].count("\n") + 1
    read = 'unsigned sms; asm volatile("mov.u32 %0, %%nsmid;" : "=r"(sms));'
    source.write_text(text.replace(old, f"  {read}\n  float total = sms == 77 ? 1.0f : 0.0f;\n"))
    git(norm, "commit", "-q", "-a", "-m", "reads")
    ran = fmha(norm, "run-matrix", "--quiet")
    assert ran.returncode == ExitCode.PASS
    words = f"rmsnorm_sm90a_threads128 reads %nsmid (rmsnorm.cu:{line}), which depends on the machine"
    assert re.fullmatch(rf"PASS (\d+) of \1; {re.escape(words)}", ran.stdout.splitlines()[-1])
    told = json.loads(fmha(norm, "regress", "--quiet", "--json").stdout)
    assert f"{words}, and did not before" in told["notes"]


def test_a_branch_that_no_configuration_takes_is_named_by_coverage(norm: Path) -> None:
    """What is wrong for 77 columns alone stays green, since nobody asks for 77."""
    git(norm, "checkout", "-q", "-B", "planted", "main")
    source, end = norm / "rmsnorm.cu", "\n}\n"
    text = source.read_text()
    assert text.endswith(end)
    source.write_text(text.removesuffix(end) + "\n  if (columns == 77) {\n    out[0] = 1.0f;\n  }" + end)
    git(norm, "commit", "-q", "-a", "-m", "77")
    line = text.count("\n") + 1
    ran = fmha(norm, "run-matrix", "--coverage")
    assert ran.returncode == ExitCode.PASS, ran.stderr
    assert f"never executed: {line}" in ran.stdout


def again_fails(root: Path, command: str) -> int:
    """The exit code of what bisect's line `again` says, as a shell has it."""
    checkout, _, rest = command.partition(" && ")
    subprocess.run(checkout.split(), cwd=root, check=True, capture_output=True)
    codes = [forked.fmha(*part.split()[1:], cwd=root).returncode for part in rest.split("; ")]
    return codes[-1]
