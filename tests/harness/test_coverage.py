"""Line coverage: from the worker's events to the record and to what is told."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fmha.harness.archive import RunRecord
from fmha.harness.contract.lines import Lines, read, spell
from fmha.harness.contract.protocol import Configuration, Event
from fmha.harness.errors import UserError
from fmha.harness.stages import report
from fmha.harness.stages.pipeline import Request, execute
from tests.forked import fmha
from tests.harness.support import Recorder, ScriptedHost, event


@given(st.sets(st.integers(min_value=1, max_value=200)))
def test_lines_are_read_back(lines: set[int]) -> None:
    assert read(spell(lines)) == lines


def test_lines_are_spelled_as_ranges() -> None:
    assert spell({9, 3, 5, 4}) == "3-5, 9"
    assert Lines.of({1: True, 2: False, 3: False}).missing == "2-3"


def _seen(ptx: Iterable[int], source: Iterable[int]) -> dict[str, object]:
    every = range(1, 5)
    return {
        "ptx": {"forward": [spell(every), spell(ptx)]},
        "source": {"kernel/a.cu": [spell(every), spell(source)], "/usr/include/b.h": ["1", ""]},
    }


def _host() -> ScriptedHost:
    def first(item: Configuration) -> Event:
        return event(item, stats={"coverage": _seen([1], [1, 2])})

    def second(item: Configuration) -> Event:
        return event(item, stats={"coverage": _seen([1, 3], [2])})

    def other(item: Configuration) -> Event:
        return event(item, stats={"coverage": _seen([4], [4])})

    return ScriptedHost({"hd64_t1_sk128": first, "hd64_t32_sk128": second, "hd128_t1_sk128": other})


def _run(checkout: Path, host: ScriptedHost) -> tuple[RunRecord, str]:
    records: list[RunRecord] = []
    stream = io.StringIO()
    console = Console(file=stream, color_system=None)

    def show(record: RunRecord, path: Path | None) -> None:
        records.append(record)
        report.show(record, path, console)

    execute(Request(checkout, coverage=True), Recorder(), show, lambda *_: host)
    return records[0], stream.getvalue()


def test_configurations_add_up_by_entry_and_by_file(checkout: Path) -> None:
    host = _host()
    record, text = _run(checkout, host)
    assert {job.device for job in host.jobs} == {"emulator-watching"}
    assert record.coverage is not None
    ptx = {name: (part.lines, part.executed, part.missing) for name, part in record.coverage.ptx.items()}
    assert ptx == {"hd64 forward": (4, 2, "2, 4"), "hd128 forward": (4, 1, "1-3")}
    source = {name: (part.lines, part.executed, part.missing) for name, part in record.coverage.source.items()}
    assert source == {"kernel/a.cu": (4, 3, "3")}
    assert all("coverage" not in item.stats for item in record.configurations)
    assert "executed 3 of 8 (37.5%) lines of PTX\nexecuted 3 of 4 (75.0%) lines of CUDA\n" in text
    assert "  kernel/a.cu: 3 of 4; never executed: 3\n" in text


def test_a_run_that_does_not_ask_says_nothing(checkout: Path) -> None:
    host = ScriptedHost()
    execute(Request(checkout), Recorder(), lambda record, path: None, lambda *_: host)
    assert {job.device for job in host.jobs} == {"emulator"}


def test_a_host_that_cannot_know_is_refused(checkout: Path) -> None:
    with pytest.raises(UserError, match="--coverage: only the emulator"):
        execute(Request(checkout, coverage=True), Recorder(), lambda *_: None, lambda *_: ScriptedHost(device="cuda"))


@pytest.mark.nvcc
@pytest.mark.slow
def test_a_run_of_a_kernel(repository: Path, tmp_path: Path) -> None:
    """One tile, no split: neither the rescale of O nor the combine kernel is executed; with more of both, both are."""

    def missing(*cases: str) -> dict[str, str]:
        wanted = [word for case in cases for word in ("--case", case)]
        ran = fmha("run-matrix", "--coverage", "--json", "--results", tmp_path, *wanted, cwd=repository)
        assert ran.returncode == 0, ran.stderr
        return {name: part["missing"] for name, part in json.loads(ran.stdout)["coverage"]["source"].items()}

    def line_of(file: str, text: str) -> int:
        lines = (repository / file).read_text().splitlines()
        (line,) = [number for number, found in enumerate(lines, 1) if text in found]
        return line

    role, combine = "kernel/sm100/softmax_role.cuh", "kernel/sm100/combine.cuh"
    scale, added = line_of(role, "output[i] * factor"), line_of(combine, "merged.sum = fmaf(sums[i], weights[i]")
    seen = missing("hd64_t4_sk128")
    assert scale in read(seen[role])
    assert added in read(seen[combine])
    seen = missing("hd64_t4_sk512_b2_data-extreme", "hd64_t4_sk512_splits2")
    assert scale not in read(seen[role])
    assert added not in read(seen[combine])
