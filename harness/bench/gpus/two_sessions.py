"""The records of two sessions side by side: `python -m fmha.harness.bench.gpus.two_sessions FOLDER FOLDER > JSON`.

Each FOLDER is one of `python -m fmha.harness.bench.gpus.silicon_session`, the first from a GPU, the second from the
emulator.
Of every suite: configurations, how many passed, the lowest cosine and the largest LSE error of either; how many gave
the same bits in both; and the largest difference between the relative L2 errors of one configuration.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fmha.harness.archive.record import RunRecord
from fmha.harness.archive.record_files import read
from fmha.harness.bench.gpus.silicon_session import SUITES
from fmha.harness.judge.status import Status


def records(folder: Path) -> dict[str, RunRecord]:
    """The newest record of each suite; a selection of cases by name is the suite `shapes`."""
    found = {}
    for path in sorted((folder / "records").glob("*.json")):
        record = read(path)
        found[record.selection.suite or "shapes"] = record
    return found


def side_by_side(gpu: RunRecord, emulator: RunRecord) -> dict[str, Any]:
    """Raises ValueError where the two did not run the same configurations to their end."""
    ours = {item.id: item for item in gpu.configurations}
    theirs = {item.id: item for item in emulator.configurations}
    if ours.keys() != theirs.keys():
        raise ValueError(f"different configurations: {sorted(ours.keys() ^ theirs.keys())[:3]}")
    pairs = []
    for name, item in ours.items():
        if item.metrics is None or (other := theirs[name].metrics) is None:
            raise ValueError(f"{name} has no numbers")
        pairs.append((item.metrics, other))

    def worst(record: RunRecord) -> dict[str, Any]:
        metrics = [item.metrics for item in record.configurations if item.metrics is not None]
        return {
            "pass": sum(item.status is Status.PASS for item in record.configurations),
            "cosine": min(one.cosine for one in metrics),
            "lse_error": max(one.lse_error for one in metrics if one.lse_error is not None),
        }

    return {
        "configurations": len(pairs),
        "gpu": worst(gpu),
        "emulator": worst(emulator) | {"findings": sum(len(item.findings) for item in emulator.configurations)},
        "same_bits": sum(one.output_hash == other.output_hash for one, other in pairs),
        "largest_difference_of_relative_l2": max(abs(one.relative_l2 - other.relative_l2) for one, other in pairs),
    }


def compared(gpu: Mapping[str, RunRecord], emulator: Mapping[str, RunRecord]) -> dict[str, Any]:
    """Every suite of a session, in its order."""
    return {name: side_by_side(gpu[name], emulator[name]) for name in SUITES}


if __name__ == "__main__":
    first, second = (records(Path(folder)) for folder in sys.argv[1:3])
    print(json.dumps({"arch": "sm_90a", "suites": compared(first, second)}, indent=1))
