"""The approximate functions against an H200: digests over blocks of 2^24 arguments (results/mufu-h200.json).

`python -m tests.probes.mufu` compares all 256 blocks of each.
"""

from __future__ import annotations

import json

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


@pytest.mark.parametrize("row", ROWS)
def test_results_are_silicons(row: str, module: Module) -> None:
    recorded = [int(digest, 16) for digest in json.loads(RECORD.read_text())["digests"][row].split()]
    assert len(recorded) == BLOCKS
    sampled = BLOCKS_OF[list(ROWS).index(row) % 2]
    assert digests(module, row, sampled) == {block: recorded[block] for block in sampled}


def test_every_block_was_compared_and_agreed() -> None:
    record = json.loads(RECORD.read_text())
    assert record["agree"] == dict.fromkeys(ROWS, BLOCKS)
