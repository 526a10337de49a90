"""`fmha bench`: times the Hopper kernels and what a user would pick instead, on the GPU of this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
from functools import partial
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli.options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.errors import ExitCode, InfrastructureError
from fmha.harness.worker.devices.base import DeviceError
from fmha.harness.worker.devices.cuda import architecture

HELP = """Time the Hopper kernels beside SDPA's backends, FlexAttention and a split-KV Triton kernel, in one
run. Needs an H100 or H200, torch, triton and nvcc. Writes JSON: results, spread, clocks, and the roofline of the run.

\b
Examples:
  fmha bench
  fmha bench --output results/bench-h200.json
"""


def command(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="The JSON to write.")] = Path("bench.json"),
    flex: Annotated[bool, typer.Option(help="FlexAttention too: it compiles for a minute.")] = True,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, output, flex, json)


def _run(output: Path, flex: bool, json: bool) -> ExitCode:
    missing = [name for name in ("torch", "triton", "cuda.bindings") if not _installed(name)]
    if missing:
        what = f"the benchmark needs {', '.join(missing)}"
        raise InfrastructureError(what, next_step="pip install 'fmha[cuda,bench]'")
    try:
        arch = architecture()
    except DeviceError as error:
        raise InfrastructureError(str(error), next_step="run it on a machine with an H100 or H200") from error
    if arch != "sm_90a":
        raise InfrastructureError(
            f"the GPU is {arch}, the kernels are for sm_90a", next_step="run it on an H100 or H200"
        )
    if not output.parent.is_dir():
        raise InfrastructureError("no such folder", where=str(output.parent), next_step="make it, or name another file")
    from fmha.harness.bench.build import build_candidates  # imports cuda.bindings and torch, which few machines have
    from fmha.harness.bench.run import benchmark

    with tempfile.TemporaryDirectory() as folder:
        build_candidates(Path(folder))
        with contextlib.redirect_stdout(sys.stderr if json else sys.stdout):
            benchmark(Path(folder), output, flex)
    if json:
        print_json("bench", 1, loads(output.read_text(encoding="utf-8")))
    return ExitCode.PASS


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
