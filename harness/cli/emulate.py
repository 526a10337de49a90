"""`fmha emulate`."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.emulate import Emulation

SHORT_HELP = "Run one launch of any PTX kernel on the emulator."

HELP = """Run one launch of any PTX kernel on the emulator and report its hazards.

LAUNCH is a YAML file: grid, block, buffers and how they are filled, tensor maps, parameters, outputs and what they must
equal; docs/emulator.md shows one. File names in it are relative to it. Hazards or wrong outputs exit with 1.

\b
Example:
  fmha emulate kernel.ptx --launch launch.yaml
"""


def command(
    context: typer.Context,
    ptx: Annotated[Path, typer.Argument(metavar="KERNEL.ptx", help="The PTX text, or a binary that holds it.")],
    launch: Annotated[Path, typer.Option(metavar="LAUNCH", help="The launch, a YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    context.obj.action = partial(_run, ptx, launch, as_json)


def _run(ptx: Path, launch: Path, as_json: bool) -> ExitCode:
    from harness.emulate import emulate, read_launch_file  # here: no other command needs the machine

    result = emulate(ptx, read_launch_file(launch), launch.parent)
    if as_json:
        print(json.dumps(_plain(result), indent=2))
    else:
        _show(result)
    return ExitCode.PASS if result.passed else ExitCode.GATE_FAILED


def _plain(result: Emulation) -> dict[str, Any]:
    return {
        "entry": result.entry,
        "passed": result.passed,
        "findings": [dataclasses.asdict(f) for f in result.report.findings],
        "stats": result.report.stats,
        "outputs": [str(path) for path in result.written],
        "comparisons": [dataclasses.asdict(c) for c in result.comparisons],
    }


def _show(result: Emulation) -> None:
    for finding in result.report.findings:
        print(finding)
    for c in result.comparisons:
        verdict = "equal" if c.wrong == 0 else f"{c.wrong} of {c.elements} elements differ"
        print(f"{c.buffer}: {verdict}, largest difference {c.largest_difference:.3g}")
    for path in result.written:
        print(f"wrote {path}")
    stats = result.report.stats
    print(f"{result.entry}: {stats['warp_instructions']:.0f} warp instructions in {stats['seconds']:.3f} s")
    differing = sum(c.wrong > 0 for c in result.comparisons)
    waived = sum(f.waived is not None for f in result.report.findings)
    accepted = f" ({waived} waived)" if waived else ""
    findings = f"{len(result.report.findings)} findings{accepted}"
    counts = f"{findings}, {differing} of {len(result.comparisons)} compared outputs differ"
    print(f"{'PASS' if result.passed else 'FAIL'}: {counts}")
