"""`fmha mcp`."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode, UserError
from fmha.harness.extras import install

HELP = """Serve the commands to a program that writes kernels, by the Model Context Protocol on standard input and
output.

The tools are judge, emulate, explain, trace, diag, budget and debug, for the repository of the current folder. They
run no program and no script, reach no host, and require a sandbox for what the repository brings. docs/use/mcp.md has
a loop that was run. With --json the tools are printed, and nothing is served.

\b
Examples:
  fmha mcp
  fmha mcp --seconds 120
"""


def command(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="The longest that a tool may take.")] = 600,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, seconds, json)


def _run(seconds: float, json: bool) -> ExitCode:
    if find_spec("mcp") is None:
        raise UserError("the SDK of the Model Context Protocol is not installed", next_step=install("mcp"))
    from fmha.harness.mcp.server import server

    made = server(Path.cwd(), seconds)
    if json:
        tools = asyncio.run(made.list_tools())
        told = [{"name": tool.name, "does": tool.description, "takes": tool.input_schema} for tool in tools]
        print_json("mcp", 1, {"tools": told})
    else:
        made.run("stdio")
    return ExitCode.PASS
