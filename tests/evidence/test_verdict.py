"""Ways to make a worse kernel look as good as before, planted in a copy of the project: each is red, with a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmha.harness import archive
from fmha.harness.config import load
from fmha.harness.errors import ExitCode
from fmha.harness.git import resolve_commit
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.stages import apart
from tests import forked
from tests.evidence.seeded_history import edit
from tests.harness.support import git

pytestmark = [pytest.mark.nvcc, pytest.mark.slow, pytest.mark.xdist_group("verdict")]
Change = Callable[[Path], None]
WORSE = edit(r"(ptx::log2\((?:state\.)?sum\)) \* kLn2", r"\1")  # LSE in base 2


def fmha(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.fmha(*arguments, cwd=root)


def regress(root: Path, change: Change, *arguments: str) -> dict[str, Any]:
    """What regress says of a commit on a branch of its own, with its exit code as `code`."""
    git(root, "checkout", "-q", "-B", "planted", "main")
    change(root)
    git(root, "commit", "-q", "-a", "-m", "planted")
    ran = fmha(root, "regress", "--json", "--quiet", *arguments)
    assert ran.stdout, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found | {"code": ran.returncode}


def matrix(change: Callable[[dict[str, Any]], None]) -> Change:
    def commit(root: Path) -> None:
        document = yaml.safe_load((root / "matrix.yaml").read_text())
        change(document)
        (root / "matrix.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    return commit


def judged(found: dict[str, Any]) -> dict[str, str]:
    """Regressions of kind judge: what each is about, and its words."""
    return {item["subject"]: item["text"] for item in found["regressions"] if item["kind"] == "judge"}


def test_nothing_planted_is_no_regression(project: Path) -> None:
    found = regress(project, lambda root: (root / "kernel" / "note").write_text("x") and git(root, "add", "."))
    assert (found["code"], found["regressions"]) == (ExitCode.PASS, [])


@pytest.mark.parametrize(
    ("change", "subject", "words"),
    [
        (lambda m: m["gates"]["guard"].update(cosine=0.9), "gate cosine", "cosine at least 0.999996 -> 0.9 in 1 conf"),
        (
            lambda m: m["gates"].update(default={"lse_error": 1.0}),
            "gate lse_error",
            "lse_error at most 0.0001 -> 1 in 2 conf",
        ),
        (
            lambda m: m["gates"]["resources"].update(spill_bytes=4096),
            "gate spill_bytes",
            "spill_bytes at most 0 -> 4096 in 2 conf",
        ),
        (lambda m: m["guard"].update(head_dim=128), "guard", "is not hd64_t1_sk128 any more"),
        (
            lambda m: m["suites"]["small"]["axes"].update(head_dim=[64]),
            "suite",
            "suite small has lost 1 configuration(s): hd128_t1_sk128",
        ),
    ],
    ids=["cosine 0.9", "lse_error 1", "spill 4096", "guard moved", "smaller suite"],
)
def test_what_was_loosened_in_the_matrix_is_told(
    project: Path, change: Callable[[dict[str, Any]], None], subject: str, words: str
) -> None:
    found = regress(project, matrix(change))
    assert found["code"] == ExitCode.GATE_FAILED
    told = judged(found)
    assert words in told[subject]
    assert told["changed"] == "matrix.yaml"


def test_a_loop_that_executes_more_is_told(project: Path) -> None:
    """The numbers are right to the last bit."""
    loop = r'\1    for (int i = 0; i < 400; ++i) asm volatile("nanosleep.u32 0;");\n'
    found = regress(
        project,
        edit(r"(Forward::kCtasPerSm\)\n    FMHA_ENTRY\(const __grid_constant__ FmhaParams params\) \{\n)", loop),
    )
    assert found["code"] == ExitCode.GATE_FAILED
    more = [item for item in found["regressions"] if item["kind"] == "counters"]
    assert {item["subject"] for item in more} == {"hd64_t1_sk128", "hd128_t1_sk128"}
    assert any(item["what"] == "warp_instructions" and item["after"] > 1.2 * item["before"] for item in more)
    # Whoever sees the run later is told, too.
    kept = archive.read(Path(found["run"]))
    assert (kept.verdict.word, kept.headword) == ("PASS", "REGRESSED")
    assert kept.regress is not None
    assert kept.regress.regressions.keys() == {item["kind"] for item in found["regressions"]}
    assert " REGRESSED " in fmha(project, "results", "ls").stdout.splitlines()[1]


LENGTH = r"(?<=kFmhaNormalise\)\) \{\n        return )1\.0f"
STORE = r"store_floats\((static_cast<float\*>\(params\.o\) \+ offset), values\);"
CUT = r"""float cut[Elements];
        for (int i = 0; i < Elements; ++i) {
            const uint32_t bits = __float_as_uint(values[i]);
            cut[i] = __uint_as_float(params.t == 3 ? (bits + 0x1000u) & 0xffffe000u : bits);
        }
        store_floats(\1, cut);"""


def small_mistakes(root: Path) -> None:
    """One for each number of queries, so that one build serves them all: O x 1.002, LSE + 1e-5, O through fp16."""
    edit(r"max \+ ptx::log2\(sum\) \* kLn2", r"\g<0> + (params.t == 2 ? 1e-5f : 0.0f)")(root)
    edit(LENGTH, "params.t == 4 ? 1.002f : params.t == 1 ? 1.0008f : 1.0f")(root)
    edit(STORE, CUT)(root)


def test_what_is_small_and_systematic_is_told(project: Path) -> None:
    git(project, "checkout", "-q", "-B", "planted", "main")
    small_mistakes(project)
    ones = [f"hd64_t1_sk{keys}_h2" for keys in (128, 256, 384, 512)]
    names = ["hd64_t4_sk128_h8", "hd64_t2_sk128_h2", "hd64_t3_sk128_h2", *ones]
    cases = [word for name in names for word in ("--case", name)]
    ran = fmha(project, "run-matrix", "--json", "--quiet", "--drawn", "1", *cases)
    git(project, "checkout", "-q", "--", ".")
    assert ran.returncode == ExitCode.GATE_FAILED, ran.stderr
    record = json.loads(ran.stdout)
    failed = {item["id"]: {check["name"] for check in item["failed_checks"]} for item in record["configurations"]}
    assert [failed[name] for name in names] == [{"slope_bias"}, {"lse_bias"}, {"coarse"}, *([set()] * 4)]
    biased = {figure["group"]: figure["text"] for figure in record["pooled"] if figure["value"] > figure["limit"]}
    assert re.match(r"O is 1\.00(0[5-9]|10)\d+ times the reference's, ", biased["t=1"])


def test_probabilities_cut_off_are_told(project: Path) -> None:
    """Twice the honest error, and below every limit of size."""
    git(project, "checkout", "-q", "-B", "planted", "main")
    edit(r"cvt\.rn\.bf16x2\.f32", "cvt.rz.bf16x2.f32")(project)
    ran = fmha(project, "run-matrix", "--json", "--quiet", "--case", "hd64_t32_sk256", "--drawn", "1")
    git(project, "checkout", "-q", "--", ".")
    (item,) = json.loads(ran.stdout)["configurations"]
    assert {check["name"] for check in item["failed_checks"]} == {"slope_bias"}


def test_a_measured_error_times_zero_is_judged_by_the_base(project: Path) -> None:
    def change(root: Path) -> None:
        WORSE(root)
        measure = root / "harness" / "judge" / "oracle" / "measure.py"
        nothing = r"lse_error=0.0 * (_error(\1) or 0.0),"
        text, count = re.subn(r"lse_error=_error\((.*)\),", nothing, measure.read_text())
        assert count == 1
        measure.write_text(text)

    found = regress(project, change, "--judge", "main")
    assert found["code"] == ExitCode.GATE_FAILED
    words = judged(found)["changed"]
    assert words == "by the commit itself: harness/judge/oracle/measure.py"
    failed = {item["subject"]: item["text"] for item in found["regressions"] if item["kind"] == "status"}
    assert "lse_error is" in failed["hd64_t1_sk128"]


def test_nothing_of_a_commits_own_judge_is_run(project: Path, tmp_path: Path) -> None:
    """Neither that, nor the rest of its harness: what would be written to the disk is not."""
    marker = tmp_path / "was here"

    def tamper(root: Path) -> None:
        for name in (
            "judge/oracle/measure.py",
            "stages/pipeline.py",
            "worker/launch/run_attention.py",
            "hosts/emulator_host.py",
        ):
            path = root / "harness" / name
            text = path.read_text().replace("from __future__ import annotations", "", 1)
            path.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n{text}")

    found = regress(project, tamper, "--judge", "main")
    assert found["code"] == ExitCode.GATE_FAILED
    assert judged(found) == {"changed": "by the commit itself: harness/judge/oracle/measure.py"}
    record = archive.read(Path(found["run"]))
    assert record.judge is not None
    assert record.judge.beside == [
        "harness/hosts/emulator_host.py",
        "harness/stages/pipeline.py",
        "harness/worker/launch/run_attention.py",
    ]
    assert not marker.exists()


def test_a_gate_at_work_hinders_nobody_here(project: Path) -> None:
    """Locally the judge is the one at hand: run-matrix goes by the gates as they were just written."""
    git(project, "checkout", "-q", "-B", "planted", "main")
    matrix(lambda m: m["gates"].update(default={"lse_error": 1.0}))(project)
    assert fmha(project, "run-matrix", "--quiet").returncode == ExitCode.PASS
    by_main = fmha(project, "run-matrix", "--quiet", "--judge", "main")
    git(project, "checkout", "-q", "--", ".")
    assert by_main.returncode == ExitCode.GATE_FAILED
    assert "judge changed: matrix.yaml" in by_main.stdout


@pytest.mark.parametrize("text", ["hosts: [", "hosts: {emulator: {kind: ssh, device: cuda}}"])
def test_a_commit_does_not_say_what_a_host_is(project: Path, text: str) -> None:
    """Nor whether it is timed, nor which baseline it is held against: its matrix.yaml is read to say that it differs,
    and may be no matrix.yaml."""
    found = regress(project, lambda root: (root / "matrix.yaml").write_text(text), "--judge", "main")
    assert found["code"] == ExitCode.GATE_FAILED
    assert [item["kind"] for item in found["regressions"]] == ["judge"]
    assert "matrix.yaml" in found["regressions"][0]["text"]


def test_a_judge_that_is_none_is_one_line(project: Path) -> None:
    for ref, words in (("nowhere", "--judge: 'nowhere' is no commit"), ("HEAD:kernel", "is no commit")):
        ran = fmha(project, "run-matrix", "--judge", ref)
        assert ran.returncode == ExitCode.USAGE
        assert words in ran.stderr


def test_a_judge_that_is_another_than_was_asked_for_does_not_start_itself_again(project: Path) -> None:
    """Its process finds another harness than the one that was laid out for it: without a check it did so for ever."""
    git(project, "checkout", "-q", "-B", "planted", "main")
    measure = project / "harness" / "judge" / "oracle" / "measure.py"
    measure.write_text(f"{measure.read_text()}# other\n")
    git(project, "commit", "-qam", "another judge")
    git(project, "checkout", "-q", "main")
    command = ["run-matrix", "--judge", "planted", "--filter", "hd=64,t=1,sk=128", "--quiet"]
    assert fmha(project, *command).returncode in (ExitCode.PASS, ExitCode.GATE_FAILED)
    sha = resolve_commit(project, "planted")
    assert sha is not None
    ran = forked.fmha(*command, cwd=project, env=os.environ | {apart.JUDGES: sha})
    assert ran.returncode == ExitCode.INFRASTRUCTURE
    assert f"the process that is to judge by {sha[:12]} has another harness/judge/oracle/measure.py" in ran.stderr


def test_several_at_once_find_a_whole_judge(project: Path) -> None:
    """Each lays it out if it is not there yet; none may meet what another has half done."""
    git(project, "checkout", "-q", "-B", "planted", "main")
    measure = project / "harness" / "judge" / "oracle" / "measure.py"
    measure.write_text(f"{measure.read_text()}# several\n")
    git(project, "commit", "-qam", "a judge for several")
    git(project, "checkout", "-q", "main")
    command = [sys.executable, "-P", "-m", "fmha", "run-matrix", "--judge", "planted"]
    command += ["--filter", "hd=64,t=1,sk=128", "--quiet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, cwd=project, **pipes) for _ in range(2)]
    said = [one.communicate() for one in running]
    assert [one.returncode for one in running] == [ExitCode.GATE_FAILED] * 2, said
    assert ["judge changed: harness/judge/oracle/measure.py" in out for out, _ in said] == [True] * 2, said


def test_noise_of_what_gives_the_same_bits_is_not_measured_again(project: Path) -> None:
    """Another scale at head_dim 128 alone: measured again is its noise, and all noise where that is asked for."""
    git(project, "checkout", "-q", "-B", "planted", "main")
    path = project / "results" / "baselines" / "emulator.json"
    base = archive.read(path)
    assert base.acceptance is not None
    marks = {"hd64_t1_sk128": {"relative_l2": [1.0] * 10}, "hd128_t1_sk128": {"relative_l2": [2.0] * 10}}
    marked = base.acceptance.model_copy(update={"noise": marks})
    path.write_text(archive.dumps(base.model_copy(update={"acceptance": marked})))
    of_one = r"(const float scale_log2 = params.scale \* kLog2E);\n    const int n"
    edit(of_one, r"\1 * (Traits::kHeadDim == 128 ? 1.0000002f : 1.0f);\n    const int n")(project)
    git(project, "commit", "-q", "-a", "-m", "planted")
    ran = fmha(project, "run-matrix", "--quiet")
    assert ran.returncode == ExitCode.PASS, ran.stdout

    def accepted(*arguments: str) -> tuple[str, dict[str, dict[str, list[float]]]]:
        ran = fmha(project, "baseline", "accept", "latest", "--why", "x", "--seeds", "10", "--quiet", *arguments)
        assert ran.returncode == ExitCode.PASS, ran.stderr
        taken = archive.read(path).acceptance
        assert taken is not None
        return ran.stdout, taken.noise

    said, noise = accepted()
    assert "noise of 1 configurations is the last baseline's: their outputs have the same bits" in said
    assert noise["hd64_t1_sk128"] == marks["hd64_t1_sk128"]
    assert max(noise["hd128_t1_sk128"]["relative_l2"]) < 0.1
    said, noise = accepted("--afresh")
    assert "the last baseline's" not in said
    assert max(noise["hd64_t1_sk128"]["relative_l2"]) < 0.1


def test_the_projects_own_baseline_covers_the_default_suite(repository: Path) -> None:
    """Every head_dim and every variant: a baseline of hd64 alone saw nothing of the others."""
    base = archive.read(repository / "results" / "baselines" / "emulator.json")
    settings = load(repository)
    ids = {item.id for item in base.configurations}
    wanted = settings.configurations(settings.default_suite, settings.seed)
    assert {item.id for item in wanted} <= ids
    variants = {variant if isinstance(variant := variant_for(item), str) else variant.name for item in wanted}
    assert variants <= {variant.name for variant in base.variants}
    assert {item.parameters.head_dim for item in base.configurations} == {64, 128, 256, 512}
    assert base.acceptance is not None
    assert base.judge is not None
