"""How an environment of a host is made: what its setup command says is heard while it says it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fmha.harness.supervisor import environments, processes
from fmha.harness.supervisor.environments import Recipe, environment
from fmha.harness.supervisor.rundir import HostError
from tests.integration.processes import eventually

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


def small(text: str = "") -> str:
    made = 'cd "$FMHA_ENVIRONMENT"; mkdir bin; ln -s /bin/sh bin/python; echo kept >file; cd "$OLDPWD"'
    return f"{made}; {text}"


def test_an_environment_without_its_interpreter_is_built_again(tmp_path: Path):
    for gone in (False, True):
        with environment(tmp_path / "home", recipe(small()), tmp_path, tmp_path / "log", print) as found:
            assert found.built
            assert not found.condemned()
        if not gone:
            found.python.unlink()


@pytest.mark.parametrize("damage", ["changed", "gone", "added", "no mode"])
def test_an_environment_that_was_damaged_is_found_out_and_built_again(tmp_path: Path, damage: str):
    with environment(tmp_path / "home", recipe(small()), tmp_path, tmp_path / "log", print) as found:
        file = found.home / "file"
    {
        "changed": lambda: file.write_text("longer than before"),
        "gone": file.unlink,
        "added": lambda: (found.home / "more").touch(),
        "no mode": lambda: file.chmod(0),
    }[damage]()
    with environment(tmp_path / "home", recipe(small()), tmp_path, tmp_path / "log", print) as again:
        assert not again.built
        assert again.condemned()
    with environment(tmp_path / "home", recipe(small()), tmp_path, tmp_path / "log", print) as anew:
        assert anew.built
    assert file.read_text() == "kept\n"


def test_bytecode_that_comes_by_use_is_no_damage(tmp_path: Path):
    with environment(tmp_path / "home", recipe(small()), tmp_path, tmp_path / "log", print) as found:
        (found.home / "lib" / "__pycache__").mkdir(parents=True)
        (found.home / "lib" / "__pycache__" / "x.pyc").touch()
        assert not found.condemned()


def test_who_waits_for_another_runs_environment_says_so_at_once(tmp_path: Path):
    """The other run is a process of its own, which builds until it is told to go on."""
    setup = small('touch "$FMHA_ENVIRONMENT/begun"; while [ ! -e go ]; do :; done')
    code = (
        "from pathlib import Path; from fmha.harness.supervisor.environments import *\n"
        f"with environment(Path({str(tmp_path / 'home')!r}), Recipe({setup!r}, (), {{}}, 60.0, {{}}), "
        f"Path({str(tmp_path)!r}), Path({str(tmp_path / 'log')!r}), lambda text: None): pass"
    )
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        (tmp_path / "go").touch()

    with subprocess.Popen([sys.executable, "-c", code]) as other:
        assert eventually(lambda: [*(tmp_path / "home").rglob("begun")])
        with environment(tmp_path / "home", Recipe(setup, (), {}, 60.0, {}), tmp_path, tmp_path / "log", tell) as found:
            assert not found.built
        assert other.wait() == 0
    assert told == ["waiting for another run, which builds the environment"]


def test_what_is_cancelled_while_it_is_made_is_gone_with_whoever_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The set-up ignores SIGTERM, and a child of it in a session of its own writes on."""
    monkeypatch.setenv(processes.MARK, "a-run-of-this-test")
    writes = 'mkdir -p "$FMHA_ENVIRONMENT"; while :; do echo x >>"$FMHA_ENVIRONMENT/more$$"; done'
    setup = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; {writes}' & while :; do echo line; done"

    class CancelledError(BaseException):
        pass

    def tell(text: str) -> None:
        if "line" in text:
            raise CancelledError

    monkeypatch.setattr(environments, "NOTE_SECONDS", 0.2)
    start = time.monotonic()
    with (
        pytest.raises(CancelledError),
        environment(tmp_path / "home", recipe(setup), tmp_path, tmp_path / "log", tell),
    ):
        pass
    assert time.monotonic() - start < 10
    assert [path.suffix for path in (tmp_path / "home" / "environments").iterdir()] == [".lock"]
    assert not processes.marked("a-run-of-this-test")
