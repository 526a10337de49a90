"""`fmha launches`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmha.harness.cli.common_options import Json
from fmha.harness.cli.naming import NAMES, Arch, Kernel, Scheduled, Which, subject
from fmha.harness.cli.output import print_json
from fmha.harness.cpp_names import readable
from fmha.harness.errors import ExitCode

if TYPE_CHECKING:
    from fmha.harness.see.launch_subject import LaunchSubject
    from fmha.harness.see.launches import ListedLaunch

HELP = f"""List the launches of what is named: where its PTX lies, and each launch's number, entry, grid, block, shared
memory and arguments. It is what every other command that looks on shows a part of.

{NAMES}

With --write, one launch is written into a folder as kernel.ptx, launch.yaml and the memory that it finds, for
`fmha emulate kernel.ptx --launch launch.yaml`: the first, or the one that --launch names.

\b
Examples:
  fmha launches rmsnorm_rows4_columns256
  fmha launches hd64_t1_sk1024_splits4 --launch combine --write here
  fmha launches -- ./program
"""


def command(
    context: typer.Context,
    kernel: Kernel = None,
    launch: Which = None,
    schedule: Scheduled = None,
    arch: Arch = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FOLDER", help="Write one launch there, for fmha emulate.")
    ] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, lambda: subject(context, kernel, launch, schedule, arch), write, json)


def _run(named: Callable[[], LaunchSubject], folder: Path | None, json: bool) -> ExitCode:
    from fmha.harness.see.launches import listed, write

    chosen = named()
    found = listed(chosen)
    written = write(chosen, folder) if folder else []
    ptx = str(chosen.ptx) if chosen.ptx != Path() else None
    if json:
        fields = {"kernel": chosen.name, "ptx": ptx, "launches": [item.fields() for item in found]}
        print_json("launches", 1, fields | {"written": [str(path) for path in written]})
        return ExitCode.PASS
    print(f"{chosen.name}: {ptx or 'its PTX is in no file; --write writes it'}")
    for item in found:
        print("\n".join(_lines(item)))
    if not found:
        print("nothing is launched")
    for path in written:
        print(f"wrote {path}")
    return ExitCode.PASS


def _lines(item: ListedLaunch) -> list[str]:
    a = item.asked
    shape = f"grid {_by(a.grid)}, block {_by(a.block)}"
    cluster = f", cluster {_by(a.cluster)}" if a.cluster != (1, 1, 1) else ""
    shared = f", {a.shared_bytes} bytes of shared memory" if a.shared_bytes else ""
    return [f"{item.number:3} {readable(a.entry)}: {shape}{cluster}{shared}", f"    ({', '.join(item.arguments)})"]


def _by(size: tuple[int, int, int]) -> str:
    return "x".join(map(str, size))
