from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fmha.harness import cli
from tests.report.browser import Browser, started


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def command() -> Iterator[Callable[..., int]]:
    """`fmha` in this process, in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmha.harness.cli.signal.signal", lambda *_: None)

        def run(folder: Path, *arguments: str) -> int:
            patch.chdir(folder)
            return cli.run(arguments)

        yield run


def repository(root: Path, subjects: Sequence[str]) -> list[str]:
    """A commit a subject, the oldest first, each dated before its parent: ancestry is not what the clock says."""
    lines = []
    for number, subject in enumerate(subjects):
        when = 1_790_000_000 - 1000 * number
        lines += ["commit refs/heads/main", f"mark :{number + 1}", f"committer A <a@b.c> {when} +0000"]
        lines += [f"data {len(subject.encode())}", subject] + ([f"from :{number}"] if number else [])
        lines += ["M 644 inline f", "data 1", str(number % 10)]
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=root, check=True)
    text = "\n".join([*lines, "reset refs/tags/v1", "from :2", ""])
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, check=True, input=text.encode())
    command = ["git", "rev-list", "--topo-order", "--reverse", "main"]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return said.stdout.split()
