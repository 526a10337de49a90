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


def test_remote_tests_are_few_groups_and_begin(request: pytest.FixtureRequest):
    remote = [order.is_remote(group) for group in order.groups(order.spread(request.session.items)).values()]
    assert sum(remote) <= (1 if request.config.option.markexpr == "not nightly" else 2)
    assert remote == sorted(remote, reverse=True)


def test_no_test_has_two_groups(request: pytest.FixtureRequest):
    """xdist would join their names: of two lanes of the remote hosts' tests came one for each file, with hosts of its
    own."""
    assert all(len(list(item.iter_markers("xdist_group"))) <= 1 for item in request.session.items)
