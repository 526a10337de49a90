"""What every command has in common: bounds of numbers, tables that fit, suites that there are."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from fmha.harness.cli.app import application
from fmha.harness.cli.output import print_table
from fmha.harness.cli.screen import Console
from fmha.harness.text import cut, fitting
from tests.forked import fmha


def commands(group: Any, name: str = "fmha") -> Iterator[tuple[str, Any]]:
    for word in group.list_commands(None):
        found = group.get_command(None, word)
        if hasattr(found, "list_commands"):
            yield from commands(found, f"{name} {word}")
        else:
            yield f"{name} {word}", found


def test_every_number_has_its_bounds() -> None:
    """Nobody means 10^20 of anything, and what would become of it is not for a user to find out."""
    unbounded, numbers = [], 0
    for name, command in commands(typer.main.get_command(application())):
        for parameter in command.params:
            kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            numbers += kind in (int, float)
            if kind in (int, float) and (parameter.min is None or parameter.max is None):
                unbounded.append(f"{name} {parameter.opts[0]}")
    assert unbounded == []
    assert numbers > 20


@pytest.mark.parametrize(
    "words",
    [
        "run-matrix --schedules",
        "emulate k.ptx --schedules",
        "emulate --search",
        "results prune --older-than",
        "ps --limit",
    ],
)
def test_a_number_beyond_reason_is_refused_with_the_most(words: str) -> None:
    done = fmha(*words.split(), "100000000000000000000")
    assert done.returncode == 2
    assert "less than or equal to" in done.stderr.replace("\n", " ")


ROWS = [
    ("20261128T122828Z-0123456789ab-emulator", "0123456789ab", "emulator", "seed hd=64,t=1", "0", "PASS", "4/4"),
    ("20261128T122829Z-0123456789ab-emulator", "0123456789ab+", "emulator", "all", "7", "INCOMPLETE", "123/403"),
]
COLUMNS = ("run", "commit", "host", "suite", "seed", "verdict", "passed")


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_a_table_keeps_its_verdict(width: int) -> None:
    out = io.StringIO()
    print_table(
        COLUMNS, ROWS, Console(file=out, width=width, force_terminal=True, color_system=None), 4, ("verdict", "passed")
    )
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    for line, row in zip(lines[1:], ROWS, strict=True):
        assert line.split()[-2:] == list(row[-2:])
    assert "Z-0123456789ab-emulator" in out.getvalue() or width < 200


def test_widths_that_fit() -> None:
    assert fitting([5, 5], 20, 2, ()) == [5, 5]
    assert fitting([20, 20, 4], 40, 2, [2]) == [16, 16, 4]
    assert fitting([20, 20, 10], 24, 2, [2]) == [12, 0, 10]
    assert (cut("abcdefgh", 5), cut("abc", 5), cut("abc", 1)) == ("ab\u2026gh", "abc", "\u2026")


def test_watch_refuses_a_suite_that_there_is_none_of() -> None:
    done = fmha("watch", "--suite", "nosuch", timeout=60)
    assert done.returncode == 2
    assert "no suite is named 'nosuch'; matrix.yaml has " in done.stderr
