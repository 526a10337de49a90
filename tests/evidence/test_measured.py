"""What configurations have cost before, from the records of an archive."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fmha.harness.archive.measured import RECENT_RUNS, costs
from tests.evidence.records import IDS, archived, record


def took(seconds: dict[str, float]) -> dict[str, dict[str, float]]:
    return {name: {"seconds": value} for name, value in seconds.items()}


def test_the_newest_run_of_the_host_counts(tmp_path: Path) -> None:
    runs = [took({IDS[0]: 1.0, IDS[1]: 2.0}), took({IDS[0]: 3.0, IDS[1]: 0.0})]
    archived(tmp_path, 2, lambda at: record(minutes=at, outcomes=runs[at]))
    assert costs(tmp_path, "emulator") == {IDS[0]: 3.0, IDS[1]: 2.0}
    assert costs(tmp_path, "hopper") == costs(tmp_path / "nothing", "emulator") == {}


def test_the_baseline_stands_behind_the_runs(tmp_path: Path) -> None:
    (path,) = archived(tmp_path, 1, lambda at: record(outcomes=took({IDS[0]: 1.0, IDS[1]: 2.0})))
    (tmp_path / "baselines").mkdir()
    path.rename(tmp_path / "baselines" / "emulator.json")
    archived(tmp_path, RECENT_RUNS, lambda at: record(minutes=at, outcomes=took({IDS[0]: 5.0}), leave_out=IDS[1:]))
    assert costs(tmp_path, "emulator") == {IDS[0]: 5.0, IDS[1]: 2.0}


def test_compressed_records_count(tmp_path: Path) -> None:
    (path,) = archived(tmp_path, 1, lambda at: record(outcomes=took({IDS[0]: 1.5})))
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert costs(tmp_path, "emulator")[IDS[0]] == 1.5


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, json.dumps({"configurations": [1]}), "\udcff"])
def test_what_is_no_record_says_nothing(tmp_path: Path, text: str) -> None:
    name = f"20261121T030405Z-{'0' * 12}-emulator.json"
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert costs(tmp_path, "emulator") == {}
