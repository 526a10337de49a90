"""A way to an agent is a row of fmha.harness.hosts.ways: here one by a program on PATH that is no ssh."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from fmha.harness.config.host_sections import HostSection
from fmha.harness.config.settings import WAY_OF_KIND, HostKind, RemoteSettings, WayName
from fmha.harness.hosts import ways
from fmha.harness.hosts.carrier import ProcessCarrier
from fmha.harness.hosts.shipment import COMMAND
from fmha.harness.stages import administration
from fmha.harness.stages.host_checkout import RunPlace

PROGRAM = """#!/bin/sh
# pod NAME COMMAND: carries out the command where NAME is known.
[ "$1" = known ] || { echo "no pod $1" >&2; exit 7; }
exec sh -c "$2"
"""


def test_each_kind_has_a_way_and_each_way_its_row() -> None:
    assert set(WAY_OF_KIND) == set(get_args(HostKind)) - {"emulator"}
    assert set(ways.WAYS) == set(get_args(WayName)) == {way for way in WAY_OF_KIND.values() if way}


def carrier(settings: RemoteSettings) -> ProcessCarrier:
    return ProcessCarrier(["pod", settings.alias, f"exec {shlex.quote(settings.python)} {COMMAND}"], settings.alias)


def test_a_row_is_all_that_a_way_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pod"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    row = ways.Way(carrier, lambda settings: f"see pod {settings.alias}", lambda settings: f"pod {settings.alias}")
    monkeypatch.setitem(ways.WAYS, "ssh", row)
    matrix: Any = None  # nothing here asks it
    known, other = (
        RunPlace(tmp_path, matrix, section.settings(str(section.alias)))
        for section in (
            HostSection(kind="ssh", device="emulator", alias=alias, folder=str(tmp_path / "f"), python=sys.executable)
            for alias in ("known", "other")
        )
    )
    there, gone = administration.reach([known, other])
    assert (there.means, there.problem) == ("pod known", "")
    assert gone.means == "pod other"
    assert "no pod other" in gone.problem
    (said,) = administration.examine(other)
    assert (said.good, said.fix) == (False, "see pod other")
