"""The emulator against an H200 and an H100: every probe whose forms are modelled gives what silicon gave.

tests/probes/gpu holds silicon's results, a file a GPU; the kernels are compiled here and run on the emulator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from tests.probes import sums
from tests.probes.build import build_ptx
from tests.probes.catalogue import SOURCES, cases
from tests.probes.compare import Comparison, compare
from tests.probes.known import KNOWN, pattern_of
from tests.probes.run_emulator import run_source
from tests.probes.store import Result, checked_in

pytestmark = pytest.mark.xdist_group("probes")


@pytest.fixture(scope="module")
def silicon() -> dict[str, Result]:
    return {name: results[0] for name, results in checked_in().items()}


@pytest.fixture(scope="module")
def compared(silicon: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Comparison]]:
    folder = tmp_path_factory.mktemp("probes")

    @functools.cache
    def of(source: str) -> list[Comparison]:
        ours = run_source(source, build_ptx(source, folder))
        return [compare(case, silicon[case.name], ours[case.name]) for case in cases(source)]

    return of


@pytest.mark.parametrize("source", [pytest.param(s, marks=pytest.mark.nvcc) for s in SOURCES])
def test_modelled_probes_agree_with_silicon(source: str, compared: Callable[[str], list[Comparison]]) -> None:
    differ = [f"{c.name}: {c.note}" for c in compared(source) if c.verdict == "differ" and pattern_of(c.name) is None]
    assert not differ, "\n".join(differ)


@pytest.mark.nvcc
def test_known_differences_are_still_there(compared: Callable[[str], list[Comparison]]) -> None:
    everything = [c for source in SOURCES for c in compared(source)]
    used = {pattern_of(c.name) for c in everything if c.verdict != "agree"}
    assert set(KNOWN) - used == set()


def test_every_probe_has_silicons_answer(silicon: dict[str, Result]) -> None:
    assert {case.name for case in cases()} == set(silicon)


def test_two_gpus_of_one_architecture_agree() -> None:
    both = {name: results for name, results in checked_in().items() if len(results) > 1}
    assert both
    for name, (one, other) in both.items():
        assert [x.tobytes() for x in one.outputs] == [x.tobytes() for x in other.outputs], name


def test_one_changed_bit_is_a_difference(silicon: dict[str, Result]) -> None:
    named = {case.name: case for case in cases()}
    for name in (
        "scalar/add_rn_f32",
        "scalar/ex2_approx_f32",
        "scalar/shf_l_wrap_b32",
        "tma/load_128B/0_0",
        "matrix/wgmma_bf16_kk/128B_0",
        "mbarrier/tx/parity",
    ):
        case = named[name]
        changed = silicon[name].outputs[0].copy()
        assert compare(case, silicon[name], Result([changed])).verdict == "agree"
        changed[-4] ^= 1
        assert compare(case, silicon[name], Result([changed])).verdict == "differ"


@pytest.mark.parametrize(
    ("dtype", "fraction", "group", "kept"),
    [("bf16", 25, 16, 24), ("f16", 25, 16, 24), ("tf32", 25, 8, 24), ("e4m3", 13, 32, 14)],
)
def test_model_of_silicons_sums(dtype: str, fraction: int, group: int, kept: int, silicon: dict[str, Result]) -> None:
    """wgmma aligns the accumulator and all products of an instruction, truncates, adds, truncates again."""
    for case in cases("matrix"):
        if case.name.startswith(f"matrix/sum_wgmma_{dtype}/"):
            got = sums.fragment_to_tile(silicon[case.name].outputs[0].view(np.uint32))
            a, b, c = sums.wgmma_operands(case, dtype)
            np.testing.assert_array_equal(sums.truncated_sum(a, b, c, dtype, fraction, group, kept), got)
