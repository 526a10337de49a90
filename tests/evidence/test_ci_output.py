"""What CI systems are given: JUnit XML, and a GitHub job's summary and annotations."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import Held
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.evidence import github, junit
from fmha.harness.judge.comparison.comparison import Kind, Regression
from fmha.harness.judge.pooled import Pooled
from fmha.harness.judge.status import Status
from tests.evidence.records import IDS, record

HOSTILE = "a\x00b ]]> <b>&\n::error::no | [x](y) `z`"
WORSE = Regression(Kind.NUMBERS, IDS[0], "cosine", 1.0, 0.5, "cosine 1 -> 0.5")


def red(status: Status = Status.HAZARD, text: str = HOSTILE) -> RunRecord:
    finding = FindingRecord("race", "error", text, {"source": "kernel/a, b:c.cu:75"})
    return record(outcomes={IDS[0]: {"status": status, "reasons": (text,), "findings": (finding,)}})


@pytest.mark.parametrize(
    ("status", "element"),
    [
        (Status.FAIL, "failure"),
        (Status.HAZARD, "failure"),
        (Status.CRASH, "error"),
        (Status.TIMEOUT, "error"),
        (Status.BUILD_ERROR, "error"),
        (Status.INFRA_ERROR, "error"),
        (Status.NOT_RUN, "skipped"),
        (Status.PASS, None),
    ],
)
def test_every_status_is_said_in_junit(tmp_path: Path, status: Status, element: str | None) -> None:
    junit.write(tmp_path / "deep" / "junit.xml", red(status))
    root = ElementTree.parse(tmp_path / "deep" / "junit.xml").getroot()
    case, other = root.iter("testcase")
    assert [child.tag for child in case if child.tag != "system-out"] == ([element] if element else [])
    assert [child.tag for child in other] == ["system-out"]
    counts = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for kind, name in counts.items():
        assert root.attrib[name] == next(root.iter("testsuite")).attrib[name] == str(int(kind == element))
    assert root.attrib["tests"] == "2"


def test_a_cause_is_told_once_in_junit() -> None:
    findings = [FindingRecord("race", "error", f"of thread {n}", {"source": "kernel/a.cu:75"}) for n in range(300)]
    findings += [FindingRecord("race", "error", "elsewhere", {"source": "kernel/a.cu:80"})]
    run = record(outcomes={IDS[0]: {"status": Status.HAZARD, "reasons": ("301 hazards",), "findings": findings}})
    failure = next(junit.document(run).iter("failure"))
    assert (failure.text or "").splitlines() == [
        "301 hazards",
        "error race: of thread 0 (kernel/a.cu:75); 300 findings of this cause",
        "error race: elsewhere (kernel/a.cu:80)",
    ]


def test_regressions_are_failures_of_their_own() -> None:
    *_, case = junit.document(record(), [WORSE]).iter("testcase")
    assert (case.attrib["classname"], case.attrib["name"]) == ("fmha.regress.numbers", f"{IDS[0]} cosine")
    assert [child.tag for child in case] == ["failure"]


def told(run: RunRecord, folder: Path, *regressions: Regression) -> tuple[str, list[str]]:
    """The summary and the lines of a job."""
    stream, summary = io.StringIO(), folder / "summary.md"
    folder.mkdir(exist_ok=True)
    github.tell(run, regressions, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}, stream)
    return summary.read_text(), stream.getvalue().splitlines()


def test_nothing_is_said_outside_of_a_job(tmp_path: Path) -> None:
    stream = io.StringIO()
    github.tell(red(), (), {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}, stream)
    assert (stream.getvalue(), list(tmp_path.iterdir())) == ("", [])


def test_a_text_cannot_become_a_command_or_markup(tmp_path: Path) -> None:
    summary, lines = told(red(), tmp_path, WORSE)
    assert len(lines) == 2
    assert lines[0] == f"::error title=regression%3A numbers::{IDS[0]}: cosine 1 -> 0.5"
    assert lines[1].startswith("::error file=kernel/a%2C b%3Ac.cu,line=75,title=hazard::")
    assert all(line.startswith("::error ") for line in lines)
    for raw in ("<b>", "::error", "[x](y)", "`z`"):
        assert raw not in summary.replace(f"`{'0' * 12}`", "")
    assert "| hd64\\_t1\\_sk128 | hazard |" in summary


def test_what_does_not_print_is_in_no_page() -> None:
    """A compiler repeats what stands in a kernel, and whoever reads the summary in a terminal obeys it."""
    assert github.markdown("pass -> build-error: \x1b[2J\n\u202ex") == "pass -\\> build-error: \ufffd\\[2J \ufffdx"


def test_the_headline_is_what_regress_said(tmp_path: Path) -> None:
    words = "REGRESSED against commit 0123456789ab: 18 hash"
    held = Held(baseline="0" * 40, regressions={"hash": 18}, exit_code=1, words=words)
    summary, _ = told(record().model_copy(update={"regress": held}), tmp_path, WORSE)
    assert summary.startswith(f"## {words}; the run by itself: PASS 2 of 2\n")
    fine = held.model_copy(update={"regressions": {}, "exit_code": 0})
    summary, _ = told(record().model_copy(update={"regress": fine}), tmp_path / "again")
    assert summary.startswith("## PASS 2 of 2\n")


def test_what_only_all_configurations_show_is_told(tmp_path: Path) -> None:
    text = "O is 1.000400 times the reference's, 17 deviations of what rounding does, over 33 configurations"
    biased = Pooled(group="t=1", name="pooled_slope", value=17.0, limit=5.0, configurations=33, text=text)
    run = record().model_copy(update={"pooled": [biased]})
    summary, lines = told(run, tmp_path)
    assert lines == [f"::error title=bias::t=1: {text}"]
    assert "- t=1: O is 1.000400 times the reference's, 17 deviations" in summary
    *_, case = junit.document(run).iter("testcase")
    assert (case.attrib["classname"], case.attrib["name"]) == ("fmha.run.pooled_slope", "t=1")
    assert [child.tag for child in case] == ["failure"]


def test_annotations_are_as_many_as_are_shown(tmp_path: Path) -> None:
    _, lines = told(record(), tmp_path, *[WORSE] * 30)
    assert len(lines) == github.MOST_ANNOTATIONS


def test_a_summary_never_exceeds_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("x" * (github.MOST_SUMMARY - 400))
    summary, _ = told(record(), tmp_path, *[WORSE] * 30)
    assert len(summary.encode()) <= github.MOST_SUMMARY
    assert summary.endswith("The rest is in the archived record.\n")
    told(record(), tmp_path, *[WORSE] * 30)
    assert (tmp_path / "summary.md").stat().st_size <= github.MOST_SUMMARY


@pytest.mark.nvcc
def test_a_run_in_a_job(checkout: Path, fmha: Callable[..., CompletedProcess[str]]) -> None:
    """The checkout has no kernel: every configuration is a build-error."""
    summary = checkout / "results" / "summary.md"
    summary.parent.mkdir()
    ran = fmha(
        *("run-matrix", "--filter", "hd=64", "--junit", "results/junit.xml", "--quiet"),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert ran.returncode == 1
    assert ran.stderr.count("::error title=build-error::") == 2
    assert summary.read_text().startswith("## FAIL 0 of 2 passed")
    assert ElementTree.parse(checkout / "results" / "junit.xml").getroot().attrib["errors"] == "2"
