"""`fmha init`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.extras import install
from fmha.harness.stages import begin_kernel
from fmha.harness.stages.init import ARCHS, EXAMPLES, EXTRAS, WORKFLOWS, InitChoice, initialise
from fmha.harness.stages.install_source import PAGE, place
from fmha.harness.stages.preflight import git_root

HELP = """Write what a repository needs to have a kernel of its own judged: matrix.yaml, a CUDA kernel with its adapter
that runs at once, a CI workflow, and lines of .gitignore. Your kernel takes the place of the example;
docs/use/kernels.md says how.

On a terminal what no option says is asked; elsewhere its default is taken. Nothing is overwritten.

\b
Examples:
  fmha init
  fmha init --example gemm --arch sm_100a --ci none
  fmha init --kernel csrc/softmax.cu:softmax_forward
  fmha init --problem level1/19_ReLU.py --answer relu_new.py
"""


def command(
    context: typer.Context,
    example: Annotated[str | None, typer.Option(help=f"To begin with: {', '.join(EXAMPLES)}.")] = None,
    arch: Annotated[str | None, typer.Option(help=f"To compile for: {', '.join(ARCHS)}.")] = None,
    ci: Annotated[str | None, typer.Option(help=f"Whose workflow to write: {', '.join(WORKFLOWS)}.")] = None,
    problem: Annotated[
        str | None, typer.Option(help="In place of an example: KernelBench's .py, or flashinfer-bench's definition.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="In place of an example: FILE.cu, FILE.cu:KERNEL, or Triton's FILE.py: what is there already."
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option(help="To that problem: the .py with ModelNew, or the solution.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(
        _run, example, kernel, (problem, answer), arch, ci, sys.stdin.isatty() and not yes and not json, json
    )


def _run(
    example: str | None,
    kernel: str | None,
    pair: tuple[str | None, str | None],
    arch: str | None,
    ci: str | None,
    ask: bool,
    json: bool,
) -> ExitCode:
    root = git_root(Path.cwd())
    default = InitChoice()
    problem, answer = pair
    if (problem is None) != (answer is None) or sum(map(bool, (problem, example, kernel))) > 1:
        raise UserError("--problem and --answer go together; they, --example and --kernel exclude one another")
    begun, given = None, ""
    if kernel:
        given = "jit" if kernel.partition(":")[0].endswith(".py") else "kernel"
        begun = begin_kernel.files(root, kernel)
    if problem and answer:
        from fmha.harness.problems.begin import files

        begun, given = files(root, problem, answer), "problem"
    choice = InitChoice(
        _chosen(
            "example",
            given or example,
            (*EXAMPLES, *((given,) if given else ())),
            default.example,
            ask,
        ),
        _chosen("arch", arch, ARCHS, default.arch, ask),
        _chosen("ci", ci, WORKFLOWS, default.ci, ask),
    )
    written = initialise(root, choice, begun)
    if json:
        print_json("init", 1, {"root": str(root), "files": written})
        return ExitCode.PASS
    for name in written:
        say(f"wrote {name}")
    if kernel:
        guide = "triton" if given == "jit" else "kernels"
        say(f"write: the reference, and look at each size and the launch; docs/use/{guide}.md says how")
    if (extras := EXTRAS[choice.example]) != EXTRAS[default.example]:
        say(f"needs: {install(*extras.split(','))}")
    if WORKFLOWS[choice.ci] and not place():
        say(f"the workflow installs fmha from the repository's variable FMHA; {PAGE} says what to set it to")
    if WORKFLOWS[choice.ci]:
        say(f"the workflow installs what fmha-lock.txt has: fmha lock --extras {EXTRAS[choice.example]} writes it")
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
