"""The Typer application: global options and the list of commands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

EXIT_CODES = """\b
Exit codes:
  0  every configuration passed
  1  a gate failed: wrong numbers, a hazard, a timeout, a crash or a kernel that does not build
  2  wrong usage or a wrong matrix.yaml
  3  the machinery failed: nothing was learned about the kernel
  4  incomplete: something was not run, or the run was interrupted
"""

# Each is the module of that name here, in the order in which the help lists them.
COMMANDS = (
    "run-matrix",
    "bench",
    "emulate",
    "regress",
    "bisect",
    "baseline",
    "compare",
    "history",
    "report",
    "watch",
    "results",
    "hosts",
    "attach",
    "ps",
    "logs",
    "cancel",
    "clean",
    "doctor",
)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments. When they begin with a command, the others' modules are not loaded."""
    app = typer.Typer(
        name="fmha",
        help="Takes a commit of an attention kernel to a verdict.",
        epilog=EXIT_CODES,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    named = [name for name in COMMANDS if name in arguments[:1]]
    for name in named or COMMANDS:
        module = import_module(f"harness.cli.{name.replace('-', '_')}")
        texts = {"help": module.HELP, "short_help": module.SHORT_HELP}
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, **texts)
        else:
            app.command(name=name, epilog=EXIT_CODES, **texts)(module.command)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from harness.hosts.machine import distribution_version

        typer.echo(f"fmha {distribution_version('fmha') or '(not installed)'}")
        raise typer.Exit


def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; so does FMHA_DEBUG=1.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    context.obj.debug = context.obj.debug or debug
