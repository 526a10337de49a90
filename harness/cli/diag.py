"""`fmha diag`: tmem, smem, barriers, descriptor, tensormap, probe."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.dashes import Dashed
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Scheduled, Which, subject
from fmha.harness.cli.output import print_json, write_file
from fmha.harness.errors import ExitCode, UserError

if TYPE_CHECKING:
    from fmha.harness.see.diagrams import Shown
    from fmha.harness.see.launch_subject import LaunchSubject

HELP = f"""Where a kernel has its data, and who waits for whom: read off a launch on the emulator.

{NAMES} docs/use/see.md explains what is printed.

\b
Examples:
  fmha diag tmem hd64_t32_sk384 --svg tmem.svg
  fmha diag smem hd128_t32_sk384_p-smem
  fmha diag barriers kernel.ptx --launch launch.yaml
  fmha diag smem --launch 2 -- python script.py
  fmha diag descriptor 0x4000404000010000
  fmha diag descriptor --instruction 0x8200490 --kind f16
  fmha diag tensormap map.bin
  fmha diag probe
"""

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture there.")]


@app.command(
    name="tmem", cls=Dashed, help="Which row and column of S, P and O is in which lane and column of tensor memory."
)
def tmem(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
    svg: Svg = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(
        _look, "tmem", lambda: subject(context, kernel, launch, schedule, arch), _words(kernel), svg, json
    )


@app.command(name="smem", cls=Dashed, help="Layouts in shared memory, in CuTe's notation, and bank conflicts by line.")
def smem(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(
        _look, "smem", lambda: subject(context, kernel, launch, schedule, arch), _words(kernel), None, json
    )


@app.command(name="barriers", cls=Dashed, help="Who arrives on each mbarrier, who waits, how many phases.")
def barriers(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
    svg: Svg = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(
        _look, "barriers", lambda: subject(context, kernel, launch, schedule, arch), _words(kernel), svg, json
    )


@app.command(name="descriptor", help="A shared-memory or instruction descriptor in words, and what is wrong with it.")
def descriptor(
    context: typer.Context,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="0x..., or decimal.")],
    is_instruction: Annotated[bool, typer.Option("--instruction", help="It is an instruction descriptor.")] = False,
    kind: Annotated[str, typer.Option(help="Of the tcgen05.mma that an instruction descriptor is for.")] = "f16",
    ws: Annotated[bool, typer.Option("--ws", help="It is a tcgen05.mma.ws.")] = False,
    pair: Annotated[bool, typer.Option("--pair", help="It has .cta_group::2.")] = False,
    a_tmem: Annotated[bool, typer.Option("--a-tmem", help="Its A is in tensor memory.")] = False,
    sparse: Annotated[bool, typer.Option("--sparse", help="It is a tcgen05.mma.sp.")] = False,
    json: Json = False,
) -> None:
    context.obj.action = partial(_descriptor, value, is_instruction, kind, ws, pair, a_tmem, sparse, json)


@app.command(name="tensormap", help="A tensor map in words: 128 bytes in a file, as the emulator encodes them.")
def tensormap(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The 128 bytes.")],
    json: Json = False,
) -> None:
    context.obj.action = partial(_tensormap, file, json)


@app.command(name="probe", help="Round trips through tensor memory: what is stored, where it lies, what an MMA reads.")
def probe(context: typer.Context, json: Json = False) -> None:
    context.obj.action = partial(_probe, json)


def _words(kernel: list[str] | None) -> str:
    return shlex.join(kernel or ())


def _look(what: str, named: Callable[[], LaunchSubject], kernel: str, svg: Path | None, json: bool) -> ExitCode:
    from fmha.harness.see import diagrams

    shows: dict[str, Callable[[LaunchSubject], Shown]] = {
        "tmem": diagrams.tmem,
        "smem": diagrams.smem,
        "barriers": diagrams.barriers,
    }
    shown = shows[what](named())
    if svg is not None and shown.svg is not None:
        write_file(svg, shown.svg)
    if json:
        print_json("diag", 1, {"what": what, "kernel": kernel, "lines": list(shown.lines)})
        return ExitCode.PASS
    for line in shown.lines:
        print(line)
    if svg is not None and shown.svg is not None:
        print(f"wrote {svg}")
    return ExitCode.PASS


def _descriptor(
    value: str, is_instruction: bool, kind: str, ws: bool, pair: bool, a_tmem: bool, sparse: bool, json: bool
) -> ExitCode:
    from fmha.emulator.debug import descriptors

    if is_instruction:
        if kind not in descriptors.KINDS:
            raise UserError(f"--kind: {kind!r} is not one of {', '.join(descriptors.KINDS)}")
        lines, good = descriptors.instruction(_number(value, 32), kind, ws=ws, pair=pair, a_tmem=a_tmem, sparse=sparse)
    else:
        lines, good = descriptors.matrix(_number(value, 64))
    return _said("descriptor", value, lines, good, json)


def _said(what: str, kernel: str, lines: Sequence[str], good: bool, json: bool) -> ExitCode:
    if json:
        print_json("diag", 1, {"what": what, "kernel": kernel, "right": good, "lines": list(lines)})
    else:
        print("\n".join(lines))
    return ExitCode.PASS if good else ExitCode.GATE_FAILED


def _number(text: str, bits: int) -> int:
    """A value as a debugger shows it: 0x..., or decimal."""
    try:
        value = int(text, 0)
    except ValueError as error:
        raise UserError(f"{text!r} is no number", next_step="write it as 0x4000004000010000") from error
    if not 0 <= value < 1 << bits:
        raise UserError(f"{text} has more than {bits} bits")
    return value


def _tensormap(file: Path, json: bool) -> ExitCode:
    from fmha.emulator.debug import descriptors
    from fmha.emulator.tensormap import NBYTES

    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(file)) from error
    if len(raw) != NBYTES:
        raise UserError(f"a tensor map has {NBYTES} bytes, not {len(raw)}")
    return _said("tensormap", str(file), *descriptors.tensor_map(raw), json)


def _probe(json: bool) -> ExitCode:
    from fmha.emulator.debug.probes import round_trips

    lines: list[str] = []
    for trip in round_trips():
        lines += [f"{'same' if trip.same else 'DIFFERS'}: {trip.what}", *(f"  {line}" for line in trip.lines)]
    _said("probe", "", lines, True, json)
    return ExitCode.PASS
