from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fmha.harness.config import Matrix, load, parse_filter
from fmha.harness.errors import UserError


@pytest.fixture(scope="module")
def matrix(repository: Path) -> Matrix:
    return load(repository)


@pytest.mark.parametrize(
    ("terms", "count"),
    [
        ((), 72),
        (("hd=64",), 18),
        (("hd=64,t=1",), 4),
        (("hd=64|128,t=1",), 8),
        (("hd=64,hd=128,t=1",), 8),
        (("hd=64", "hd=128", "t=1"), 8),
        ((" hd = 64 , t = 1 | 4 ",), 8),
        (("mask=causal",), 4),
        (("mask=causal|window,hd=512",), 2),
        (("batch=1,sk=384,t=32",), 12),
        (("hd=64|64|65",), 18),
    ],
)
def test_commas_narrow_and_bars_widen(matrix: Matrix, terms: Sequence[str], count: int) -> None:
    assert len(parse_filter(terms).select(matrix.suites["seed"], "seed")) == count


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("hd", "'hd' is not key=value; write for example"),
        ("", "'' is not key=value"),
        ("hd=64,,t=1", "'' is not key=value"),
        ("head_dim=64", "unknown key 'head_dim'; use one of hd, t, sk, batch, mask, heads, kvh, kv, "),
        ("hd=", "hd is a whole number, not ''"),
        ("hd=-64", "hd is a whole number, not '-64'"),
        ("t=6e1", "t is a whole number, not '6e1'"),
        ("t=²", "t is a whole number, not '²'"),
        ("mask=diagonal", "'diagonal' is no mask; use one of none, causal, window, band"),
    ],
)
def test_a_bad_term_is_named(term: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_filter([term])
    assert words in str(caught.value)


def test_matching_nothing_says_what_there_is(matrix: Matrix) -> None:
    with pytest.raises(
        UserError, match=r"no configuration matches --filter hd=96,t=1 in suite proven; there hd is one"
    ):
        parse_filter(["hd=96,t=1"]).select(matrix.suites["proven"], "suite proven")


def test_the_text_of_a_filter_reads_back() -> None:
    written = str(parse_filter(["t=4|1", "mask=none", "t=32"]))
    assert written == "t=4|1|32,mask=none"
    assert str(parse_filter([written])) == written
