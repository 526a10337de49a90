import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from fmha.harness.contract.device import LaunchReport
from fmha.harness.contract.protocol import Configuration
from fmha.harness.judge.metrics import Measurement
from fmha.harness.judge.oracle.bf16 import round_to_bf16
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.oracle.measure import WrittenOutput, general, measure
from fmha.harness.judge.oracle.outputs import POISON, POISON_BF16, Outputs
from fmha.harness.judge.oracle.reference import reference

CONFIGURATION = Configuration(64, 8, 100)
REFERENCE = reference(make_inputs(0, CONFIGURATION))


def outputs_of(reference, **changes):
    arrays = {
        "o": reference.o_unnormalised.astype(np.float32),
        "row_max": reference.row_max.astype(np.float32),
        "row_sum": reference.row_sum.astype(np.float32),
        "lse": reference.lse.astype(np.float32),
    }
    return Outputs(**(arrays | changes), report=LaunchReport())


def test_a_perfect_kernel():
    measured = measure(CONFIGURATION, outputs_of(REFERENCE), REFERENCE)
    assert measured.cosine == pytest.approx(1, abs=1e-12)
    errors = (measured.relative_l2, measured.max_error, measured.lse_error, measured.row_max_error)
    assert all(error < 1e-6 for error in (*errors, measured.row_sum_error))
    assert (measured.nonfinite_mismatches, measured.unwritten) == (0, 0)


def test_a_wrong_scale_is_invisible_to_cosine_and_caught_by_the_norms():
    o = (2 * REFERENCE.o_unnormalised).astype(np.float32)
    measured = measure(CONFIGURATION, outputs_of(REFERENCE, o=o), REFERENCE)
    assert measured.cosine == pytest.approx(1, abs=1e-12)
    assert measured.relative_l2 == pytest.approx(1, abs=1e-6)
    assert measured.max_error == pytest.approx(1, abs=1e-6)


def test_an_lse_in_base_two():
    lse = (REFERENCE.lse / math.log(2)).astype(np.float32)
    measured = measure(CONFIGURATION, outputs_of(REFERENCE, lse=lse), REFERENCE)
    assert measured.lse_error == pytest.approx(np.abs(REFERENCE.lse * (1 / math.log(2) - 1)).max(), rel=1e-5)


def test_o_is_divided_by_the_kernel_s_own_row_sum():
    row_sum = (1.5 * REFERENCE.row_sum).astype(np.float32)
    o = (1.5 * REFERENCE.o_unnormalised).astype(np.float32)
    measured = measure(CONFIGURATION, outputs_of(REFERENCE, o=o, row_sum=row_sum), REFERENCE)
    assert measured.max_error < 1e-6
    assert measured.row_sum_error == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("statistics", "there"),
    [("all", {"lse_error", "row_max_error", "row_sum_error"}), ("lse", {"lse_error"}), ("none", set())],
)
def test_what_was_not_asked_for_has_no_number_and_counts_as_no_fault(statistics, there):
    configuration = dataclasses.replace(CONFIGURATION, output="fp32", statistics=statistics)
    o = REFERENCE.o.astype(np.float32)
    every = outputs_of(REFERENCE, o=o)
    left_out = {name: None for name in ("row_max", "row_sum", "lse") if name not in configuration.stored}
    measured = measure(configuration, outputs_of(REFERENCE, o=o, **left_out), REFERENCE)
    known = {name for name in ("lse_error", "row_max_error", "row_sum_error") if getattr(measured, name) is not None}
    assert known == there
    assert set(configuration.unmeasured) == {"lse_error", "row_max_error", "row_sum_error"} - there
    assert (measured.nonfinite_mismatches, measured.unwritten) == (0, 0)
    assert (measured.output_hash == measure(configuration, every, REFERENCE).output_hash) == (statistics == "all")
    assert (measured.bias.lse_mean == 0.0) == (statistics == "none")


def test_lse_that_was_asked_for_alone_and_not_written_is_seen():
    configuration = dataclasses.replace(CONFIGURATION, output="fp32", statistics="lse")
    lse = np.full(REFERENCE.lse.shape, POISON, np.uint32).view(np.float32)
    outputs = outputs_of(REFERENCE, o=REFERENCE.o.astype(np.float32), row_max=None, row_sum=None, lse=lse)
    measured = measure(configuration, outputs, REFERENCE)
    assert (measured.unwritten, measured.nonfinite_mismatches) == (8, 8)
    assert math.isnan(measured.lse_error)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_nonfinite_element_agrees_with_nothing(value):
    o = REFERENCE.o_unnormalised.astype(np.float32)
    o[0, 3, 0, 7] = value
    measured = measure(CONFIGURATION, outputs_of(REFERENCE, o=o), REFERENCE)
    assert measured.nonfinite_mismatches == 1
    assert not measured.cosine >= 0.99
    assert not measured.relative_l2 <= 1
    assert not measured.max_error <= 1


