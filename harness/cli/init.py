"""`fmha init`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.extras import install
from fmha.harness.stages.init import ARCHS, EXAMPLES, WORKFLOWS, InitChoice, initialise
from fmha.harness.stages.installed import PAGE, place
from fmha.harness.stages.preflight import git_root

HELP = """Write what a repository needs to have a kernel of its own judged: matrix.yaml, a CUDA kernel with its adapter
that runs at once, a CI workflow, and lines of .gitignore. Your kernel takes the place of the example;
docs/use/kernels.md says how.

On a terminal what no option says is asked; elsewhere its default is taken. Nothing is overwritten.

\b
Examples:
  fmha init
  fmha init --example gemm --arch sm_100a --ci none
"""


def command(
    context: typer.Context,
    example: Annotated[str | None, typer.Option(help=f"To begin with: {', '.join(EXAMPLES)}.")] = None,
    arch: Annotated[str | None, typer.Option(help=f"To compile for: {', '.join(ARCHS)}.")] = None,
    ci: Annotated[str | None, typer.Option(help=f"Whose workflow to write: {', '.join(WORKFLOWS)}.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, example, arch, ci, sys.stdin.isatty() and not yes and not json, json)


def _run(example: str | None, arch: str | None, ci: str | None, ask: bool, json: bool) -> ExitCode:
    root = git_root(Path.cwd())
    default = InitChoice()
    choice = InitChoice(
        _chosen("example", example, EXAMPLES, default.example, ask),
        _chosen("arch", arch, ARCHS, default.arch, ask),
        _chosen("ci", ci, WORKFLOWS, default.ci, ask),
    )
    written = initialise(root, choice)
    if json:
        print_json("init", 1, {"root": str(root), "files": written})
        return ExitCode.PASS
    for name in written:
        say(f"wrote {name}")
    if (extras := EXAMPLES[choice.example]) != EXAMPLES[default.example]:
        say(f"needs: {install(*extras.split(','))}")
    if WORKFLOWS[choice.ci] and not place():
        say(f"the workflow installs fmha from the repository's variable FMHA; {PAGE} says what to set it to")
    say("next: git add -A && git commit -m 'Have the kernel judged' && fmha run-matrix")
    return ExitCode.PASS


def _chosen(name: str, given: str | None, known: Iterable[str], default: str, ask: bool) -> str:
    choices = tuple(known)
    while given is None and ask:
        try:
            said = input(f"{name} ({', '.join(choices)}) [{default}]: ").strip() or default
        except EOFError:
            said = default
        given = said if said in choices else None
    if given is not None and given not in choices:
        raise UserError(f"--{name}: {given!r} is none", next_step=f"use one of {', '.join(choices)}")
    return given or default
