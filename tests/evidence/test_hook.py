"""`regress --on-regression`: a command is told, and the verdict stands whatever becomes of that."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fmha.harness.cli import regress
from fmha.harness.cli.output import json_bytes
from fmha.harness.errors import UserError

QUOTED = "\"import sys; sys.exit('no \\x1b[31mroute')\""
DOCUMENT = json_bytes("regress", 1, {"words": "REGRESSED é"})


def test_the_command_gets_what_json_prints(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "told file"
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read()); print('mine')"
    regress._tell(regress._command(f'{sys.executable} -c "{script}" "{path}"'), DOCUMENT)
    assert json.loads(path.read_text()) == {"format": "fmha-regress/1", "words": "REGRESSED é"}
    assert capfd.readouterr() == ("", "")  # what it prints is no part of ours


def test_nothing_in_it_is_for_a_shell(tmp_path: Path) -> None:
    regress._tell(regress._command(f"true ; touch {tmp_path}/made && `touch {tmp_path}/made`"), DOCUMENT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-command-here", "no-such-command-here: [Errno 2]"),
        (
            f"{sys.executable} -c \"import sys; sys.exit('::error::no \\x1b[31mroute')\"",
            "ended with 1: ::error::no \ufffd[31mroute",
        ),
        ("false", "false ended with 1\n"),
    ],
)
def test_a_command_that_fails_is_named(command: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    regress._tell(regress._command(command), DOCUMENT)
    told = capfd.readouterr().err
    assert told.startswith("fmha: --on-regression: ")
    assert said in told


@pytest.mark.parametrize("text", ["curl 'x", "", "  "])
def test_what_is_no_command_is_refused_before_the_run(text: str) -> None:
    with pytest.raises(UserError, match="--on-regression"):
        regress._command(text)
