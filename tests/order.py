"""Which tests go to one worker of xdist together, and in which order the workers get them."""

from __future__ import annotations

from pathlib import Path

import pytest

# Files with so many tests begin early, since the largest groups do: none of them is the last.
_MANY = 40
_REMOTE = Path(__file__).with_name("remote")


def assign_groups(items: list[pytest.Item], lanes: int = 1) -> None:
    """A file of many quick tests goes to one worker as a whole: its fixtures are made once. And xdist, which adds up
    after every test all groups that a worker has had, has 2,400 of them and not 11,500. Others that need torch are one
    group: to import it takes two seconds. Each test has one mark: xdist makes a group of its own of two names."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    remote = [files.pop(path) for path in list(files) if path.is_relative_to(_REMOTE)]
    for path, tests in files.items():
        if len(tests) < _MANY:
            continue
        if all(item.get_closest_marker(name) is None for item in tests for name in ("slow", "xdist_group")):
            for item in tests:
                item.add_marker(pytest.mark.xdist_group(path.stem))
    for number, lane in enumerate(_lanes(remote, lanes)):
        for item in lane:
            item.add_marker(pytest.mark.xdist_group(f"remote-{number}"))
    for item in items:
        if item.get_closest_marker("torch") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("torch"))


def _lanes(files: list[list[pytest.Item]], count: int) -> list[list[pytest.Item]]:
    """The files of the remote hosts' tests in groups that take about as long. A worker that has one of them makes a
    host, which costs some seven seconds; and they mostly wait, so that the other workers keep the cores busy."""
    lanes: list[list[pytest.Item]] = [[] for _ in range(count)]
    for tests in sorted(files, key=_remote_cost, reverse=True):
        min(lanes, key=_remote_cost).extend(tests)
    return lanes


def _remote_cost(tests: list[pytest.Item]) -> float:
    chosen = [item for item in tests if item.get_closest_marker("nightly") is None]
    return sum(1.0 if item.get_closest_marker("nvcc") else 0.1 for item in chosen)


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """By groups, as xdist's loadgroup hands them out: those of the remote hosts, then large ones before others."""
    ordered = sorted(groups(items).values(), key=lambda group: (not is_remote(group), -len(group)))
    return [item for group in ordered for item in group]


def groups(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """What xdist hands out as one, by the group's name or a lone test's."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = item.get_closest_marker("xdist_group")
        found.setdefault(group.args[0] if group else item.nodeid, []).append(item)
    return found


def is_remote(group: list[pytest.Item]) -> bool:
    return group[0].path.is_relative_to(_REMOTE)
