"""Digests of the approximate functions, of the emulator and against an H200's: python -m tests.probes.mufu [ROW...]

Over all 2^32 arguments of each row (some half an hour for all) prints where the emulator differs from
results/mufu-h200.json, and records there how many of the row's 256 digests agree.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fmha import emulator
from fmha.emulator.device import Device, Module
from tests.probes.build import HERE, build_ptx
from tests.probes.mufu_gpu import BLOCK, BLOCKS, COUNT, ROWS, THREADS

RECORD = HERE.parent.parent / "results" / "mufu-h200.json"


def digests(module: Module, row: str, blocks: Iterable[int]) -> dict[int, int]:
    """What the emulator makes of the 2^24 arguments from block << 24 on, for each of `blocks`."""
    found = {}
    for block in blocks:
        device = Device(max_instructions=1 << 32)
        out = device.alloc(8, "digest")
        device.write(out.address, np.zeros(1, np.uint64))
        arguments = [block * BLOCK, COUNT, out.address]
        report = device.launch(module, f"digest_{row}", (BLOCK // (THREADS * COUNT),), (THREADS,), arguments)
        if not report.ok:
            raise RuntimeError(str(report.findings[0]))
        found[block] = int(device.read(out.address, 8).view(np.uint64)[0])
    return found


def main(rows: Sequence[str]) -> int:
    silicon = json.loads(RECORD.read_text())
    with tempfile.TemporaryDirectory() as folder:
        module = emulator.load_ptx(build_ptx("mufu", Path(folder)))
    agree = silicon.setdefault("agree", {})
    for row in rows:
        expected = [int(x, 16) for x in silicon["digests"][row].split()]
        ours = digests(module, row, range(BLOCKS))
        different = [f"{block:#x}" for block, digest in ours.items() if digest != expected[block]]
        agree[row] = BLOCKS - len(different)
        print(f"{row:24}{agree[row]} of {BLOCKS}", *different[:8], flush=True)
    RECORD.write_text(json.dumps(silicon, indent=1) + "\n")
    return 0 if all(agree[row] == BLOCKS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ROWS))
