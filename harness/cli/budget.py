"""`fmha budget`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Which, subject
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode

if TYPE_CHECKING:
    from fmha.harness.see.launch_subject import LaunchSubject

HELP = f"""What a kernel takes of a multiprocessor: shared and tensor memory by buffer, registers by role, occupancy.

{NAMES} The limits are those of sm_90a and sm_100a.

\b
Examples:
  fmha budget hd128_t32_sk384
  fmha budget hd256_t1_sk512 --what-if registers=128 --what-if shared=114688
  fmha budget --launch 2 -- ./program
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=N", help="Another value of threads, registers, shared or columns."),
    ] = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_show, lambda: subject(context, kernel, launch, None, arch), what_if or [], json)


def _show(named: Callable[[], LaunchSubject], what_if: list[str], json: bool) -> ExitCode:
    from fmha.harness.see.budget import budget_of, check_what_if, fields_of, lines_of

    changed = check_what_if(what_if)
    budget = budget_of(named())
    if json:
        print_json("budget", 1, fields_of(budget, changed))
        return ExitCode.PASS
    for line in lines_of(budget, changed):
        print(line)
    return ExitCode.PASS
