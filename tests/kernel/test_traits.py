"""The launch shapes, and the TMEM, shared-memory and barrier maps of each variant."""

import itertools
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.kernel import tables

HostCompile = Callable[[str], subprocess.CompletedProcess[str]]
Constants = dict[str, int]

SHARED_LIMIT = 232448  # 227 KiB


def constants(host_compile: HostCompile, header: str, scope: str, names: Sequence[str]) -> Constants:
    lines = [f'#include "{header}"', "#include <cstdio>", "int main() {"]
    lines += [f'    std::printf("%d\\n", int({scope}{name}));' for name in names]
    result = host_compile("\n".join([*lines, "}"]))
    assert result.returncode == 0, result.stderr
    return dict(zip(names, map(int, result.stdout.split()), strict=True))


def assert_disjoint(regions: list[tuple[str, int, int]], end: int) -> None:
    """Regions are (name, first, size)."""
    ordered = sorted(regions, key=lambda region: region[1])
    for (name, first, size), (next_name, next_first, _) in itertools.pairwise(ordered):
        assert first + size <= next_first, f"{name} runs into {next_name}"
    name, first, size = ordered[-1]
    assert ordered[0][1] >= 0
    assert first + size <= end, f"{name} ends at {first + size}, past {end}"


CONSTANTS = """
    kHeadDim kPInShared kRows kKeys kStages kBuffers kThreadsPerRow kThreadKeys kThreadElements kOutputN kOutputParts
    kPartColumns kTmemColumns kTmemScore kTmemOutput kTmemProbability kTmemUsed kScoreColumns kOutputColumns
    kProbabilityColumns kQueryBytes kKvTileBytes kProbabilityBytes kExchangeBytes kSmemQuery kSmemKv kSmemProbability
    kSmemExchange kSmemBarriers kSmemTmemAddress kSmemEnd kDynamicSharedBytes kQueryFull kKvFull kKvEmpty kScoreFull
    kProbabilityFull kOutputFull kKvTail kBarriers kKMajorStrideBytes kKMajorStepBytes kRowChunkBytes kKeyChunkBytes
    kMnMajorStrideBytes kMnMajorLeadingBytes kMnMajorStepBytes kPartBytes kScoreInstruction kOutputInstruction
    kSlots kPartChunks kCtasPerSm kOutputChunk
"""


@pytest.fixture(
    scope="module",
    params=(*tables.VARIANTS, *tables.FEW_ROWS),
    ids=lambda v: f"hd{v[0]}" + (f"_rows{v[2]}" if v[2] else f"_p{'smem' if v[1] else 'tmem'}"),
)
def traits(request: pytest.FixtureRequest, host_compile: HostCompile) -> Constants:
    made: tables.Made = request.param
    return constants(host_compile, "traits.cuh", tables.scope_of(made), CONSTANTS.split())


def test_launch_shapes_by_hand(host_compile: HostCompile) -> None:
    """Q, four (two) K or V tiles, two tiles of P; 1 KiB to align, 1 KiB to exchange row maxima and 8 KiB to exchange P,
    128 bytes of control words."""
    kib = 1024
    expected = {
        "64, false": (128, 128, 4, 192, kib + (16 + 4 * 16) * kib + 128),
        "64, true": (128, 128, 4, 192, kib + (16 + 4 * 16 + 2 * 32) * kib + 128),
        "128, true": (128, 128, 4, 192, kib + (32 + 4 * 32 + 2 * 32) * kib + 128),
        "256, false": (128, 64, 4, 192, kib + (64 + 4 * 32) * kib + 128),
        "256, true": (128, 64, 4, 192, kib + (64 + 4 * 32 + 2 * 16) * kib + 128),
        "512, false": (64, 64, 2, 192, kib + (64 + 2 * 64) * kib + 9 * kib + 128),
        "512, true": (64, 64, 2, 192, kib + (64 + 2 * 64 + 2 * 8) * kib + kib + 128),
        "64, true, 32": (32, 128, 4, 192, kib + (4 + 4 * 16 + 2 * 8) * kib + kib + 128),
        "128, true, 64": (64, 128, 4, 192, kib + (16 + 4 * 32 + 2 * 16) * kib + kib + 128),
    }
    for arguments, values in expected.items():
        fields = [f"fmha_sm100_shape({arguments}).{f}" for f in ("rows", "keys", "stages", "threads", "shared_bytes")]
        assert tuple(constants(host_compile, "fmha_launch.h", "", fields).values()) == values, arguments


