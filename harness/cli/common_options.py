"""Options that several commands share, with one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmha.harness.cli import completion
from fmha.harness.config.filters import KEYS
from fmha.harness.errors import UserError
from fmha.harness.stages.preflight import home_of

Results = Annotated[Path | None, typer.Option(help="Folder of the archive.  [default: results/ of the checkout]")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead; docs/reference/json.md has its fields.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table: failures and verdict only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every step as a line of its own, even on a terminal.")]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML, for CI systems.")
]
Host = Annotated[
    str, typer.Option(help="The machine that runs, a host of matrix.yaml.", autocompletion=completion.hosts)
]
Hosts = Annotated[
    str,
    typer.Option(
        metavar="NAME[,...]",
        help="The machine that runs, a host of matrix.yaml; several with commas between them share the run.",
        autocompletion=completion.hosts,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "--gpus",
        min=1,
        max=1024,
        help="How many configurations run at once, at the most: workers of the emulator, or GPUs of the host.  "
        "[default: gpus.count of the host; on the emulator one a core, where that helps]",
    ),
]
Suites = Annotated[
    list[str] | None,
    typer.Option(
        "--suite",
        metavar="NAME[,...]",
        autocompletion=completion.suites,
        help="Suites of matrix.yaml; several with commas between them or given again, all for every one.  "
        "[default: its default_suite]",
    ),
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="KEY=VALUE[|VALUE...][,...]",
        autocompletion=completion.filters,
        help=f"Run only what matches all of these. Keys: {', '.join(KEYS)}; of a kernel of your own its fields. "
        "Several values of a key, joined with | or given again, are alternatives.",
    ),
]


def suites(given: list[str] | None) -> str | None:
    """The suites of --suite as one name with commas, without repetition; None when it was not given."""
    names = dict.fromkeys(name.strip() for text in given or () for name in text.split(","))
    if "" in names:
        raise UserError("--suite: a name is empty", next_step="leave --suite out for the default suites")
    return ",".join(names) or None


ORDER = "In which warps execute: the PTX's, or ptxas's, which takes nvdisasm (ptx, sass)."


def archive_folder(results: Path | None) -> Path:
    """The folder that --results names, else results/ of this checkout, or of this folder where there is none."""
    return results if results is not None else home_of(Path.cwd()) / "results"
