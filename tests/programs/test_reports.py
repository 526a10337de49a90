"""Mistakes that strangers have reported: what docs/reference/reports.md says, and nothing in the twins."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.programs.program_rig import PTX_OF, Emulate, built

PAGE = Path(__file__).parents[2] / "docs/reference/reports.md"
TOLD = {
    "reports": {
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
    },
    "reports_science": {
        "hanging_nodes": "race",
        "reduce_scan": "lane-race",
        "orientation": "race",
        "marching_cubes": "race",
        "surfels": "race",
        "flush_buffer": "lane-race",
        "find": "barrier-exited-threads",
        "reduce_first": "race",
        "levels": "lane-race",
        "group_reduce": "lane-race",
    },
    "reports_frameworks": {
        "two_stages": "race",
        "serialize": "race",
        "select_k": "race",
        "quantize_mx4": "barrier-exited-threads",
        "gather": "global-out-of-bounds",
        "amplitudes": "misaligned",
        "generated_gemm": "race",
        "two_reductions": "race",
        "is_unique": "race",
        "cached": "uninitialised-global",
    },
    "reports_warps": {
        "numba_reduce": "lane-race",
        "scan": "deadlock",
        "logical_warps": "membermask-absent",
        "ballot": "membermask",
        "active": "shfl-inactive-lane",
        "tile_ranges": "global-out-of-bounds",
        "duplicate_keys": "uninitialised-global",
        "strided_slice": "misaligned",
        "over_group": "shfl-inactive-lane",
    },
}
# Of strict alone; the others are told leniently, too.
STRICT = {
    "ids_helper",
    "active",
    "find",
    "flush_buffer",
    "group_reduce",
    "levels",
    "logical_warps",
    "numba_reduce",
    "over_group",
    "quantize_mx4",
    "reduce_scan",
}
MISSED = {"reports_warps": ["kernel_sum"]}
NAMES = [(program, name) for program, told in TOLD.items() for name in told]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """By name; each is built once."""
    folder = tmp_path_factory.mktemp("reports")

    @cache
    def program(name: str) -> Path:
        return built(folder, Path(__file__).parent / f"{name}.cu", PTX_OF.format("100a"))

    return program


@pytest.mark.parametrize(("program", "name"), NAMES)
def test_a_report_is_told_and_its_twin_is_not(
    program: str, name: str, programs: Callable[[str], Path], emulate: Emulate
) -> None:
    reports, rule = programs(program), TOLD[program][name]
    profile = "strict" if name in STRICT else "lenient"
    told = emulate(reports, name, options=("--profile", profile))
    found = set(re.findall(r"^error: ([a-z-]+)", told.err, re.MULTILINE))
    assert found == {rule} if program == "reports" else rule in found
    assert f"({reports.parent}/" in told.err or f"{program}.cu:" in told.err, "the author's line"
    assert emulate(reports, name, "right", options=("--profile", "strict")).code == 0


@pytest.mark.parametrize(("program", "name"), [(p, name) for p, names in MISSED.items() for name in names])
def test_what_is_not_told_is_on_the_page(
    program: str, name: str, programs: Callable[[str], Path], emulate: Emulate
) -> None:
    assert emulate(programs(program), name, options=("--profile", "strict")).code == 0
    assert "## Not told" in PAGE.read_text()


def test_the_page_has_them_all() -> None:
    rows = re.findall(r"^\| [\w./-]+#\d+ \|.*\| `([a-z-]+)`.* \| (\w+) \|$", PAGE.read_text(), re.MULTILINE)
    told = [(TOLD[program][name], "strict" if name in STRICT else "lenient") for program, name in NAMES]
    assert rows == told


def test_a_program_that_hangs_runs_a_second_time(programs: Callable[[str], Path], emulate: Emulate) -> None:
    again = "the program runs a second time, to say why it hangs"
    assert again in emulate(programs("reports"), "barrier_each").err
    assert again not in emulate(programs("reports"), "ssm_scan").err, "a race is no hang"
