"""The words that name a launch, with one wording for every command that looks on: docs/reference/views.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.dashes import DASHES

if TYPE_CHECKING:
    from fmha.harness.see.launch_subject import LaunchSubject

NAMES = """KERNEL is a configuration as fmha run-matrix prints it, of our kernels or of one's own; a file of PTX whose
--launch is a YAML file as for fmha emulate; or behind -- a program that nvcc has built, or python and a script.
docs/reference/views.md has what each command takes."""

Kernel = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KERNEL | -- PROGRAM ...",
        help="A configuration, a file of PTX, or a program or script.",
        show_default=False,
        autocompletion=completion.launches,
    ),
]
Which = Annotated[
    str | None,
    typer.Option(
        "--launch",
        metavar="LAUNCH|N|ENTRY",
        help="Of a file of PTX its launch.yaml; of several launches the one of this number, or whose entry holds this.",
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(metavar="ARCH", help="Of a program's GPU, or a script's kernels.  [default: sm_100a]"),
]
Scheduled = Annotated[
    str | None,
    typer.Option("--schedule", help="realistic, early, late, random, random:SEED.  [default: the launch's]"),
]


def subject(
    context: typer.Context, words: list[str] | None, launch: str | None, schedule: str | None, arch: str | None
) -> LaunchSubject:
    """The launch that the command line names."""
    from fmha.harness.see.named import named  # here: no other command needs the machine

    return named(words or (), launch, command=context.meta[DASHES], schedule=schedule, arch=arch)
