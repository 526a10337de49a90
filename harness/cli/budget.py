"""`fmha budget`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.diag import Kernel, LaunchFile, subject
from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode

HELP = """What a kernel takes of a multiprocessor: shared and tensor memory by buffer, registers by role, occupancy.

KERNEL is a configuration, or a file of PTX with its --launch. The limits are those of sm_90a and sm_100a.

\b
Examples:
  fmha budget hd128_t32_sk384
  fmha budget hd256_t1_sk512 --what-if registers=128 --what-if shared=114688
"""


def command(
    context: typer.Context,
    kernel: Kernel,
    launch: LaunchFile = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=N", help="Another value of threads, registers, shared or columns."),
    ] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_show, kernel, launch, what_if or [], json)


def _show(kernel: str, launch: Path | None, what_if: list[str], json: bool) -> ExitCode:
    from fmha.harness.see.budget import budget_of, check_what_if, fields_of, lines_of

    changed = check_what_if(what_if)
    budget = budget_of(subject(kernel, launch))
    if json:
        print_json("budget", 1, fields_of(budget, changed))
        return ExitCode.PASS
    for line in lines_of(budget, changed):
        print(line)
    return ExitCode.PASS
