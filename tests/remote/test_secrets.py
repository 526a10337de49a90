"""Secrets by reference: a canary gets to the setup command and is nowhere else, whatever that command says of it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import DEADLINE_SECONDS, eventually
from tests.remote.conftest import Client
from tests.remote.test_forced_key import Limited, limited, stolen

__all__ = ["limited", "stolen"]
pytestmark = [pytest.mark.nvcc, pytest.mark.timeout(900)]
CANARY, OTHER = secrets.token_hex(8), secrets.token_hex(8)  # not in this file, which is in the commit that is run
SETUP = """{before}
printf %s "$CANARY" | sha256sum >"$FMHA_ENVIRONMENT/sum"
echo "Looking in indexes: https://me:$CANARY@index.test/simple"
printf 'a bar\\r%s\\r' "$OTHER"
echo "error: $OTHER is refused" >&2
touch {folder}/reached/setup
while [ -e {folder}/hold/setup ]; do sleep 0.02; done
exit 0
"""


@pytest.fixture
def mine(client: Client, tmp_path: Path) -> dict[str, str]:
    """The environment of a client whose own file names two secrets of the host `gpu`."""
    (tmp_path / "vault").write_text(f"{OTHER}\n")
    named = {"CANARY": {"env": "MY_CANARY"}, "OTHER": {"command": ["cat", str(tmp_path / "vault")]}}
    own = tmp_path / "hosts.yaml"
    own.write_text(json.dumps({"hosts": {"gpu": {"secrets": named}}}))
    return {"FMHA_HOSTS": str(own), "MY_CANARY": CANARY}


def set_up(client: Client) -> None:
    def change(matrix: dict[str, Any]) -> None:
        environment = matrix["hosts"]["gpu"]["environment"]
        folder = shlex.quote(str(client.server.folder))
        environment["setup"] = SETUP.format(before=environment["setup"], folder=folder)

    client.change_matrix(change)


def fail(matrix: dict[str, Any]) -> None:
    environment = matrix["hosts"]["gpu"]["environment"]
    environment["setup"] = environment["setup"].replace("exit 0", "exit 7")


def whoever(part: str, words: tuple[bytes, ...]) -> set[str]:
    """The processes that have one of the words in `cmdline` or `environ`, by their name, but for this one's kin."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            text, name = Path("/proc", entry, part).read_bytes(), Path("/proc", entry, "comm").read_text().strip()
        except OSError:
            continue
        if any(word in text for word in words) and b"MY_CANARY" not in text:
            found.add(name)
    return found


def holders(folder: Path, words: tuple[bytes, ...]) -> list[str]:
    """The files below a folder that have one of the words."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [str(path) for path in files if any(word in path.read_bytes() for word in words)]


def test_a_canary_is_nowhere_but_with_the_setup_command(client: Client, mine: dict[str, str], tmp_path: Path):
    words = (CANARY.encode(), OTHER.encode())
    set_up(client)
    with client.server.hold("setup"):
        process = client.start("run-matrix", "--host", "gpu", **mine)
        assert eventually((client.server.folder / "reached" / "setup").exists)
        assert whoever("cmdline", words) == set()
        assert whoever("environ", words) <= {"sh", "sleep"} != set()
    said = [*process.communicate(timeout=DEADLINE_SECONDS)]
    assert process.returncode == 0, said
    (run,) = client.runs()
    (sums,) = [path.read_text().split()[0] for path in client.home.glob("fmha/environments/*/sum")]
    assert sums == hashlib.sha256(CANARY.encode()).hexdigest()
    assert "https://me:[CANARY]@index.test/simple" in (run / "run.log").read_text()
    client.change_matrix(fail)
    failed = client.run("run-matrix", "--host", "gpu", **mine)
    assert failed.returncode == 3
    assert "error: [OTHER] is refused" in failed.stderr + failed.stdout
    commands = (("attach", run.name), ("logs", run.name, "--host", "gpu"), ("ps", "--json"), ("hosts", "--json"))
    doctor = client.run("doctor", "--host", "gpu", "--json", **mine)
    found = {finding["name"]: finding["seen"] for finding in json.loads(doctor.stdout)["findings"]}
    assert (found["secret CANARY"], found["secret OTHER"]) == ("of variable MY_CANARY", "printed by cat")
    for done in (failed, doctor, *(client.run(*command, **mine) for command in commands)):
        said += [done.stdout, done.stderr]
    assert [text for text in said if CANARY in text or OTHER in text] == []
    for folder in (client.root, client.home, client.server.folder):
        assert holders(folder, words) == []


def test_a_secret_that_is_not_to_be_had_stops_before_anything_leaves(client: Client, mine: dict[str, str]):
    for value, what in ((None, "variable MY_CANARY is not set"), ("short77", "has 7 characters"), ("a\nb", "has 3")):
        environment = {name: text for name, text in mine.items() if name != "MY_CANARY"}
        done = client.run("run-matrix", "--host", "gpu", "-q", **environment, **({"MY_CANARY": value} if value else {}))
        assert done.returncode == 2
        assert what in done.stderr
        assert "short77" not in done.stderr
    assert client.runs() == []


def test_a_limited_key_brings_no_secrets(limited: Limited, mine: dict[str, str]):
    done = limited.client.run(
        "run-matrix", "--host", "gpu", "-q", "--judge", "own", **mine, FMHA_SSH_CONFIG=str(limited.config)
    )
    assert done.returncode == 2
    assert "this key may not bring secrets" in done.stderr
