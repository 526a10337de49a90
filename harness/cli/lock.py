"""`fmha lock`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.stages.lock_file import NAME, written
from fmha.harness.stages.preflight import git_root

HELP = """Write fmha-lock.txt: each package that fmha requires in CI, at one version and with its digest.

The workflow that `fmha init` writes installs from it with pip's --require-hashes, so that CI runs what you have looked
at. pip looks the packages up; nothing is installed. Run it again for newer versions.

\b
Examples:
  fmha lock
  fmha lock --extras nvcc,triton --python 3.13
"""


def command(
    context: typer.Context,
    extras: Annotated[str, typer.Option(help="Of fmha's, with commas.")] = "nvcc",
    python: Annotated[str, typer.Option(help="CI's version of Python.")] = "3.12",
    machine: Annotated[str, typer.Option(help="CI's processor: x86_64 or aarch64.")] = "x86_64",
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, extras, python, machine, json)


def _run(extras: str, python: str, machine: str, json: bool) -> ExitCode:
    if not re.fullmatch(r"3\.\d{1,2}", python):
        raise UserError(f"--python: {python!r} is no version", next_step="say it as 3.12")
    if machine not in ("x86_64", "aarch64"):
        raise UserError(f"--machine: {machine!r} is none", next_step="use x86_64 or aarch64")
    path = written(git_root(Path.cwd()), [extra for extra in extras.split(",") if extra], python, machine)
    if json:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        print_json("lock", 1, {"path": str(path), "packages": [line.split(" ")[0] for line in lines]})
    else:
        say(f"wrote {NAME}")
        say("next: git add fmha-lock.txt, and CI installs what it names")
    return ExitCode.PASS
