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

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json
from fmha.harness.contract.device import DeviceError
from fmha.harness.errors import ExitCode, InfrastructureError
from fmha.harness.extras import install
from fmha.harness.worker.devices.cuda import architecture

# By name, each with the module that it needs and what pip installs it by.
PEERS = {
    "fa3": ("fa3_fwd_interface", "fa3_fwd"),
    "flashmla": ("flash_mla", "--no-deps sgl-flash-mla"),
    "flashinfer": ("flashinfer", "flashinfer-python"),
    "cudnn": ("torch", "torch"),
    "flash2": ("torch", "torch"),
    "sdpa": ("torch", "torch"),
    "triton": ("triton", "triton"),
}
HELP = """Time the Hopper kernels beside SDPA's backends, FlexAttention and a split-KV Triton kernel, in one
run. Needs an H100 or H200, torch, triton and nvcc. Writes JSON: results, spread, clocks, and the roofline of the run.
With --peer, what the harness launches beside the named libraries at many shapes, each checked first, in turn.

\b
Examples:
  fmha bench
  fmha bench --output results/bench-h200.json
  fmha bench --peer fa3,flashmla,flashinfer,cudnn,flash2,sdpa --output results/beside-h200.json
"""


def command(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="The JSON to write.")] = Path("bench.json"),
    flex: Annotated[bool, typer.Option(help="FlexAttention too: it compiles for a minute.")] = True,
    peer: Annotated[str, typer.Option(metavar="NAMES", help=f"Of {', '.join(PEERS)}, with commas between.")] = "",
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, output, flex, _peers(peer), json)


def _peers(names: str) -> list[str]:
    peers = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in peers if name not in PEERS]:
        raise typer.BadParameter(f"no peer {unknown[0]!r}; there are {', '.join(PEERS)}", param_hint="--peer")
    return peers


def _run(output: Path, flex: bool, peers: list[str], json: bool) -> ExitCode:
    missing = [name for name in ("torch", "triton", "cuda.bindings") if not _installed(name)]
    if missing:
        what = f"the benchmark needs {', '.join(missing)}"
        raise InfrastructureError(what, next_step=install("cuda", "bench"))
    for name in peers:
        module, package = PEERS[name]
        if not _installed(module):
            raise InfrastructureError(
                f"the peer {name} needs the module {module}", next_step=f"pip install {package}, or leave that peer out"
            )
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
    from fmha.harness.bench.runs import (  # they import cuda.bindings and torch, which few machines have
        benchmark,
        beside,
    )
    from fmha.harness.bench.shapes import build_shapes

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr if json else sys.stdout):
        if peers:
            beside.benchmark(peers, output)
        else:
            build_shapes.build_candidates(Path(folder))
            benchmark.benchmark(Path(folder), output, flex)
    if json:
        print_json("bench", 1, loads(output.read_text(encoding="utf-8")))
    return ExitCode.PASS


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
