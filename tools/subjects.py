"""Holds the subjects of new commits to what CONTRIBUTING.md asks: `python -m tools.subjects [RANGE]`.

Without a range, the commits since the rule began. Merges are left out, whose subjects git writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SINCE = "77c808449754"  # the last commit before the rule
LONGEST = 72
# What begins a subject that says what there is and not what the commit does: articles, pronouns, prepositions, counts.
_NOT_VERBS = (
    "a an the this that these those what which who whose when where it its they there some no not all each "
    "every both of in on at by with without from for one two three four five six seven eight nine ten twenty "
    "more wip ready "
)
NOT_IMPERATIVE = frozenset(_NOT_VERBS.split())
_ENDED = re.compile(r"[a-z]+(?:ing|ed)$")
_ARE_VERBS = frozenset({"need", "feed", "seed", "bring", "embed", "exceed", "proceed", "ring", "string", "shed"})


def faults(subject: str) -> list[str]:
    """What is wrong with the subject of a commit, in words; nothing for one that is right."""
    found = []
    if len(subject) > LONGEST:
        found.append(f"is {len(subject)} characters long, {LONGEST} at most")
    first = subject.split(" ")[0]
    if not first or not first[0].isupper():
        found.append("does not begin with a capital")
    elif (word := first.lower().rstrip(":,;")) in NOT_IMPERATIVE or first != first.rstrip(":,;"):
        found.append(f"begins with {first!r} and not with a verb that says what the commit does")
    elif _ENDED.fullmatch(word) and word not in _ARE_VERBS:
        found.append(f"begins with {first!r}: the imperative says what the commit does")
    if subject.endswith("."):
        found.append("ends with a full stop")
    return found


def commits(chosen: str, folder: Path = ROOT) -> list[tuple[str, str]]:
    """Short hash and subject of each commit of the range, merges left out. None in a folder without a history, or in
    a clone that is too shallow to have where the range begins: nothing says which commits are new there."""
    known = ["git", "rev-parse", "--verify", "--quiet", f"{chosen.partition('..')[0]}^{{commit}}"]
    if subprocess.run(known, cwd=folder, capture_output=True, check=False).returncode != 0:
        return []
    command = ["git", "log", "--no-merges", "--format=%h%x00%s", "--end-of-options", chosen]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [(sha, subject) for sha, _, subject in (line.partition("\0") for line in ran.stdout.splitlines())]


def main(chosen: str = f"{SINCE}..HEAD") -> int:
    """Prints what is wrong with the subjects of commits. 1 where something is."""
    wrong = [(sha, subject, fault) for sha, subject in commits(chosen) for fault in faults(subject)]
    for sha, subject, fault in wrong:
        print(f"{sha} {subject!r} {fault}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
