"""`fmha doctor`."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fmha.harness.cli import completion
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.cli.progress import progress_for
from fmha.harness.cli.screen import Console
from fmha.harness.errors import ExitCode, FmhaError, UserError
from fmha.harness.stages.administration import DoctorLine, examine, examine_here
from fmha.harness.stages.host_checkout import RunPlace, find_checkout
from fmha.harness.text import printable

if TYPE_CHECKING:
    from fmha.harness.archive import RunRecord

HELP = """Look at this machine, or at a host elsewhere: connection, git, nvcc and the architectures it knows, driver,
GPUs, disk, clock and locks. What is red says what to do, and exits with 3.

--run goes the whole way on a host elsewhere: it sends the commit that is checked out, makes the environment, builds,
waits for a GPU, and takes the guard's configuration to a verdict, which is archived nowhere. The first time that takes
as long as the environment does.
"""

WORDS = {True: ("ok", "green"), False: ("RED", "bold red"), None: ("-", "")}


def command(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(help="Look at this host.  [default: this machine]", autocompletion=completion.hosts)
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run one configuration on it as well.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, host, run, json)


def _run(host: str | None, run: bool, json: bool) -> ExitCode:
    if host:
        return examined(find_checkout(Path.cwd()).named(host), json, run)
    if run:
        raise UserError("--run: wants a host", next_step="fmha run-matrix runs here")
    return _told(examine_here(), json)


def examined(place: RunPlace, json: bool, run: bool = False) -> ExitCode:
    """Looks at a host elsewhere and says what is missing there."""
    findings = examine(place)
    red = any(finding.good is False for finding in findings)
    if run:
        what = "not tried, for what is red above"
        findings.append(DoctorLine("verdict", None, what) if red else _verdict(place))
    elif not red:
        findings.append(DoctorLine("verdict", None, f"not tried; fmha doctor --host {place.host.name} --run does"))
    return _told(findings, json)


def _verdict(place: RunPlace) -> DoctorLine:
    """One configuration, from the commit to its numbers."""
    from fmha.harness.stages.pipeline import Request, execute  # here: who only looks need not wait for what runs

    name, since = place.matrix.guard.fallback.id, time.monotonic()
    records: list[RunRecord] = []
    try:
        with tempfile.TemporaryDirectory() as folder, progress_for(sys.stderr, quiet=False) as progress:
            request = Request(place.root, host=place.host.name, cases=(name,), results=Path(folder))
            code = execute(request, progress, lambda record, path: records.append(record))
    except FmhaError as error:
        return DoctorLine("verdict", False, str(error), error.next_step)
    (record,) = records
    spent = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in record.durations.items() if seconds >= 0.1)
    seen = f"{name}: {record.verdict.word} in {time.monotonic() - since:.1f} s ({spent})"
    reasons = [reason for item in record.configurations for reason in item.reasons]
    return DoctorLine(
        "verdict", code is ExitCode.PASS, "; ".join([seen, *reasons[:1]]), "fmha ps and fmha logs tell more"
    )


def _told(findings: list[DoctorLine], json: bool) -> ExitCode:
    if json:
        print_json("doctor", 1, {"findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    return ExitCode.INFRASTRUCTURE if any(finding.good is False for finding in findings) else ExitCode.PASS


def _show(findings: list[DoctorLine]) -> None:
    console = Console(file=sys.stdout)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        word, style = WORDS[finding.good]
        line = Text(f"{word:3}", style).append(f"  {printable(finding.name):{width}}  {printable(finding.seen)}", "")
        console.print(line, soft_wrap=True)
        if finding.good is not True and finding.fix:
            console.print(Text(f"{'':{width + 5}}  -> {printable(finding.fix)}"), soft_wrap=True)
