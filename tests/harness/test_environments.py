"""How an environment of a host is made: what its setup command says is heard while it says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.supervisor import environments
from fmha.harness.supervisor.environments import Recipe, environment
from fmha.harness.supervisor.rundir import HostError

SETUP = """mkdir "$FMHA_ENVIRONMENT/bin"; ln -s /bin/sh "$FMHA_ENVIRONMENT/bin/python"
echo "step $TOKEN one"
printf 'half a '; while [ ! -e go ]; do :; done; echo 'line'
"""
TOKEN = "token-of-some-length"


def recipe(setup: str, *, limit: float = 60.0) -> Recipe:
    return Recipe(setup, (), {}, limit, {"TOKEN": TOKEN})


def test_what_is_said_is_told_and_in_the_log_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environments, "NOTE_SECONDS", 0.0)
    told: list[tuple[str, str]] = []

    def tell(text: str) -> None:
        told.append((text, log.read_text() if log.exists() else ""))
        if "step" in text:
            (tmp_path / "go").touch()

    log = tmp_path / "run.log"
    with environment(tmp_path / "home", recipe(SETUP), tmp_path, log, tell) as found:
        assert found.built
    assert log.read_text() == "step [TOKEN] one\nhalf a line\n"
    notes = [(text, logged) for text, logged in told if text.startswith("environment, ")]
    assert any(text.endswith(": step [TOKEN] one") and logged == "step [TOKEN] one\n" for text, logged in notes)
    with environment(
        tmp_path / "home", Recipe(SETUP, (), {}, 60.0, {"TOKEN": "another"}), tmp_path, log, tell
    ) as found:
        assert not found.built


def test_a_silent_one_is_told_of_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environments, "SAME_NOTE_SECONDS", 0.0)
    told: list[str] = []
    silent = "while [ ! -e go ]; do :; done; exit 3"

    def tell(text: str) -> None:
        told.append(text)
        if "nothing yet" in text:
            (tmp_path / "go").touch()

    with (
        pytest.raises(HostError, match=r"was not built \(exit code 3\)"),
        environment(tmp_path / "home", recipe(silent), tmp_path, tmp_path / "log", tell),
    ):
        pass
    assert told[-1].endswith(" s: it has said nothing yet")


@pytest.mark.parametrize("bytes_said", [rb"a\303", rb"\200\377"])
def test_what_is_no_text_is_no_reason_to_fail(bytes_said: bytes, tmp_path: Path):
    setup = f"printf '{bytes_said.decode()}'; exit 3"
    with (
        pytest.raises(HostError, match="exit code 3"),
        environment(tmp_path / "home", recipe(setup), tmp_path, tmp_path / "log", lambda text: None),
    ):
        pass
    assert (tmp_path / "log").read_bytes()
