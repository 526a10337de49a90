"""Which commits to test next: the search of a bisection, for one commit at a time or for several.

With k commits a round the suspects fall into k+1 parts, and a round leaves one of them. Histories with merges are
searched by ancestry, as git bisect does: a commit's weight is how many suspects are its ancestors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


class Suspects:
    """The commits any of which may be the first bad one. `parents` has every commit of GOOD..BAD, parents before
    children, with its parents; those outside do not count. The last one is BAD."""

    def __init__(self, parents: Mapping[str, Sequence[str]]) -> None:
        self._order = list(parents)
        self._within: dict[str, int] = {}  # a commit with its ancestors, a bit each
        for place, (sha, before) in enumerate(parents.items()):
            mask = 1 << place
            for parent in before:
                mask |= self._within.get(parent, 0)
            self._within[sha] = mask
        self._bad = self._order[-1]
        self._left = self._within[self._bad]
        self._skipped: set[str] = set()

    @property
    def left(self) -> tuple[str, ...]:
        """Oldest first; the last one is known to be bad."""
        return tuple(sha for place, sha in enumerate(self._order) if self._left >> place & 1)

    def choose(self, count: int) -> list[str]:
        """Up to so many commits that part the suspects best, oldest first; none when no test would tell more."""
        left = self.left
        weights = {sha: (self._within[sha] & self._left).bit_count() for sha in left}
        open_ = [sha for sha in left if sha != self._bad and sha not in self._skipped]
        skipped = [weights[sha] for sha in left if sha in self._skipped]
        # What cannot be tested stands in rows, as a rule: their ends are looked for before anything within is tried.
        low, high = min(skipped, default=len(left)), max(skipped, default=len(left))
        before = [sha for sha in open_ if weights[sha] < low]
        after = [sha for sha in open_ if weights[sha] > high]
        if not before and not after:
            before = open_
        chosen: set[str] = set()
        counts = _shared_out(count, len(before), len(after))
        for part, most in zip((before, after), counts, strict=True):
            for place in range(1, most + 1):
                first, last = weights[part[0]] - 1, weights[part[-1]] + 1
                wanted = first + (last - first) * place / (most + 1)
                free = [sha for sha in part if sha not in chosen]
                chosen.add(min(free, key=lambda sha: abs(weights[sha] - wanted)))
        return [sha for sha in left if sha in chosen]

    def learn(self, good: Collection[str], bad: Collection[str], skipped: Collection[str]) -> None:
        """What the tests of a round have said.

        Where a good commit has a bad one before it, something was mended in between, and what BAD has came later.
        """
        self._skipped.update(skipped)
        for sha in good:
            self._left &= ~self._within[sha]
        for sha in bad:
            if self._left >> self._order.index(sha) & 1:
                narrowed = self._left & self._within[sha]
                if narrowed.bit_count() < self._left.bit_count():
                    self._left, self._bad = narrowed, sha


def _shared_out(count: int, one: int, other: int) -> tuple[int, int]:
    """So many tests, or as many as there are commits, given to two rows of commits by their length."""
    first = min(one, max(round(count * one / (one + other)), count - other)) if one + other else 0
    return first, min(other, count - first)
