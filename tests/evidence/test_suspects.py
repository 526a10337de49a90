"""The search of a bisection, over histories of which every answer is known."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence

import pytest

from fmha.harness.evidence.suspects import Suspects


def line(count: int) -> dict[str, list[str]]:
    return {f"c{n}": [f"c{n - 1}"] for n in range(1, count + 1)}


def ancestors(parents: Mapping[str, Sequence[str]], sha: str) -> set[str]:
    found, ahead = set(), [sha]
    while ahead:
        if (one := ahead.pop()) in parents and one not in found:
            found.add(one)
            ahead += parents[one]
    return found


def search(
    parents: Mapping[str, Sequence[str]], bad: Collection[str], count: int, broken: Collection[str] = ()
) -> tuple[tuple[str, ...], int]:
    """What is left, and after how many rounds."""
    suspects, rounds, seen = Suspects(parents), 0, set[str]()
    while chosen := suspects.choose(count):
        assert len(chosen) <= count
        assert not seen & set(chosen), "a commit was chosen twice"
        seen |= set(chosen)
        tested = [sha for sha in chosen if sha not in broken]
        suspects.learn(
            [sha for sha in tested if sha not in bad],
            [sha for sha in tested if sha in bad],
            [sha for sha in chosen if sha in broken],
        )
        rounds += 1
    return suspects.left, rounds


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 26, 100])
def test_every_culprit_is_found_in_as_many_rounds_as_it_takes(length: int, count: int) -> None:
    parents = line(length)
    most = math.ceil(math.log(length, count + 1) - 1e-9)
    for culprit in range(1, length + 1):
        bad = {f"c{n}" for n in range(culprit, length + 1)}
        left, rounds = search(parents, bad, count)
        assert left == (f"c{culprit}",)
        assert rounds <= most + (count > 1), (culprit, rounds)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_culprit_is_found_across_merges(count: int) -> None:
    chance = random.Random(count)
    for _ in range(50):
        names = [f"c{n}" for n in range(30)]
        parents: dict[str, list[str]] = {"c0": []}
        for place, name in enumerate(names[1:], 1):
            parents[name] = sorted({names[place - 1], names[chance.randrange(place)]})
        # A side branch reaches the end through merges alone.
        parents = {name: before for name, before in parents.items() if name in ancestors(parents, names[-1])}
        culprit = chance.choice(list(parents))
        bad = {name for name in parents if culprit in ancestors(parents, name)}
        assert search(parents, bad, count)[0] == (culprit,)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_commits_that_cannot_be_tested_are_walked_around(count: int) -> None:
    """Sixty in the middle of two hundred: a few of them are tried."""
    parents = line(200)
    broken = {f"c{n}" for n in range(70, 130)}
    for culprit in (1, 40, 69, 131, 200):
        bad = {f"c{n}" for n in range(culprit, 201)}
        left, rounds = search(parents, bad, count, broken)
        assert left == (f"c{culprit}",)
        assert rounds < 15
    bad = {f"c{n}" for n in range(100, 201)}
    assert search(parents, bad, count, broken)[0] == tuple(f"c{n}" for n in range(70, 131))


def test_of_two_times_that_it_came_the_one_that_stayed_is_found() -> None:
    """What c3 brought c6 took away, and c8 brought it again: a test of c3 and of c6 in one round says so."""
    suspects = Suspects(line(9))
    suspects.learn(good=["c6"], bad=["c3"], skipped=[])
    assert suspects.left == ("c7", "c8", "c9")
