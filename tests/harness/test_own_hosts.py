"""One's own hosts over those of matrix.yaml, and a matrix.yaml that means harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.config import load, own_hosts
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.hosts import early
from fmha.harness.own_settings import hosts_file
from tests.harness.support import git

SHARED = """\
hosts:
  emulator: {kind: emulator}
  gpu: {kind: ssh, alias: shared, env: {A: "1", B: "2"}, gpus: {foreign: refuse, wait_seconds: 5}}
"""


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    text = (repository / "matrix.yaml").read_text()
    (tmp_path / "matrix.yaml").write_text(text[: text.index("\nhosts:")] + "\n" + SHARED)
    git(tmp_path, "init", "-q")
    return tmp_path


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "own" / "hosts.yaml"
    path.parent.mkdir()
    monkeypatch.setenv("FMHA_HOSTS", str(path))
    return path


def test_own_settings_stand_over_the_shared_ones(project: Path, mine: Path):
    mine.write_text("hosts:\n  gpu: {alias: mine, env: {B: '3'}, gpus: {foreign: wait}}\n  new: {kind: ssh}\n")
    hosts = load(project).hosts
    assert list(hosts) == ["emulator", "gpu", "new"]
    settings = hosts["gpu"].remote
    assert settings is not None
    assert settings.alias == "mine"
    assert settings.env == {"A": "1", "B": "3"}
    assert settings.gpu["foreign"] == "wait"
    assert settings.gpu["wait_seconds"] == 5
    assert hosts["new"].remote is not None
    assert hosts["new"].remote.alias == "new"
    (at_the_host,) = [load(project, own=False).hosts["gpu"].remote]
    assert at_the_host is not None
    assert at_the_host.alias == "shared"
    assert load(project).sha256 == load(project, own=False).sha256


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts:\n  new: {alias: x}\n", "hosts.yaml:2: hosts.new.kind: is required"),
        ("hosts:\n  gpu:\n    alias: 7\n", "hosts.yaml:3: hosts.gpu.alias: must be text, not 7"),
        ("hosts:\n  gpu:\n    gpus: {foreign: shoot}\n", "hosts.gpu.gpus.foreign: must be"),
        ("hosts:\n  gpu:\n    secrets: {A: {env: X}}\n", "hosts.gpu.secrets.A: is in env as well"),
        ("hosts:\n  gpu:\n    secrets: {C: {env: X, command: [y]}}\n", "must have env or command"),
        ("hosts:\n  gpu:\n    secrets: {C: secret-itself}\n", "hosts.gpu.secrets.C: must be a mapping"),
        ("hosts: 7\n", "must be a mapping"),
        ("gates: {}\n", "unknown key"),
        ("- x\n", "must be a mapping"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_line(project: Path, mine: Path, text: str, said: str):
    mine.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(project)
    assert said in str(caught.value)


def test_a_repository_names_no_secrets(project: Path):
    """Whoever runs a commit would send it what it asks for."""
    matrix = project / "matrix.yaml"
    matrix.write_text(matrix.read_text() + "  other: {kind: ssh, secrets: {TOKEN: {env: AWS_SECRET_ACCESS_KEY}}}\n")
    with pytest.raises(ConfigError, match=r"hosts.other.secrets: is for one's own hosts alone"):
        load(project)


def test_a_file_that_is_named_has_to_be_there_and_the_usual_one_has_not(
    project: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UserError, match="not there"):
        load(project)
    monkeypatch.delenv("FMHA_HOSTS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "config"))
    assert hosts_file() == project / "config" / "fmha" / "hosts.yaml"
    assert "new" not in load(project).hosts
    assert own_hosts.add("new", "its-alias") == hosts_file()
    remote = load(project).hosts["new"].remote
    assert remote is not None
    assert remote.alias == "its-alias"


@pytest.mark.parametrize("before", ["", "# mine\nhosts:\n    # first\n    a: {kind: local}  # keep\n"])
def test_a_host_is_added_and_all_else_stays(project: Path, mine: Path, before: str):
    mine.write_text(before)
    own_hosts.add("b", "x y: #")
    text = mine.read_text()
    for line in before.splitlines():
        assert line in text.splitlines()
    remote = load(project).hosts["b"].remote
    assert remote is not None
    assert remote.alias == "x y: #"
    with pytest.raises(UserError, match="there already"):
        own_hosts.add("b", "other")
    assert mine.read_text() == text


@pytest.mark.parametrize(("before", "name"), [("hosts: {a: {kind: local}}\n", "b"), ("", "No Name"), ("x: 1\n", "b")])
def test_a_file_that_cannot_be_added_to_stays_as_it_is(project: Path, mine: Path, before: str, name: str):
    mine.write_text(before)
    with pytest.raises(UserError):
        own_hosts.add(name, name)
    assert mine.read_text() == before


def test_the_early_connection_goes_where_ones_own_settings_say(project: Path, mine: Path):
    mine.write_text("hosts: {gpu: {alias: mine.invalid}}")
    early.begin(["ps", "--host", "gpu"], project)
    assert early.take("shared", "python3", early.FOLDER) is None
    begun = early.take("mine.invalid", "python3", early.FOLDER)
    assert begun is not None
    begun.carrier.close()


def test_an_alias_bomb_is_refused(project: Path):
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (project / "matrix.yaml").write_text("\n".join(levels) + "\n")
    with pytest.raises(ConfigError, match="more than 1000000 values"):
        load(project)
