"""`fmha diff-run`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.naming import NAMES, Arch, Which
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode

HELP = f"""Find the first instruction whose value differs between two launches of the emulator.

A and B are NAME, NAME@COMMIT, NAME+SCHEDULE or NAME@COMMIT+SCHEDULE, where NAME is KERNEL in one word: a program or a
script with arguments is quoted. {NAMES}

Exits with 1 when a value differs.

\b
Examples:
  fmha diff-run hd64_t32_sk384 hd64_t32_sk384+late
  fmha diff-run hd64_t32_sk384@HEAD~1 hd64_t32_sk384
  fmha diff-run good.ptx bad.ptx --launch launch.yaml
  fmha diff-run "./program 64" "./program 64+late" --launch 2
"""

SideName = Annotated[str, typer.Argument(metavar="NAME[@COMMIT][+SCHEDULE]", autocompletion=completion.launches)]


def command(
    context: typer.Context, a: SideName, b: SideName, launch: Which = None, arch: Arch = None, json: Json = False
) -> None:
    context.obj.action = partial(_compare, a, b, launch, arch, json)


def _compare(a: str, b: str, launch: str | None, arch: str | None, json: bool) -> ExitCode:
    from fmha.harness.see.differing import compare, parse_side
    from fmha.harness.stages.preflight import project_of

    found = compare(project_of(Path.cwd()), parse_side(a), parse_side(b), launch, arch)
    if json:
        first = None if found.first is None else asdict(found.first)
        print_json("diff-run", 1, {"a": a, "b": b, "first": first, "lines": list(found.lines)})
    else:
        print("\n".join(found.lines))
    return ExitCode.PASS if found.first is None else ExitCode.GATE_FAILED
