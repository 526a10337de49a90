"""The approximate functions against an H200: digests over blocks of 2^24 arguments (results/mufu-h200.json).

`python -m tests.probes.mufu` compares all 256 blocks of each.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fmha import emulator
from fmha.emulator.device import Module
from tests.probes.build import build_ptx
from tests.probes.mufu import RECORD, digests
from tests.probes.mufu_gpu import BLOCKS, ROWS

# Denormals, infinity, NaNs and the largest numbers for one function, 0.5 to 2 and -2 to -0.5 for the next.
BLOCKS_OF = ((0x00, 0x7F), (0x3F, 0xBF))

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Module:
    return emulator.load_ptx(build_ptx("mufu", tmp_path_factory.mktemp("mufu")))


def blocks() -> list[Any]:
    """Each function's two, one of which is left to the night."""
    named = [(row, BLOCKS_OF[place % 2], place // 2 % 2) for place, row in enumerate(ROWS)]
    kept = [pytest.param(row, pair[which], id=f"{row}-{pair[which]:02x}") for row, pair, which in named]
    # Below 1 alone has the logarithm a sign: of it both are the day's.
    kept += [
        pytest.param(row, pair[1 - which], id=f"{row}-{pair[1 - which]:02x}")
        for row, pair, which in named
        if row == "lg2_approx_f32"
    ]
    marked = [(row, pair[1 - which]) for row, pair, which in named if row != "lg2_approx_f32"]
    nightly = [pytest.param(row, block, id=f"{row}-{block:02x}", marks=pytest.mark.nightly) for row, block in marked]
    return kept + nightly


@pytest.mark.parametrize(("row", "block"), blocks())
def test_results_are_silicons(row: str, block: int, module: Module) -> None:
    recorded = [int(digest, 16) for digest in json.loads(RECORD.read_text())["digests"][row].split()]
    assert len(recorded) == BLOCKS
    assert digests(module, row, (block,)) == {block: recorded[block]}


def test_every_block_was_compared_and_agreed() -> None:
    record = json.loads(RECORD.read_text())
    assert record["agree"] == dict.fromkeys(ROWS, BLOCKS)
