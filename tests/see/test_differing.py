"""`fmha diff-run`: the first instruction whose value differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.errors import UserError
from fmha.harness.see.differing import compare, parse_side

HERE = Path(__file__).parent / "kernels"
LAUNCH = HERE / "early.yaml"


def line_of(file: str, text: str) -> int:
    return next(n for n, line in enumerate((HERE / file).read_text().splitlines(), 1) if text in line)


def difference(a: str, b: str) -> tuple[str, ...]:
    return compare(HERE, parse_side(f"{HERE / a}"), parse_side(f"{HERE / b}"), str(LAUNCH)).lines


def test_a_load_that_does_not_wait_differs_between_schedules():
    """The polls of the other warp, more of them under one schedule, are no difference."""
    said = difference("early.ptx+early", "early.ptx+late")
    place = f"PTX line {line_of('early.ptx', 'ld.shared.u32')}"
    assert said[0] == f"the first value that differs: CTA 0, warp 0, at {place}"
    assert said[1].endswith("ld.shared.u32 %v, [%w]")
    assert said[2].startswith("  the first time that the warp executes it")
    assert said[3].startswith("  lane 1, result 0: 0x00000001 (1.4013e-45) in ")
    assert ", 0x00000000 (0) in " in said[3]
    assert "it reads shared memory" in said[8]


def test_the_same_schedule_twice():
    assert difference("early.ptx+random:3", "early.ptx+random:3")[0].startswith("no value differs: ")


def test_programs_that_differ_are_aligned():
    """One has an instruction more, which has nothing to be compared with; the shift is what differs."""
    said = difference("early.ptx+early", "shifted.ptx+early")
    assert said[0].endswith(f"warp 0, at PTX line {line_of('early.ptx', 'shl.b32 %v')}")
    assert said[3].startswith("  lane 1, result 0: 0x00000002")
    assert "0x00000004" in said[3]


def test_commits(repository):
    """A configuration of another commit is built from that commit's sources."""
    with pytest.raises(UserError, match="no commit is named 'nowhere'"):
        compare(repository, parse_side("hd64_t1_sk128@nowhere"), parse_side("hd64_t1_sk128"), None)
    with pytest.raises(UserError, match="a file of PTX is of no commit"):
        compare(HERE, parse_side("early.ptx@HEAD"), parse_side("early.ptx"), str(LAUNCH))
    with pytest.raises(UserError, match="names nothing"):
        parse_side("@HEAD")