def test_all_zeros_agree_with_nothing():
    zeros = np.zeros_like(REFERENCE.o, dtype=np.float32)
    measured = measure(CONFIGURATION, outputs_of(REFERENCE, o=zeros), REFERENCE)
    assert math.isnan(measured.cosine)
    assert measured.relative_l2 == 1


def test_where_the_reference_is_zero_everywhere_only_zero_agrees():
    blank = dataclasses.replace(
        REFERENCE, o=np.zeros_like(REFERENCE.o), o_unnormalised=np.zeros_like(REFERENCE.o_unnormalised)
    )
    measured = measure(CONFIGURATION, outputs_of(blank), blank)
    assert (measured.cosine, measured.relative_l2, measured.max_error) == (1, 0, 0)
    o = np.zeros_like(REFERENCE.o, dtype=np.float32)
    o[0, 3, 0, 7] = 1e-30
    measured = measure(CONFIGURATION, outputs_of(blank, o=o), blank)
    assert math.isnan(measured.cosine)
    assert math.isnan(measured.relative_l2)
    assert math.isnan(measured.max_error)


def test_poison_is_counted_in_every_output():
    poison = np.array([POISON], dtype=np.uint32).view(np.float32)[0]
    o, lse = REFERENCE.o_unnormalised.astype(np.float32), REFERENCE.lse.astype(np.float32)
    o[0, 0, 0, :2] = poison
    lse[0, 5, 0] = poison
    assert measure(CONFIGURATION, outputs_of(REFERENCE, o=o, lse=lse), REFERENCE).unwritten == 3


MASKED_CONFIGURATION = Configuration(64, 4, 2, mask="causal")
MASKED = reference(make_inputs(0, MASKED_CONFIGURATION))


def test_rows_without_keys_agree_when_they_are_written_as_defined():
    measured = measure(CONFIGURATION, outputs_of(MASKED), MASKED)
    assert measured.nonfinite_mismatches == 0
    assert measured.lse_error < 1e-6
    assert measured.max_error < 1e-6


def test_rows_without_keys_must_hold_zeros():
    o = MASKED.o_unnormalised.astype(np.float32)
    o[0, 0] = 1.0
    assert measure(CONFIGURATION, outputs_of(MASKED, o=o), MASKED).max_error > 0.1


def test_a_finite_lse_where_minus_infinity_belongs():
    lse = MASKED.lse.astype(np.float32)
    lse[0, 0, 0] = 0.0
    assert measure(CONFIGURATION, outputs_of(MASKED, lse=lse), MASKED).nonfinite_mismatches == 1


def test_the_hash_sees_every_bit():
    row_max = REFERENCE.row_max.astype(np.float32)
    row_max[0, 0, 0] = np.nextafter(row_max[0, 0, 0], np.float32(np.inf))
    first = measure(CONFIGURATION, outputs_of(REFERENCE), REFERENCE).output_hash
    assert measure(CONFIGURATION, outputs_of(REFERENCE), REFERENCE).output_hash == first
    assert measure(CONFIGURATION, outputs_of(REFERENCE, row_max=row_max), REFERENCE).output_hash != first


def test_rows_without_keys_must_have_a_sum_of_zero():
    row_sum = MASKED.row_sum.astype(np.float32)
    row_sum[0, 0, 0] = 0.5
    assert measure(CONFIGURATION, outputs_of(MASKED, row_sum=row_sum), MASKED).row_sum_error == 0.5


NORMALISED = dataclasses.replace(CONFIGURATION, heads=4, sink="mixed", output="bf16")
WITH_SINK = reference(make_inputs(0, NORMALISED))


def bf16_outputs(o):
    return outputs_of(WITH_SINK, o=round_to_bf16(o))


def test_normalised_output_is_held_to_the_reference_with_its_sink():
    measured = measure(NORMALISED, bf16_outputs(WITH_SINK.o), WITH_SINK)
    assert measured.relative_l2 < 2**-8
    assert measured.nonfinite_mismatches == 0
    without = WITH_SINK.o_unnormalised / WITH_SINK.row_sum[..., np.newaxis]
    assert measure(NORMALISED, bf16_outputs(without), WITH_SINK).relative_l2 > 0.1


def test_un_normalised_output_knows_no_sink():
    measured = measure(dataclasses.replace(NORMALISED, output="unnormalised"), outputs_of(WITH_SINK), WITH_SINK)
    assert measured.max_error < 1e-6


def test_poison_is_counted_in_bf16_too():
    bits = round_to_bf16(WITH_SINK.o)
    bits[0, 0, 0, :3] = POISON_BF16
    measured = measure(NORMALISED, outputs_of(WITH_SINK, o=bits), WITH_SINK)
    assert (measured.unwritten, measured.nonfinite_mismatches) == (3, 3)