def test_tmem_map(traits: Constants) -> None:
    regions = [("O", traits["kTmemOutput"], traits["kOutputColumns"])]
    for i in range(traits["kBuffers"]):
        regions.append((f"S{i}", traits["kTmemScore"] + i * traits["kScoreColumns"], traits["kScoreColumns"]))
        first = traits["kTmemProbability"] + i * traits["kProbabilityColumns"]
        regions.append((f"P{i}", first, traits["kProbabilityColumns"]))
    assert_disjoint([region for region in regions if region[2]], traits["kTmemUsed"])
    # An accumulator of M rows takes all 128 lanes: N columns, or a half or a quarter where a row has several lanes.
    lanes_a_row = 128 // traits["kRows"]
    assert traits["kScoreColumns"] * lanes_a_row == traits["kKeys"]
    assert traits["kOutputColumns"] * lanes_a_row == traits["kHeadDim"]
    assert traits["kProbabilityColumns"] == (0 if traits["kPInShared"] else traits["kKeys"] // 2)
    assert traits["kTmemUsed"] <= traits["kTmemColumns"] <= 512 // traits["kCtasPerSm"]
    assert traits["kTmemColumns"].bit_count() == 1


def test_shared_memory_map(traits: Constants) -> None:
    tiles = [("Q", traits["kSmemQuery"], traits["kQueryBytes"])]
    for i in range(traits["kStages"]):
        tiles.append((f"KV{i}", traits["kSmemKv"] + i * traits["kKvTileBytes"], traits["kKvTileBytes"]))
    if traits["kPInShared"]:
        for i in range(traits["kBuffers"]):
            first = traits["kSmemProbability"] + i * traits["kProbabilityBytes"]
            tiles.append((f"P{i}", first, traits["kProbabilityBytes"]))
    assert {first % 1024 for _, first, _ in tiles} == {0}
    # Where threads share a row: a float of each of 128, twice; and their part of P unless that is in shared memory.
    share = 0 if traits["kPInShared"] else 128 * 2 * traits["kThreadKeys"]
    assert traits["kExchangeBytes"] == (1024 + share if traits["kThreadsPerRow"] > 1 else 0)
    control = [
        ("exchange", traits["kSmemExchange"], traits["kExchangeBytes"]),
        ("barriers", traits["kSmemBarriers"], 8 * traits["kBarriers"]),
        ("tmem address", traits["kSmemTmemAddress"], 4),
    ]
    assert traits["kSmemBarriers"] % 8 == 0
    assert_disjoint(tiles + control, traits["kSmemEnd"])
    assert traits["kSmemEnd"] + 1024 == traits["kDynamicSharedBytes"] <= SHARED_LIMIT


def test_every_barrier_has_an_index_of_its_own(traits: Constants) -> None:
    regions = [(name, traits[f"k{name}"], 1) for name in ("QueryFull", "OutputFull", "KvTail")]
    for name in ("KvFull", "KvEmpty"):
        regions.append((name, traits[f"k{name}"], traits["kSlots"]))
    for name in ("ScoreFull", "ProbabilityFull"):
        regions.append((name, traits[f"k{name}"], traits["kBuffers"]))
    assert_disjoint(regions, traits["kBarriers"])
    assert sum(size for _, _, size in regions) == traits["kBarriers"]


def test_operand_steps(traits: Constants) -> None:
    """K of one instruction is 16: 32 bytes of a K-major row, 16 rows of 128 bytes of an MN-major tile."""
    assert (traits["kKMajorStepBytes"], traits["kKMajorStrideBytes"]) == (32, 1024)
    assert (traits["kMnMajorStepBytes"], traits["kMnMajorStrideBytes"]) == (2048, 1024)
    # Chunks of 64 elements: all rows of the operand, 128 bytes each.
    assert traits["kRowChunkBytes"] == traits["kRows"] * 128
    assert traits["kMnMajorLeadingBytes"] == traits["kKeyChunkBytes"] == traits["kKeys"] * 128
    assert traits["kKeyChunkBytes"] * traits["kHeadDim"] // 64 == traits["kKvTileBytes"]
    assert traits["kPartBytes"] * traits["kOutputParts"] == traits["kKvTileBytes"]
    assert traits["kPartBytes"] * traits["kSlots"] == traits["kKvTileBytes"] * traits["kStages"]
    assert traits["kPartChunks"] * 64 == traits["kOutputN"]
    # 0x490, N / 8 at bit 17, M / 16 at bit 24; O's B is MN-major, bit 16
    assert traits["kScoreInstruction"] == 0x490 | traits["kKeys"] // 8 << 17 | traits["kRows"] // 16 << 24
    n = min(traits["kHeadDim"], 256)
    assert traits["kOutputInstruction"] == 0x490 | 1 << 16 | n // 8 << 17 | traits["kRows"] // 16 << 24


def test_the_threads_of_a_cta_cover_o_once(traits: Constants, host_compile: HostCompile) -> None:
    own = traits["kRows"] == (64 if traits["kHeadDim"] == 512 else 128)
    scope = tables.scope_of((traits["kHeadDim"], bool(traits["kPInShared"]), 0 if own else traits["kRows"]))
    calls = [
        f"output_element({column}, {share})"
        for share in range(traits["kThreadsPerRow"])
        for column in range(traits["kOutputColumns"])
    ]
    elements = list(constants(host_compile, "traits.cuh", scope, calls).values())
    assert sorted(elements) == list(range(traits["kHeadDim"]))
    # A chunk that is loaded and stored at once stays together.
    chunk = traits["kOutputChunk"]
    for first in range(0, len(elements), chunk):
        assert elements[first : first + chunk] == list(range(elements[first], elements[first] + chunk))


def test_where_columns_of_o_lie_at_head_dim_512(host_compile: HostCompile) -> None:
    """Two accumulators of N = 256; in each, lanes 0-63 have columns 0-127 and lanes 64-127 the others (PTX ISA,
    tcgen05 data path layout E)."""
    calls = {"(0, 0)": 0, "(127, 0)": 127, "(0, 1)": 128, "(127, 1)": 255, "(128, 0)": 256, "(255, 1)": 511}
    got = constants(host_compile, "traits.cuh", "fmha::FmhaTraits<512, true>::output_element", list(calls))
    assert list(got.values()) == list(calls.values())


@pytest.mark.parametrize("rows", [32, 64, 128])
def test_stores_of_p_have_no_bank_conflict(host_compile: HostCompile, rows: int) -> None:
    """A warp's st.shared.v4 is served in four quarters of eight lanes, 128 bytes each: one pass over the 32 banks of 4
    bytes if, and only if, no two lanes of a quarter hit the same bank."""
    vectors = range(8)
    calls = [f"({row}, {vector})" for row in range(128) for vector in vectors]
    offsets = list(constants(host_compile, "traits.cuh", "fmha::swizzled_vector", calls).values())
    assert sorted(offsets) == list(range(0, 128 * 128, 16))  # every vector has a place of its own
    passes = stores = 0
    for warp, vector, quarter in itertools.product(range(rows // 32), vectors, range(4)):
        lanes = range(32 * warp + 8 * quarter, 32 * warp + 8 * quarter + 8)
        banks = [offsets[row * 8 + vector] // 4 % 32 + word for row in lanes for word in range(4)]
        stores += 1
        passes += max(banks.count(bank) for bank in banks)
    assert passes == stores


def test_unswizzled_rows_would_conflict_eight_ways() -> None:
    """That the count above can fail: eight rows at a pitch of 128 bytes share their banks."""
    banks = [(row * 128 + 16) // 4 % 32 + word for row in range(8) for word in range(4)]
    assert max(banks.count(bank) for bank in banks) == 8


def test_a_head_dim_without_traits_is_refused(host_compile: HostCompile) -> None:
    result = host_compile('#include "traits.cuh"\nint main() { return fmha::FmhaTraits<96, false>::kHeadDim; }')
    assert result.returncode != 0
    assert "HeadDim == 64" in result.stderr


def test_the_page_has_the_tables(host_compile: HostCompile, repository: Path) -> None:
    result = host_compile(tables.program())
    assert result.returncode == 0, result.stderr
    page = (repository / "docs/understand/kernel.md").read_text()
    assert tables.tables(result.stdout) in page, "paste what `python -m tests.kernel.tables` prints"
