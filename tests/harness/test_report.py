from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fmha.harness.cli.progress import Live, ProgressLines, Silent, progress_for
from fmha.harness.contract.protocol import Event, FindingRecord
from fmha.harness.judge.status import Status
from fmha.harness.stages import report
from fmha.harness.stages.pipeline import Request, execute
from tests.evidence.records import record
from tests.harness.support import GOOD, RACE, Recorder, ScriptedHost, event

DEADLOCK = FindingRecord("deadlock", "error", "nobody can go on\n" + "\n".join(f"warp {n}: waits" for n in range(20)))


def printed(checkout: Path, host: ScriptedHost, *, table: bool = True, width: int | None = None) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=width is not None, color_system=None)
    request = Request(checkout)
    execute(request, Recorder(), lambda record, path: report.show(record, path, console, table=table), lambda *_: host)
    return stream.getvalue()


def test_a_pass_ends_with_one_word(checkout: Path) -> None:
    lines = printed(checkout, ScriptedHost()).splitlines()
    assert lines[0].split() == [
        "configuration",
        "status",
        "cosine",
        "rel",
        "L2",
        "rel",
        "max",
        "LSE",
        "err",
        "hazards",
        "warp-instr",
        "seconds",
    ]
    assert lines[1].split() == [
        "hd64_t1_sk128",
        "pass",
        "0.99999950",
        "1.0e-03",
        "1.0e-03",
        "1.0e-06",
        "0",
        "5",
        "0.50",
    ]
    assert lines[-3].startswith("suite small on emulator, seed 7, commit ")
    assert lines[-2].startswith("archived ")
    assert lines[-1] == "PASS 4 of 4"


def test_everything_that_did_not_pass_says_why(checkout: Path) -> None:
    host = ScriptedHost(
        {
            "hd64_t1_sk128": lambda item: event(item, measurement=replace(GOOD, lse_error=0.69)),
            "hd64_t32_sk128": lambda item: event(item, findings=(RACE, DEADLOCK, RACE, RACE, RACE)),
        }
    )
    text = printed(checkout, host)
    assert "hd64_t1_sk128: fail\n  lse_error is 0.69; at most 0.0001 is required\n" in text
    assert "hd64_t32_sk128: hazard\n  hazards is 5; at most 0 is required\n" in text
    assert "  error tmem-race: tcgen05.ld during the MMA that writes it (ptx_line 12)\n" in text
    assert "  error deadlock: nobody can go on\n  warp 0: waits\n" in text
    assert "  13 more lines in the record\n" in text
    assert text.count("tmem-race") == 1
    assert "(ptx_line 12)\n    4 findings of this cause\n" in text
    assert "not-run: hd128_t1_sk128, hd128_t32_sk128\n  guard: hd64_t1_sk128 failed (fail) and 1 more\n" in text
    assert text.endswith("FAIL 0 of 4 passed: 1 fail, 1 hazard, 2 not-run\n")


def test_hazards_of_one_cause_are_told_once(checkout: Path) -> None:
    calls = ["kernel/ptx/fence.cuh:3", "kernel/a.cu:9"]
    near = [replace(RACE, where={"source": "kernel/a.cu:9", "calls": calls, "ptx_line": line}) for line in range(50)]
    far = replace(RACE, where={"source": "kernel/a.cu:30"})
    host = ScriptedHost(
        {
            "hd64_t1_sk128": lambda item: event(item, findings=near),
            "hd64_t32_sk128": lambda item: event(item, findings=near[:7]),
        }
    )
    text = printed(checkout, host)
    assert text.count("tmem-race") == 1
    assert "\nhd64_t1_sk128 and 1 more: hazard\n" in text
    assert "    kernel/ptx/fence.cuh:3 < kernel/a.cu:9\n    50 findings of this cause\n" in text
    host = ScriptedHost(
        {
            "hd64_t1_sk128": lambda item: event(item, findings=near),
            "hd64_t32_sk128": lambda item: event(item, findings=[*near, far]),
        }
    )
    assert printed(checkout, host).count("tmem-race") == 3


def test_what_misses_the_same_gates_is_told_once(checkout: Path) -> None:
    """A wrong LSE in 284 configurations was 100 KB that nobody read."""
    host = ScriptedHost(
        {
            "hd128_t1_sk128": lambda item: event(item, measurement=replace(GOOD, lse_error=0.69)),
            "hd128_t32_sk128": lambda item: event(item, measurement=replace(GOOD, lse_error=0.5)),
        }
    )
    text = printed(checkout, host)
    assert text.count("lse_error is") == 1
    assert "hd128_t1_sk128 and 1 more: fail\n  lse_error is 0.69; at most 0.0001 is required\n" in text


