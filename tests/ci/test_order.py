"""The order in which this very run's tests are handed out."""

from __future__ import annotations

import pytest

from tests import order


def test_every_test_is_handed_out_once_and_with_its_group(request: pytest.FixtureRequest):
    items = request.session.items
    spread = order.spread(items)
    assert sorted(map(id, spread)) == sorted(map(id, items))
    at = {id(item): number for number, item in enumerate(spread)}
    for group in order.groups(items).values():
        assert [at[id(item)] for item in group] == list(range(at[id(group[0])], at[id(group[0])] + len(group)))


def test_remote_tests_are_two_groups_and_begin(request: pytest.FixtureRequest):
    remote = [order.is_remote(group) for group in order.groups(order.spread(request.session.items)).values()]
    assert sum(remote) <= 2
    assert remote == sorted(remote, reverse=True)
