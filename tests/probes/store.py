"""Results of a run: for each case the bytes of its outputs, or why there are none. One compressed .npz.

python -m tests.probes.store GPU.npz puts the results of a run of some families to those checked in, a file a GPU.
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.probes.case import Array

CHECKED_IN = Path(__file__).resolve().parent / "gpu"


@dataclass(slots=True)
class Result:
    outputs: list[Array]  # uint8
    error: str = ""  # no outputs then
    modelled: bool = True


def save(path: Path, results: dict[str, Result], provenance: dict[str, Any]) -> None:
    index = {n: [[o.nbytes for o in r.outputs], r.error, r.modelled] for n, r in results.items()}
    parts = [o.view(np.uint8).ravel() for r in results.values() for o in r.outputs]
    blob = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    packed = np.frombuffer(lzma.compress(blob.tobytes(), preset=9), np.uint8)
    np.savez_compressed(
        path, blob=packed, index=np.array(json.dumps(index)), provenance=np.array(json.dumps(provenance))
    )


def load(path: Path) -> tuple[dict[str, Result], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as stored:
        packed = lzma.decompress(stored["blob"].tobytes())
        blob, index, provenance = (
            np.frombuffer(packed, np.uint8),
            json.loads(str(stored["index"])),
            json.loads(str(stored["provenance"])),
        )
    results, at = {}, 0
    for name, (sizes, error, modelled) in index.items():
        outputs = []
        for size in sizes:
            outputs.append(blob[at : at + size])
            at += size
        results[name] = Result(outputs, error, modelled)
    return results, provenance


def checked_in() -> dict[str, list[Result]]:
    """What each GPU said of each case: at least one answer, and one of each GPU that has run it."""
    found: dict[str, list[Result]] = {}
    for path in sorted(CHECKED_IN.glob("*.npz")):
        for name, result in load(path)[0].items():
            found.setdefault(name, []).append(result)
    return found


def _add(more: Path) -> None:
    added, theirs = load(more)
    path = CHECKED_IN / f"{theirs['gpu'].removeprefix('NVIDIA ').split()[0].lower()}.npz"
    results, origin = load(path) if path.exists() else ({}, theirs)
    if any(theirs[key] != origin[key] for key in ("gpu", "compiled_for")):
        raise SystemExit(f"{more} is of {theirs['gpu']}, {path} of {origin['gpu']}")
    if failed := {name: r.error for name, r in added.items() if r.error}:
        raise SystemExit(f"these did not run: {failed}")
    save(path, results | added, origin)
    print(f"{path}: {len(results | added)} results")


if __name__ == "__main__":
    _add(Path(sys.argv[1]))