def test_there_are_only_so_many_ways_to_fail_on_a_screen() -> None:
    crashed = [
        item.model_copy(update={"id": f"c{n}", "status": Status.CRASH, "reasons": [f"signal {n}"]})
        for n, item in enumerate(record().configurations * 20)
    ]
    stream = io.StringIO()
    run = record().model_copy(update={"configurations": crashed})
    report.show(run, None, Console(file=stream, width=200), table=False)
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if line.endswith(": crash")] == [f"c{n}: crash" for n in range(report.MOST_WAYS)]
    assert (
        f"{40 - report.MOST_WAYS} more configurations failed in 28 other ways; fmha report shows all of them" in lines
    )


def test_the_verdict_names_kernels_that_lenient_rules_judged() -> None:
    run = record()
    assert "lenient" not in report.verdict_line(run)
    first, *others = run.configurations
    for kernel, told in ((None, "attention"), ("my_norm", "my_norm")):
        parameters = first.parameters.model_copy(update={"kernel": kernel})
        item = first.model_copy(update={"stats": {**first.stats, "profile": "lenient"}, "parameters": parameters})
        seen = run.model_copy(update={"configurations": [item, *others]})
        assert report.verdict_line(seen).endswith(f"; lenient rules: {told}")


def test_a_reason_is_told_once_for_all_inputs_and_schedules() -> None:
    many = "hazards is 8; at most 0 is required"
    few = "hazards is 4; at most 0 is required"
    places = ["on the drawn inputs of seed 3", "under schedule pct:7, drawn for this run", "under schedule late"]
    said = [many, *(f"{place}: {many}" for place in places), f"{places[1]}: {few}"]
    assert list(report._once(said)) == [
        many,
        "the same on the drawn inputs of seed 3, under schedule pct:7, under schedule late",
        f"{places[1]}: {few}",
    ]


def test_a_build_error_is_told_once(checkout: Path) -> None:
    text = printed(checkout, ScriptedHost(unbuildable=[128]))
    assert text.count("no such thing") == 1
    assert "build-error: hd128_t1_sk128, hd128_t32_sk128\n  hd128: a.cu(3): error: no such thing\n" in text


def test_quiet_has_no_table(checkout: Path) -> None:
    text = printed(checkout, ScriptedHost(), table=False)
    assert text == "PASS 4 of 4\n", "failures and verdict only"
    failing = printed(checkout, ScriptedHost(unbuildable=[128]), table=False).splitlines()
    assert failing[0].startswith("build-error: ")
    assert failing[-1].startswith("FAIL")
    assert not [line for line in failing if line.startswith(("archived", "executed", "suite"))]


@pytest.mark.parametrize("width", [200, 80, 50])
def test_a_terminal_gets_whole_columns_or_none(checkout: Path, width: int) -> None:
    text = printed(checkout, ScriptedHost(), width=width)
    assert "…" not in text
    assert ("warp-instr" in text) == (width > 80)
    assert "hd128_t32_sk128" in text
    assert "0.99999950" in text


def test_what_a_worker_says_cannot_drive_the_terminal(checkout: Path) -> None:
    nasty = "red \x1b[31m [bold]markup[/bold] \x07"
    host = ScriptedHost({"hd64_t1_sk128": lambda item: Event("error", item.id, status="crash", message=nasty)})
    text = printed(checkout, host)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]markup[/bold]" in text


def test_progress_as_lines(checkout: Path) -> None:
    stream = io.StringIO()
    host = ScriptedHost({"hd128_t1_sk128": lambda item: Event("error", item.id, status="crash", message="a\nb")})
    execute(Request(checkout), ProgressLines(stream), lambda *_: None, lambda *_: host)
    assert stream.getvalue().splitlines() == [
        "build: 2 variants",
        "guard: 2 configurations",
        "  [1/4] hd64_t1_sk128 pass cosine 0.99999950 0.50 s",
        "  [2/4] hd64_t32_sk128 pass cosine 0.99999950 0.50 s",
        "matrix: 2 configurations",
        "  [3/4] hd128_t1_sk128 crash: a",
        "  [4/4] hd128_t32_sk128 pass cosine 0.99999950 0.50 s",
    ]


def test_progress_on_a_terminal_keeps_what_did_not_pass(checkout: Path) -> None:
    stream = io.StringIO()
    display = Live(Console(file=stream, force_terminal=True, width=100))
    host = ScriptedHost({"hd128_t1_sk128": lambda item: Event("error", item.id, status="crash", message="gone")})
    execute(Request(checkout), display, lambda *_: display.close(), lambda *_: host)
    display.close()
    assert "hd128_t1_sk128 crash: gone" in stream.getvalue()


def test_the_display_suits_the_stream() -> None:
    with progress_for(io.StringIO(), quiet=False) as display:
        assert isinstance(display, ProgressLines)
    with progress_for(io.StringIO(), quiet=True) as display:
        assert isinstance(display, Silent)
