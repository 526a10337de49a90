"""Each case of docs/reference/remote-faults.md names the test that does it; the tests say that they pass."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = "docs/reference/remote-faults.md"


def cases(repository: Path) -> list[tuple[str, str]]:
    """What is in each row's first column, and in its last one."""
    lines = [line for line in (repository / PAGE).read_text().splitlines() if line.startswith("| ")]
    rows = [[part.strip() for part in line.strip("|").split(" | ")] for line in lines]
    return [(row[0], row[-1]) for row in rows if row[-1].strip() != "Test"]


def test_every_case_names_a_test_that_there_is(repository: Path) -> None:
    files = list((repository / "tests").rglob("test_*.py"))
    stems = {path.stem for path in files}
    known = {name for path in files for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)}
    found = cases(repository)
    assert len(found) > 130
    before = ""
    for case, named in found:
        patterns = re.findall(r"`([^`]+)`", named)
        modules = re.findall(r"\btest_\w+", re.sub(r"`[^`]*`", "", named))
        assert patterns or modules, f"{case}: names no test"
        assert set(modules) <= stems, case
        for pattern in patterns:
            name = before if pattern.startswith("...") else re.sub(r"\[.*", "", pattern)
            assert any(fnmatchcase(test, name) for test in known), f"{case}: no test is {pattern}"
            before = name
