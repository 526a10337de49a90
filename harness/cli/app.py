"""The Typer application: global options and the list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli import (
    attach,
    baseline,
    bench,
    bisect,
    cancel,
    clean,
    compare,
    doctor,
    emulate,
    history,
    hosts,
    logs,
    ps,
    regress,
    report,
    results,
    run_matrix,
    watch,
)
from harness.hosts.machine import distribution_version

EXIT_CODES = """\b
Exit codes:
  0  every configuration passed
  1  a gate failed: wrong numbers, a hazard, a timeout, a crash or a kernel that does not build
  2  wrong usage or a wrong matrix.yaml
  3  the machinery failed: nothing was learned about the kernel
  4  incomplete: something was not run, or the run was interrupted
"""

app = typer.Typer(
    name="fmha",
    help="Takes a commit of an attention kernel to a verdict.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fmha {distribution_version('fmha') or '(not installed)'}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; so does FMHA_DEBUG=1.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    context.obj.debug = context.obj.debug or debug


app.command(name="run-matrix", help=run_matrix.HELP, short_help=run_matrix.SHORT_HELP, epilog=EXIT_CODES)(
    run_matrix.command
)
app.command(name="bench", help=bench.HELP, short_help=bench.SHORT_HELP, epilog=EXIT_CODES)(bench.command)
app.command(name="emulate", help=emulate.HELP, short_help=emulate.SHORT_HELP, epilog=EXIT_CODES)(emulate.command)
app.command(name="regress", help=regress.HELP, short_help=regress.SHORT_HELP, epilog=EXIT_CODES)(regress.command)
app.command(name="bisect", help=bisect.HELP, short_help=bisect.SHORT_HELP, epilog=EXIT_CODES)(bisect.command)
app.add_typer(baseline.app, name="baseline", help=baseline.HELP, short_help="The runs that regress compares with.")
app.command(name="compare", help=compare.HELP, short_help=compare.SHORT_HELP, epilog=EXIT_CODES)(compare.command)
app.command(name="history", help=history.HELP, short_help=history.SHORT_HELP, epilog=EXIT_CODES)(history.command)
app.command(name="report", help=report.HELP, short_help=report.SHORT_HELP, epilog=EXIT_CODES)(report.command)
app.command(name="watch", help=watch.HELP, short_help=watch.SHORT_HELP, epilog=EXIT_CODES)(watch.command)
app.add_typer(results.app, name="results", help=results.HELP, short_help="The archive: ls, show, verify, prune.")
for name, module in (
    ("hosts", hosts),
    ("attach", attach),
    ("ps", ps),
    ("logs", logs),
    ("cancel", cancel),
    ("clean", clean),
    ("doctor", doctor),
):
    app.command(name=name, help=module.HELP, short_help=module.SHORT_HELP, epilog=EXIT_CODES)(module.command)
