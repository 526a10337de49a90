"""The probes of tensor memory against the formulas that the other tests hold to CuTe's and TVM's tables."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.debug import probes
from tests.emulator.tcgen05_numbers import d_cells


@pytest.mark.parametrize(
    ("m", "n", "ws"), [(128, 64, False), (128, 256, False), (64, 64, False), (64, 64, True), (32, 64, True)]
)
def test_an_accumulator_lies_where_the_formulas_say(m, n, ws):
    cells = d_cells(m, n, ws=ws)
    assert (probes.accumulator(probes.ProductShape(m, n, ws)) == (cells[..., 1] << 16 | cells[..., 2])).all()


def test_round_trips():
    trips = probes.round_trips()
    assert [trip.same for trip in trips] == [True, True, True, True, True, False]
    assert "every other k is lost" in "".join(trips[-1].lines)
    assert trips[-1].what == "fp32 stored as the C fragment has it, read as A"


def test_a_fragment_of_a_weight_stationary_mma():
    """Rows 0 to 63 are read from the lanes of both halves: those of the columns of D that a half holds."""
    cells = probes.fragment_a(probes.ProductShape(64, 64, ws=True)) >> 1
    assert (cells & 0xFFFF == probes.A_COLUMN + np.arange(16)[None, :] // 2).all()
    assert (cells >> 16 == np.arange(64)[:, None]).all()
