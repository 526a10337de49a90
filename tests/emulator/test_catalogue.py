"""The catalogue of mistakes in CUDA C++: what docs/reference/catalogue.md says, and nothing in the clean twins."""

from __future__ import annotations

import pytest

from tools.catalogue import PAGE, PROFILES, entries, is_current, judge, page

ENTRIES = entries()
pytestmark = pytest.mark.xdist_group("catalogue")  # all is judged once


@pytest.fixture(scope="module")
def judged():
    return [(entry, judge(entry)) for entry in ENTRIES]


def test_nothing_is_found_in_a_clean_twin(judged):
    blamed = {e.name: sorted(v["right", p].rules) for e, v in judged for p in PROFILES if v["right", p].rules}
    assert not blamed


def test_what_is_missed_says_why(judged):
    silent = {entry.name for entry, verdicts in judged if not verdicts["mistake", "strict"].rules}
    assert silent == {entry.name for entry in ENTRIES if entry.missed}


def test_the_page_is_current(judged):
    assert PAGE.read_text() == page(judged)


def test_the_ptx_is_that_of_the_sources():
    assert [entry.name for entry in ENTRIES if not is_current(entry)] == []
