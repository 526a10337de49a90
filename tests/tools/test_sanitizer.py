"""compute-sanitizer's words, as they are kept and shown."""

from __future__ import annotations

import json

import pytest

from tools.sanitizer.host import hanging, sayings
from tools.sanitizer.who_sees_what import PAGE, RECORD, page, word_of

RACE = "Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in a.cu:12"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"========= {RACE}", RACE.replace("0x90", "0x..")),
        ("=========     and Read access at sumKernel(int *, int *)+0xc0", None),
        ("========= Invalid __global__ write of size 4 bytes", "Invalid __global__ write of size 4 bytes"),
        ("========= COMPUTE-SANITIZER", None),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)", None),
        ("========= ERROR SUMMARY: 0 errors", None),
        ("begin barriers/halo:mistake", None),
    ],
)
def test_lines_that_say_what_is_wrong(line: str, said: str | None) -> None:
    assert sayings(line) == said


@pytest.mark.parametrize(
    ("tool", "said", "word"),
    [
        ("racecheck", [RACE], "race"),
        ("memcheck", ["Invalid __global__ write of size 4 bytes"], "Invalid __global__ write"),
        ("synccheck", ["Barrier error detected. Divergent thread(s) in block"], "Divergent thread(s)"),
        ("initcheck", ["Uninitialized __global__ memory read of size 4 bytes"], "Uninitialized __global__ memory read"),
        ("memcheck", ["lost: cudaErrorIllegalAddress", "hang"], ""),
        ("memcheck", [], ""),
    ],
)
def test_words_of_the_page(tool: str, said: list[str], word: str) -> None:
    assert word_of(tool, said) == word


def test_what_would_hang_is_known_from_the_catalogue() -> None:
    assert {"mbarriers/count_long", "grids/lock_half"} <= hanging()
    assert "barriers/halo" not in hanging()


def test_the_page_is_what_the_record_says() -> None:
    assert PAGE.read_text() == page(json.loads(RECORD.read_text()))


def test_what_no_tool_was_asked_about_is_no_dash() -> None:
    record = json.loads(RECORD.read_text())
    record["said"]["reports/stashed:mistake"].pop("initcheck", None)
    assert "| stashed | — | — | — | not run | `stream-race` |" in page(record)