def faint(scale: float):
    """The configuration with a sink that leaves O of this size, and its reference."""
    configuration = dataclasses.replace(CONFIGURATION, output="fp32", sink="finite")
    return configuration, dataclasses.replace(REFERENCE, o=REFERENCE.o / np.abs(REFERENCE.o).max() * scale)


@pytest.mark.parametrize("scale", [1e-38, 1e-150, 1e-200, 1e-310])  # float64 has no square of the last two
def test_what_float32_flushes_is_right_as_zero(scale: float):
    configuration, wanted = faint(scale)
    measured = measure(configuration, outputs_of(wanted, o=np.zeros_like(wanted.o, np.float32)), wanted)
    assert (measured.cosine, measured.relative_l2, measured.max_error) == (pytest.approx(1), 0, 0)


def test_what_float32_can_hold_is_no_zero():
    configuration, wanted = faint(1e-36)
    measured = measure(configuration, outputs_of(wanted, o=np.zeros_like(wanted.o, np.float32)), wanted)
    assert measured.relative_l2 > 0.9
    assert measured.max_error > 0.9


def test_what_a_flushed_factor_leaves_is_right_as_zero():
    """Of un-normalised O and the number it is multiplied by, 8e-39, float32 keeps none."""
    inputs = make_inputs(0, CONFIGURATION)
    plain = reference(inputs)
    highest = float(plain.row_max.max() + np.log(8e-39) * -1)
    sunk = dataclasses.replace(inputs, sink=np.full(inputs.q.shape[2], highest, np.float32))
    wanted = reference(sunk)
    assert np.abs(wanted.o).max() > 2 * np.finfo(np.float32).tiny
    configuration = dataclasses.replace(CONFIGURATION, output="fp32", sink="finite")
    measured = measure(configuration, outputs_of(wanted, o=np.zeros_like(wanted.o, np.float32)), wanted)
    assert (measured.cosine, measured.relative_l2, measured.max_error) == (pytest.approx(1), 0, 0)


def figures(values: Any, wanted: Any, unwritten: Any = False) -> Measurement:
    """Of one output, y."""
    values, wanted = np.asarray(values, np.float64), np.asarray(wanted, np.float64)
    return general([WrittenOutput("y", values, wanted, np.broadcast_to(unwritten, wanted.shape))], "")


def test_an_infinity_of_the_reference_is_right_where_it_is_and_a_nan_is_not() -> None:
    wanted = np.array([1.0, np.inf, -np.inf, 2.0])
    measured = figures(wanted.copy(), wanted)
    assert (measured.cosine, measured.relative_l2) == (pytest.approx(1.0), 0.0)
    assert measured.nonfinite_mismatches == 0
    numbers = figures(wanted * [1.5, 1, 1, 1], wanted)
    assert (numbers.max_error, numbers.nonfinite_mismatches) == (0.25, 0)
    other = figures(wanted * [1, -1, 1, 1], wanted)
    assert np.isnan(other.cosine)
    assert other.nonfinite_mismatches == 1
    both = np.array([1.0, np.nan])
    assert np.isnan(figures(both, both).cosine)


@pytest.mark.parametrize(
    ("values", "unwritten", "words"),
    [
        ([[1, 2], [3, 9]], False, "y[1, 1] is 9; 4 is expected"),
        ([[1, 2.5], [np.nan, 9]], False, "y[1, 0] is nan; 3 is expected"),
        ([[np.inf, 2.5], [3, 9]], False, "y[0, 0] is inf; 1 is expected"),
        ([[0, np.inf], [np.nan, 9]], [[False, False], [True, False]], "y[1, 0] was never written; 3 is expected"),
    ],
    ids=["furthest", "nan", "infinite", "unwritten"],
)
def test_the_worst_element_is_told(values: Any, unwritten: Any, words: str) -> None:
    assert str(figures(values, [[1, 2], [3, 4]], unwritten).worst) == words


def test_the_worst_element_is_that_of_the_worst_output() -> None:
    """Each beside the largest of its own."""
    right, large = np.array([1.0, 2.0]), np.array([1e6, 3.0])
    none = np.zeros(2, np.bool_)
    more = np.array([0.0, 0.5])
    outputs = [WrittenOutput("a", right + more, right, none), WrittenOutput("b", large + 20 * more[::-1], large, none)]
    assert str(general(outputs, "").worst) == "a[1] is 2.5; 2 is expected"
    outputs[1] = WrittenOutput("b\x1b[31m", large, large, np.array([False, True]))
    assert str(general(outputs, "").worst) == "'b\\x1b[31m'[1] was never written; 3 is expected"
    assert str(general([WrittenOutput("c", np.float64(3.0), np.float64(2.0), np.zeros((), np.bool_))], "").worst) == (
        "c is 3; 2 is expected"
    )
    assert figures([1.0, 2.0], [1.0, 2.0]).worst is None, "of numbers that are right there is none"
    assert general([WrittenOutput("d", np.zeros(0), np.zeros(0), np.zeros(0, np.bool_))], "").worst is None
