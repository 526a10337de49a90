"""No page, message or file that `fmha init` writes installs the name `fmha`, which is on no index of ours."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from fmha.harness.errors import ExitCode
from fmha.harness.extras import install
from fmha.harness.stages import install_source
from fmha.harness.stages.init import EXAMPLES, WORKFLOWS, InitChoice, initialise
from tests.forked import fmha

# An installer and, further on in the line, the name: with extras or without, and with no place behind it.
UNOWNED = re.compile(
    r"\b(?:pip3?|pipx|uv|poetry|pdm)\b[^\n|]*?\b(?:install|add|run|tool)\b"
    r"[^\n|]*?[\s'\"]fmha(?![\w./@-])(?!(?:\[[\w,]+\])? @ )"
)
KEPT = (".py", ".md", ".yml", ".yaml", ".toml", ".txt", ".sh", ".in", "Makefile")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('pip install "fmha[nvcc]"', True),
        ("python -m pip install -q fmha", True),
        ("uv pip install 'fmha[nvcc,triton]' liger-kernel", True),
        ("pip install liger-kernel fmha==0.1", True),
        ("pipx run fmha", True),
        ('pip install "fmha[nvcc] @ $FMHA"', False),
        ("pip install fmha-0.1.0-py3-none-any.whl", False),
        ("pip install -e .[test]", False),
        ("pip install triton; fmha run-matrix", False),
    ],
)
def test_what_is_looked_for(line: str, found: bool) -> None:
    assert bool(UNOWNED.search(line.partition(";")[0])) == found


def test_no_file_installs_it(repository: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=repository, check=True, capture_output=True, text=True).stdout
    names = [name for name in listed.split("\n") if name.endswith(KEPT) and not name.startswith("docs/journal/")]
    assert len(names) > 500
    for name in set(names) - {"tests/packaging/test_unowned.py"}:
        for number, line in enumerate((repository / name).read_text(encoding="utf-8").split("\n"), 1):
            assert not UNOWNED.search(line), f"{name}:{number}: {line}"


@pytest.mark.parametrize("ci", [name for name in WORKFLOWS if name != "none"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_nor_does_what_init_writes(tmp_path: Path, example: str, ci: str) -> None:
    for name in initialise(tmp_path, InitChoice(example, ci=ci)):
        assert not UNOWNED.search((tmp_path / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (
            {"url": "https://h/o/fmha", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"git+https://h/o/fmha@{COMMIT}",
        ),
        (
            {"url": "https://h/f.whl", "archive_info": {"hashes": {"sha256": DIGEST}}},
            f"https://h/f.whl#sha256={DIGEST}",
        ),
        ({"url": "https://h/f.whl", "archive_info": {}}, None),
        ({"url": "file:///home/x", "dir_info": {"editable": True}}, None),
        ({"url": "https://h/'$(x)", "vcs_info": {"commit_id": COMMIT}}, None),
        ({"url": "https://user:secret@h/fmha", "vcs_info": {"commit_id": COMMIT}}, None),
        ({"url": "https://h/fmha", "vcs_info": {"commit_id": "main"}}, None),
    ],
)
def test_the_workflow_installs_what_is_installed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, object], place: str | None
) -> None:
    assert install_source._place(said) == place
    monkeypatch.setattr("fmha.harness.stages.init.place", lambda: install_source._place(said))
    initialise(tmp_path, InitChoice())
    text = (tmp_path / WORKFLOWS["github"]).read_text()
    (line,) = re.findall(r"(pip .* @ .*)", text)
    if place is None:
        assert line == 'pip install --no-deps --no-build-isolation "fmha @ ${FMHA:?is not set}"'
        assert "FMHA: ${{ vars.FMHA }}" in text
    else:
        assert line == f"pip install --no-deps --no-build-isolation 'fmha @ {place}'"
        assert "vars.FMHA " not in text


def test_a_job_without_a_place_fails() -> None:
    ran = subprocess.run(
        ["bash", "-c", 'echo "fmha[nvcc] @ ${FMHA:?is not set}"'], env={"FMHA": ""}, capture_output=True, text=True
    )
    assert ran.returncode != 0
    assert "FMHA: is not set" in ran.stderr


def test_messages_name_packages_that_others_own() -> None:
    said = install("nvcc")
    assert said.startswith("pip install ")
    assert "'nvidia-cuda-nvcc==13.0.*'" in said
    assert "fmha" not in said
    assert len(set(install("cuda", "bench").split())) == len(install("cuda", "bench").split())


def test_a_page_is_printed(repository: Path) -> None:
    page = (repository / "docs/use/kernels.md").read_text()
    for name in ("kernels", "kernels.md", "docs/use/kernels.md"):
        assert fmha("docs", name).stdout == page
    listed = json.loads(fmha("docs", "--json").stdout)["pages"]
    assert listed["use/install"] == "Installing fmha"
    assert not any("journal" in name for name in listed)
    wrong = fmha("docs", "kernel5")
    assert wrong.returncode == ExitCode.USAGE
    assert "fmha docs kernel" in wrong.stderr
