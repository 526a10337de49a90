"""The order in which this very run's tests are handed out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests import order


def test_every_test_is_handed_out_once_and_with_its_group(request: pytest.FixtureRequest):
    items = request.session.items
    spread = order.spread(items)
    assert sorted(map(id, spread)) == sorted(map(id, items))
    at = {id(item): number for number, item in enumerate(spread)}
    for group in order.groups(items).values():
        assert [at[id(item)] for item in group] == list(range(at[id(group[0])], at[id(group[0])] + len(group)))


def test_remote_tests_have_others_between_them(request: pytest.FixtureRequest):
    """Of a run that has remote tests and enough others, as the whole has."""
    groups = list(order.groups(order.spread(request.session.items)).values())
    remote = [order.is_remote(group) for group in groups]
    if not any(remote) or remote.count(False) < 10 * remote.count(True):
        pytest.skip("few tests are chosen")
    assert not any(first and second for first, second in pairwise(remote))
    assert not any(remote[-len(remote) // 20 :])
