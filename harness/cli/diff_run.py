"""`fmha diff-run`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.diag import LaunchFile, root_for
from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode

HELP = """Find the first instruction whose value differs between two launches of the emulator.

A and B are NAME, NAME@COMMIT, NAME+SCHEDULE or NAME@COMMIT+SCHEDULE. NAME is a configuration of our kernels, or a file
of PTX when --launch gives its launch. Exits with 1 when a value differs.

\b
Examples:
  fmha diff-run hd64_t32_sk384 hd64_t32_sk384+late
  fmha diff-run hd64_t32_sk384@HEAD~1 hd64_t32_sk384
  fmha diff-run good.ptx bad.ptx --launch launch.yaml
"""

SideName = Annotated[str, typer.Argument(metavar="NAME[@COMMIT][+SCHEDULE]")]


def command(context: typer.Context, a: SideName, b: SideName, launch: LaunchFile = None, json: Json = False) -> None:
    context.obj.action = partial(_compare, a, b, launch, json)


def _compare(a: str, b: str, launch: Path | None, json: bool) -> ExitCode:
    from fmha.harness.see.differing import compare, parse_side

    found = compare(root_for(launch), parse_side(a), parse_side(b), launch)
    if json:
        first = None if found.first is None else asdict(found.first)
        print_json("diff-run", 1, {"a": a, "b": b, "first": first, "lines": list(found.lines)})
    else:
        print("\n".join(found.lines))
    return ExitCode.PASS if found.first is None else ExitCode.GATE_FAILED
