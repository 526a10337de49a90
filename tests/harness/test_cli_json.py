"""Every command that there is: its help, its `--json`, and the page that says what is in it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from fmha.harness import cli

pytestmark = pytest.mark.xdist_group("cli-json")  # one worker asks for the help of each command
Help = Callable[..., str]
OWN_FORMATS = {"run-matrix", "attach", "results show", "emulate"}  # the record or the report itself
SHARED_FORMATS = {
    "baseline sign": "baseline",
    "baseline accept": "baseline",
    "baseline show": "baseline",
    "results ls": "results",
    "hosts add": "doctor",  # a host that was added is examined
    **dict.fromkeys(
        (f"diag {what}" for what in ["tmem", "smem", "barriers", "descriptor", "tensormap", "probe"]), "diag"
    ),
}


@pytest.fixture(scope="module")
def helped() -> Iterator[Help]:
    """The help of a command, asked for once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmha.harness.cli.signal.signal", lambda *_: None)
        patch.setenv("COLUMNS", "120")

        @cache
        def ask(*words: str) -> str:
            with redirect_stdout(io.StringIO()) as said:
                assert cli.run([*words, "--help"]) == 0
            return said.getvalue()

        yield ask


def commands(helped: Help, *group: str) -> Iterator[tuple[str, ...]]:
    """The words of every command that is no group, by what the help lists."""
    listed = re.findall(r"^  ([a-z-]+)  ", helped(*group).partition("Commands:")[2].partition("Exit codes:")[0], re.M)
    for name in listed:
        words = (*group, name)
        if "Commands:" in helped(*words):
            yield from commands(helped, *words)
        else:
            yield words


def test_every_command_has_json_and_an_example(helped: Help) -> None:
    found = list(commands(helped))
    assert {("run-matrix",), ("results", "prune"), ("baseline", "accept"), ("watch",), ("doctor",)} <= set(found)
    for words in found:
        text = helped(*words)
        assert re.search(r"^  --json\b", text, re.M), words
        assert "Usage: fmha " + " ".join(words) in text


def test_every_format_is_in_the_page(helped: Help, repository: Path) -> None:
    page = (repository / "docs/reference/json.md").read_text()
    for words in commands(helped):
        name = " ".join(words)
        if name in OWN_FORMATS:
            assert f"`{name}`" in page
        else:
            assert f"| `fmha-{SHARED_FORMATS.get(name, words[-1])}/1` |" in page, name


def test_formats_that_commands_print_are_those_of_the_page(repository: Path) -> None:
    """What is printed and not in the page, or in the page and never printed."""
    sources = "".join(path.read_text() for path in (repository / "harness" / "cli").glob("*.py"))
    printed = set(re.findall(r'print_json\("([a-z-]+)", 1', sources))
    page = (repository / "docs/reference/json.md").read_text()
    assert printed == set(re.findall(r"^\| `fmha-([a-z-]+)/1` \|", page, re.M))
