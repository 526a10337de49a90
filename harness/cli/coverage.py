"""`fmha coverage`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Scheduled, Which, subject
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode

if TYPE_CHECKING:
    from fmha.harness.see.launch_subject import LaunchSubject

HELP = f"""Say which lines of a kernel its launches have not executed: of its source, where it was compiled with
-lineinfo, and of its PTX. `fmha run-matrix --coverage` says it of a whole suite.

{NAMES}

\b
Examples:
  fmha coverage rmsnorm_rows4_columns256
  fmha coverage kernel.ptx --launch launch.yaml
  fmha coverage -- python script.py
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, lambda: subject(context, kernel, launch, schedule, arch), json)


def _run(named: Callable[[], LaunchSubject], json: bool) -> ExitCode:
    from fmha.harness.see.covered import covered, fields_of, lines_of

    chosen = named()
    found = covered(chosen)
    if json:
        print_json("coverage", 1, {"kernel": chosen.name} | fields_of(found))
    else:
        print("\n".join(lines_of(found)))
    return ExitCode.PASS
