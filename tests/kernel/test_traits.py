"""The launch constants and the TMEM, shared-memory and barrier maps of each head_dim."""

import itertools
import subprocess
from collections.abc import Callable, Sequence

import pytest

HostCompile = Callable[[str], subprocess.CompletedProcess[str]]


def constants(host_compile: HostCompile, header: str, scope: str, names: Sequence[str]) -> dict[str, int]:
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


@pytest.fixture(scope="module")
def traits(host_compile: HostCompile) -> dict[str, int]:
    names = """
        kHeadDim kRows kKeys kStages kBuffers kMmaK kTmemColumns kTmemScore kTmemOutput kTmemProbability kScoreColumns
        kOutputColumns kProbabilityColumns kQueryBytes kKvTileBytes kSmemQuery kSmemKey kSmemValue kSmemBarriers
        kSmemTmemAddress kSmemEnd kDynamicSharedBytes kQueryFull kKeyFull kKeyEmpty kValueFull kValueEmpty kScoreFull
        kProbabilityFull kOutputFull kBarriers kKMajorStrideBytes kKMajorStepBytes kMnMajorStrideBytes
        kMnMajorLeadingBytes kMnMajorStepBytes kScoreInstruction kOutputInstruction
    """
    return constants(host_compile, "traits.cuh", "fmha::FmhaTraits<64>::", names.split())


def test_launch_shape(host_compile: HostCompile) -> None:
    names = [f"fmha_sm100_shape(64, false).{field}" for field in ("rows", "keys", "stages", "threads", "shared_bytes")]
    got = constants(host_compile, "fmha_launch.h", "", names)
    # 1024 to align, Q 16 KB, two K and two V tiles of 16 KB, 128 of control words
    assert list(got.values()) == [128, 128, 4, 192, 1024 + 5 * 16384 + 128]


def test_tmem_map(traits: dict[str, int]) -> None:
    regions = [("O", traits["kTmemOutput"], traits["kOutputColumns"])]
    for i in range(traits["kBuffers"]):
        regions.append((f"S{i}", traits["kTmemScore"] + i * traits["kScoreColumns"], traits["kScoreColumns"]))
        first = traits["kTmemProbability"] + i * traits["kProbabilityColumns"]
        regions.append((f"P{i}", first, traits["kProbabilityColumns"]))
    assert sorted(regions, key=lambda region: region[1]) == [
        ("S0", 0, 128),
        ("S1", 128, 128),
        ("O", 256, 64),
        ("P0", 320, 64),
        ("P1", 384, 64),
    ]
    assert_disjoint(regions, traits["kTmemColumns"])
    assert traits["kTmemColumns"] in (32, 64, 128, 256, 512)


def test_shared_memory_map(traits: dict[str, int]) -> None:
    tiles = [("Q", traits["kSmemQuery"], traits["kQueryBytes"])]
    for i in range(traits["kStages"]):
        tiles.append((f"K{i}", traits["kSmemKey"] + i * traits["kKvTileBytes"], traits["kKvTileBytes"]))
        tiles.append((f"V{i}", traits["kSmemValue"] + i * traits["kKvTileBytes"], traits["kKvTileBytes"]))
    assert [first % 1024 for _, first, _ in tiles] == [0] * 5
    control = [
        ("barriers", traits["kSmemBarriers"], 8 * traits["kBarriers"]),
        ("tmem address", traits["kSmemTmemAddress"], 4),
    ]
    assert traits["kSmemBarriers"] % 8 == 0
    assert_disjoint(tiles + control, traits["kSmemEnd"])
    assert traits["kDynamicSharedBytes"] == traits["kSmemEnd"] + 1024


def test_every_barrier_has_an_index_of_its_own(traits: dict[str, int]) -> None:
    regions = [("query_full", traits["kQueryFull"], 1), ("output_full", traits["kOutputFull"], 1)]
    for name in ("KeyFull", "KeyEmpty", "ValueFull", "ValueEmpty", "ScoreFull", "ProbabilityFull"):
        regions.append((name, traits[f"k{name}"], 2))
    assert_disjoint(regions, traits["kBarriers"])
    assert sum(size for _, _, size in regions) == traits["kBarriers"]


def test_operand_steps(traits: dict[str, int]) -> None:
    """K of one instruction is 16: 32 bytes of a K-major row, 16 rows of 128 bytes of an MN-major tile."""
    assert (traits["kKMajorStepBytes"], traits["kKMajorStrideBytes"]) == (32, 1024)
    assert (traits["kMnMajorStepBytes"], traits["kMnMajorStrideBytes"]) == (2048, 1024)
    assert traits["kMnMajorLeadingBytes"] == traits["kKvTileBytes"]  # one chunk of 64 elements, all its keys
    assert traits["kScoreInstruction"] == 0x08200490
    assert traits["kOutputInstruction"] == 0x08110490


def test_a_head_dim_without_traits_is_refused(host_compile: HostCompile) -> None:
    result = host_compile('#include "traits.cuh"\nint main() { return fmha::FmhaTraits<128>::kHeadDim; }')
    assert result.returncode != 0
    assert "only head_dim 64 is implemented" in result.stderr
