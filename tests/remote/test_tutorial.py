"""docs/use/tutorial.md, carried out: each of its commands is run, and what it shows has to come."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fmha.harness.worker.compilers.nvcc import find_nvcc
from tests.remote.server import Server, client_config

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.slow,
    pytest.mark.triton,
    pytest.mark.timeout(900),
]
DONE_BEFORE = "pip install"  # what the environment of these tests has already
# What differs from run to run: commits, moments, seconds, and what is counted.
_VARIES = re.compile(r"\b[0-9a-f]{12}\b|\b\d{8}T\d{6}Z(-[0-9a-f]{12})?(-[0-9a-f]{8})?|\d+(\.\d+)? s\b|\d\.\d+e-\d+")


def plain(line: str) -> str:
    return _VARIES.sub("#", line).rstrip()


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Of each fenced block the kind, the file's name, and the text."""
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block, its here-document with it, and the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    end = ""
    for line in block.splitlines():
        if end:
            found[-1] = (f"{found[-1][0]}\n{line}", [])
            end = "" if line == end else end
        elif line.startswith("$ "):
            found.append((line[2:], []))
            begun = re.search(r"<<'(\w+)'", line)
            end = begun[1] if begun else ""
        else:
            found[-1][1].append(line)
    return found


def shell(command: str, folder: Path, environment: dict[str, str]) -> tuple[str, Path]:
    """What a command says, and the folder that it ends in. Of its exit code nothing: what it shows tells."""
    ran = subprocess.run(
        ["bash", "-c", f"{command}\npwd >{environment['ENDED_IN']}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stdout, ran.stdout
    return ran.stdout, Path(Path(environment["ENDED_IN"]).read_text().strip())


def test_the_tutorial(repository: Path, server: Server, tmp_path: Path, public_folder: Path) -> None:
    if find_spec("liger_kernel") is None:
        pytest.skip("liger-kernel is not installed")
    text = (repository / "docs/use/tutorial.md").read_text()
    places = {
        str(Path(str(find_spec(name).origin)).parents[1]) for name in ("numpy", "torch", "triton", "liger_kernel")
    }
    setup = public_folder / "tutorial.sh"
    lent = "\n".join(sorted(places))
    setup.write_text(
        f"""set -eu
{server.python} -m venv --without-pip "$FMHA_ENVIRONMENT"
echo '{lent}' >"$FMHA_ENVIRONMENT"/lib/python3.{sys.version_info.minor}/site-packages/here.pth
"""
    )
    config = client_config(server, tmp_path / "ssh", alias="far")
    (tmp_path / "bin").mkdir()
    for name, module in (("fmha", "-m fmha"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -P {module} "$@"\n')
        script.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "FMHA_SSH_CONFIG": str(config),
        "FMHA_HOSTS": "",
        "ENDED_IN": str(tmp_path / "ended"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "FMHA_NVCC": str(find_nvcc().path),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        **{f"GIT_{role}_{what}": "t@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    folder = tmp_path
    for kind, name, block in blocks(text):
        if kind != "console":
            (folder / name).write_text(block)
            continue
        for command, shown in commands(block):
            if command.startswith(DONE_BEFORE):
                continue
            here = command
            if "kind: ssh" in command:  # the host's packages are lent to it, and its nvcc is the one that is here
                here = re.sub(r"setup: .*", f"setup: sh {setup}", command).replace(
                    "    alias: far\n",
                    "    alias: far\n    folder: ~/tutorial\n    env: {TRITON_CACHE_DIR: /tmp/triton-far}\n"
                    f"    python: {server.python}\n    nvcc: {find_nvcc().path}\n"
                    f"    gpus: {{locks: {server.folder}}}\n",
                )
            said, folder = shell(here, folder, environment)
            lines = [plain(line) for line in said.splitlines()]
            for line in shown:
                assert line == "..." or plain(line) in lines, f"$ {command}\n{said}"
            if shown and shown[-1] != "...":
                assert lines[-1] == plain(shown[-1]), f"$ {command}\n{said}"
