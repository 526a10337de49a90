"""Which tests go to one worker of xdist together, and in which order the workers get them."""

from __future__ import annotations

from pathlib import Path

import pytest

# Files with so many tests begin early, since the largest groups do: none of them is the last.
_MANY = 40
_SLOW = 20  # of others: what a slow test costs, roughly
_REMOTE = Path(__file__).with_name("remote")


def assign_groups(items: list[pytest.Item]) -> None:
    """A file of many quick tests goes to one worker as a whole: its fixtures are made once. And xdist, which adds up
    after every test all groups that a worker has had, has 2,400 of them and not 11,500. Others that need torch are one
    group: to import it takes two seconds."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for path, tests in files.items():
        alone = all(item.get_closest_marker(name) is None for item in tests for name in ("slow", "xdist_group"))
        if alone and len(tests) >= _MANY:
            for item in tests:
                item.add_marker(pytest.mark.xdist_group(path.stem))
    for item in items:
        if item.get_closest_marker("torch") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("torch"))


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """By groups, as xdist's loadgroup hands them out: large ones first. But those of the remote hosts, which mostly
    wait, come at even distances among the others, so that there is work for all cores beside them."""
    ordered = sorted(groups(items).values(), key=len, reverse=True)
    waiting = [group for group in ordered if is_remote(group)]
    busy = [group for group in ordered if not is_remote(group)]
    # None is left for the end, when cores run out of others.
    distance = 0.8 * sum(map(_cost, busy)) / max(len(waiting), 1)
    handed_out: list[pytest.Item] = []
    done = due = 0.0
    for group in busy:
        if waiting and done >= due:
            handed_out += waiting.pop(0)
            due += distance
        handed_out += group
        done += _cost(group)
    return handed_out + [item for group in waiting for item in group]


def groups(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """What xdist hands out as one, by the group's name or a lone test's."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = item.get_closest_marker("xdist_group")
        found.setdefault(group.args[0] if group else item.nodeid, []).append(item)
    return found


def is_remote(group: list[pytest.Item]) -> bool:
    return group[0].path.is_relative_to(_REMOTE)


def _cost(group: list[pytest.Item]) -> float:
    return sum(_SLOW if item.get_closest_marker("slow") else 1 for item in group)
