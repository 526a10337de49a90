"""`fmha doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode
from fmha.harness.stages.administration import Finding, examine, examine_here
from fmha.harness.stages.places import Place, find_checkout
from fmha.harness.text import printable

HELP = """Look at this machine, or at a host elsewhere: connection, git, nvcc and the architectures it knows, driver,
GPUs, disk, clock and locks. What is red says what to do, and exits with 3.
"""

WORDS = {True: ("ok", "green"), False: ("RED", "bold red"), None: ("-", "")}


def command(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Look at this host.  [default: this machine]")] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, host, json)


def _run(host: str | None, json: bool) -> ExitCode:
    if host:
        return examined(find_checkout(Path.cwd()).named(host), json)
    return _told(examine_here(), json)


def examined(place: Place, json: bool) -> ExitCode:
    """Looks at a host elsewhere and says what is missing there."""
    return _told(examine(place), json)


def _told(findings: list[Finding], json: bool) -> ExitCode:
    if json:
        print_json("doctor", 1, {"findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    return ExitCode.INFRASTRUCTURE if any(finding.good is False for finding in findings) else ExitCode.PASS


def _show(findings: list[Finding]) -> None:
    console = Console(file=sys.stdout)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        word, style = WORDS[finding.good]
        line = Text(f"{word:3}", style).append(f"  {printable(finding.name):{width}}  {printable(finding.seen)}", "")
        console.print(line, soft_wrap=True)
        if finding.good is False and finding.fix:
            console.print(Text(f"{'':{width + 5}}  -> {printable(finding.fix)}"), soft_wrap=True)
