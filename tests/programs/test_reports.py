"""Mistakes that strangers have reported: what docs/reference/reports.md says, and nothing in the twins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.program_rig import PTX_OF, Emulate, built

PAGE = Path(__file__).parents[2] / "docs/reference/reports.md"
TOLD = {
    "barrier_of_some": "race",
    "rows_of_an_expert": "race",
    "delta_net": "race",
    "ssm_scan": "race",
    "ids_helper": "lane-race",
    "masked_turns": "race",
    "barrier_each": "deadlock",
    "scan_in_pieces": "race",
    "block_gemv": "race",
    "idle_lanes": "race",
    "freed_in_default": "stream-race",
    "stashed": "stream-race",
}
STRICT = {"ids_helper"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("reports"), Path(__file__).parent / "reports.cu", PTX_OF.format("100a"))


@pytest.mark.parametrize("name", TOLD)
def test_a_report_is_told_and_its_twin_is_not(name: str, reports: Path, emulate: Emulate) -> None:
    profile = "strict" if name in STRICT else "lenient"
    told = emulate(reports, name, options=("--profile", profile))
    assert set(re.findall(r"^error: ([a-z-]+)", told.err, re.MULTILINE)) == {TOLD[name]}
    assert f"({reports.parent}/" in told.err or "reports.cu:" in told.err, "the author's line"
    assert emulate(reports, name, "right", options=("--profile", "strict")).code == 0


def test_the_page_has_them_all() -> None:
    rows = re.findall(r"^\| [\w./-]+#\d+ \|.*\| `([a-z-]+)`.* \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(rule, "strict" if name in STRICT else "lenient") for name, rule in TOLD.items()]
