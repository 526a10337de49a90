"""Sentinels do not hide the numbers beside them, and numbers without sentinels are never taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.harness.judge.metrics import Measurement
from fmha.harness.judge.oracle import magnitude_levels
from fmha.harness.judge.oracle.magnitude_levels import CHANCE, cuts, ordinary_of
from fmha.harness.judge.oracle.measure import WrittenOutput, general

Array = NDArray[np.float64]
FLOAT32 = 1e-5  # gates of `max_error`, as docs/use/kernels.md has them to begin with
BFLOAT16 = 8e-3
HUGE = {
    "-1e30": -1e30,
    "finfo.min": float(np.finfo(np.float32).min),
    "3.4e38": 3.4e38,
    "1e10": 1e10,
    "-1e9": -1e9,
    "finfo(float64).min": float(np.finfo(np.float64).min),
}


def drawn(shape: tuple[int, ...] = (24, 24), seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def masked(sentinel: float, scores: Array | None = None) -> Array:
    scores = drawn() if scores is None else scores
    return np.where(np.tril(np.ones(scores.shape, bool)), scores, sentinel)


def measured(got: Any, wanted: Any, tolerance: float = FLOAT32, ordinary: float = 4.0) -> Measurement:
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    return general([WrittenOutput("y", got, wanted, np.zeros(wanted.shape, np.bool_))], "", tolerance, ordinary)


@pytest.mark.parametrize("sentinel", HUGE.values(), ids=HUGE)
def test_a_sentinel_hides_nothing(sentinel: float) -> None:
    """Three halves of each ordinary number, and zeros in their places: both passed all three gates before."""
    wanted = masked(sentinel)
    for wrong in (masked(sentinel, 1.5 * drawn()), masked(sentinel, 0 * drawn())):
        hidden, found = measured(wrong, wanted, 0.0), measured(wrong, wanted)
        assert hidden.cosine > 1 - 1e-12
        assert max(hidden.relative_l2, hidden.max_error) < 1e-6
        assert min(found.relative_l2, found.max_error) >= 0.5 - 1e-12
        assert found.sentinels == 24 * 23 // 2
        assert found.worst is not None
        assert abs(found.worst.expected) < 10, "the element that is told is an ordinary one"


@pytest.mark.parametrize("sentinel", HUGE.values(), ids=HUGE)
def test_what_is_right_beside_a_sentinel_is_right(sentinel: float) -> None:
    wanted = masked(sentinel)
    found = measured(wanted * (1 - 1e-7 * np.abs(drawn(seed=1))), wanted)
    assert 1 - found.cosine < 1e-12
    assert max(found.relative_l2, found.max_error) < 1e-6


def test_a_sentinel_has_its_place_and_its_value() -> None:
    wanted = masked(-1e30)
    for change in ((5, 2, -1e30), (2, 5, 0.5), (2, 5, -3e38), (2, 5, 1e30), (2, 5, 0.0)):
        wrong = wanted.copy()
        wrong[change[:2]] = change[2]
        found = measured(wrong, wanted)
        assert found.max_error > 0.5, change
        assert found.worst is not None
        assert found.worst.index == change[:2]


def test_several_kinds_of_sentinels_are_several_levels() -> None:
    wanted = masked(-1e30)
    wanted[:, 20:] = np.finfo(np.float32).min
    right = measured(wanted * (1 + 1e-7), wanted)
    assert max(right.relative_l2, right.max_error) < 1e-6
    for part in (slice(0, 4), slice(4, 20), slice(20, 24)):
        wrong = wanted.copy()
        wrong[0, part] *= 1.5
        assert measured(wrong, wanted).max_error > 1e-3, part


def test_zeros_beside_a_sentinel_are_held_to_what_was_given() -> None:
    """An additive mask: nothing there is as large as anything but the sentinel."""
    wanted = masked(-1e9, np.zeros((24, 24)))
    assert measured(wanted, wanted).max_error == 0.0
    wrong = wanted.copy()
    wrong[3, 3] = 1.0
    found = measured(wrong, wanted)
    assert found.max_error == 0.25
    assert str(found.worst) == "y[3, 3] is 1; 0 is expected"
    noise = measured(wanted + 1e-9 * (wanted == 0), wanted)
    assert noise.max_error < 1e-9
    assert noise.cosine == 1.0


def test_where_terms_cancel_is_no_level() -> None:
    """Distances of points to themselves: the diagonal is zero, and what is computed has the rounding of its terms."""
    points = 100.0 * drawn((48, 64))
    wanted = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    right = np.sqrt(wanted**2 + 1e-7 * (points**2).sum(-1))
    assert measured(right, wanted, 1e-2).max_error < 1e-3
    masks = np.where(np.eye(48) > 0, 0.0, -1e9)
    assert measured(np.where(np.eye(48) > 0, 1.0, -1e9), masks, 1e-2).max_error > 0.1


def test_one_ordinary_number_is_enough() -> None:
    wanted = np.full(64, -1e30)
    wanted[7] = 0.3
    wrong = wanted.copy()
    wrong[7] = 0.6
    assert measured(wrong, wanted).max_error == pytest.approx(1.0)


def test_huge_padding_that_differs_is_a_level_too() -> None:
    wanted = np.concatenate((drawn((8, 64)), 1e12 * drawn((4, 64), seed=2)))
    wrong = wanted.copy()
    wrong[:8] *= 2
    assert measured(wrong, wanted, 0.0).max_error < 1e-9
    assert measured(wrong, wanted).max_error >= 1.0


def test_minus_ten_thousand_is_a_sentinel_of_a_wide_gate() -> None:
    """What the gate does not see decides, and not how large a number is."""
    wanted = masked(-1e4)
    assert measured(wanted, wanted, BFLOAT16).sentinels
    assert not measured(wanted, wanted, FLOAT32).sentinels
    assert measured(masked(-1e4, 0 * drawn()), wanted, FLOAT32).max_error > FLOAT32, "and the narrow one sees"


def layer_norm(x: Array) -> Array:
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    found: Array = (x - x.mean(-1, keepdims=True)) / spread
    return found


def constant_row(x: Array) -> Array:
    x[3] = 5.1
    return x


def honest() -> dict[str, tuple[Array, Array, float]]:
    """What float32 makes of a computation, what it should be, and the largest number that it was given."""
    x, y = drawn((40, 200)), drawn((200, 30), 1)
    steps = np.where(np.arange(200) % 50 == 7, 0.0, -43.0) + 0 * x
    large = constant_row(1000 * drawn((40, 200), 3))
    single = {"x": x, "y": y, "steps": steps, "large": large, "flat": constant_row(drawn((40, 200), 4))}
    low = {name: array.astype(np.float32) for name, array in single.items()}
    high = {name: array.astype(np.float64) for name, array in low.items()}
    squares = [(s["large"] ** 2).mean(-1) - s["large"].mean(-1) ** 2 for s in (low, high)]
    return {
        "product": (low["x"] @ low["y"], high["x"] @ high["y"], 4.0),
        "exp": (np.exp(8 * low["x"]), np.exp(8 * high["x"]), 32.0),
        "softmax of steps": (np.exp(low["steps"]), np.exp(high["steps"]), 43.0),
        "a constant row's norm": (layer_norm(low["flat"]), layer_norm(high["flat"]), 5.1),
        "a constant row's variance": (squares[0], squares[1], 4e3),
        "squares": (low["large"] ** 2, high["large"] ** 2, 4e3),
        "one hot minus p": (np.exp(low["steps"]) - (low["steps"] == 0), np.exp(high["steps"]) - (steps == 0), 43.0),
    }


@pytest.mark.parametrize("name", honest())
@pytest.mark.parametrize("tolerance", [FLOAT32, BFLOAT16])
def test_honest_numbers_pass(name: str, tolerance: float) -> None:
    """What cancels among them is no number of its own: its rounding is that of what was given."""
    got, wanted, ordinary = honest()[name]
    found = measured(got, wanted, tolerance, ordinary)
    assert found.cosine > 1 - 1e-9
    as_before = measured(got, wanted, 0.0)
    assert found.relative_l2 <= max(FLOAT32, as_before.relative_l2)
    assert found.max_error <= max(FLOAT32, as_before.max_error)
    assert not found.sentinels


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
def test_numbers_around_zero_are_not_taken_apart(size: int) -> None:
    """However few, and however large beside what was given."""
    random = np.random.default_rng(size)
    for scale in (1.0, 1e6, 1e30):
        for _ in range(300):
            assert not cuts(np.abs(scale * random.standard_normal(size)), BFLOAT16, 1.0).size


@pytest.mark.parametrize(("count", "ratio"), [(1, 0.1), (2, 0.3), (4, 0.5)])
def test_the_chance_of_a_step_is_its_ratio_to_the_count(count: int, ratio: float) -> None:
    """What docs/understand/gates.md derives: of numbers that are as often anywhere near zero."""
    numbers = np.sort(np.random.default_rng(0).random((100_000, 20)), axis=1)
    share = np.mean(numbers[:, count - 1] <= ratio * numbers[:, count])
    expected = ratio**count
    assert abs(share - expected) < 5 * np.sqrt(expected / 100_000)


def test_as_many_are_taken_apart_as_the_chance_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHANCE == 1e-7
    monkeypatch.setattr(magnitude_levels, "CHANCE", 1e-3)
    random = np.random.default_rng(1)
    apart = sum(bool(cuts(1e9 * random.random(3), 0.5, 1.0).size) for _ in range(20_000))
    assert 5 <= apart <= 2 * 20_000 * 1e-3 + 5 * np.sqrt(40)


def test_what_was_given_is_read_without_its_own_sentinels() -> None:
    q, mask = drawn((16, 8)).astype(np.float32), masked(-1e30, 0 * drawn()).astype(np.float32)
    largest = float(np.abs(q).max())
    assert ordinary_of([q, mask], FLOAT32) == largest > 1
    assert ordinary_of([q * np.float32(1e-3)], FLOAT32) == 1.0
    assert ordinary_of([np.array([2**31 - 1]), q], FLOAT32) == largest, "whole numbers may be bits"
    assert ordinary_of([], FLOAT32) == 1.0
    assert ordinary_of([np.array([np.nan, np.inf, 7.0])], FLOAT32) == 7.0


def test_a_nan_is_no_sentinel() -> None:
    wanted = masked(-1e30)
    wanted[4, 4] = np.nan
    found = measured(wanted, wanted)
    assert np.isnan(found.max_error)
    wanted[4, 4] = np.inf
    assert measured(wanted, wanted).max_error == 0.0
