"""`fmha docs`."""

from __future__ import annotations

import difflib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fmha.harness import project
from fmha.harness.cli.common_options import Json
from fmha.harness.cli.output import print_json, say
from fmha.harness.errors import ExitCode, InfrastructureError, UserError

HELP = """Print a page of the documentation of the fmha that is installed, or list its pages.

A page is named by its file, with or without its folder and `.md`: messages that name docs/use/kernels.md mean
`fmha docs kernels`.

\b
Examples:
  fmha docs
  fmha docs kernels
  fmha docs docs/understand/trust.md
"""


def command(
    context: typer.Context,
    page: Annotated[str | None, typer.Argument(help="The page; none for the list.", show_default=False)] = None,
    json: Json = False,
) -> None:
    context.obj.action = partial(_run, page, json)


def _run(page: str | None, json: bool) -> ExitCode:
    pages = _pages(project.documents())
    if page is None:
        listed = {name: _title(path) for name, path in pages.items()}
        if json:
            print_json("docs", 1, {"pages": listed})
            return ExitCode.PASS
        width = max(map(len, listed))
        for name, title in listed.items():
            say(f"{name:{width}}  {title}")
        return ExitCode.PASS
    name = Path(page).name.removesuffix(".md")
    found = {path.stem: known for known, path in pages.items()}
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        raise UserError(f"there is no page {page!r}", next_step=f"fmha docs {near[0] if near else ''}".rstrip())
    text = pages[found[name]].read_text(encoding="utf-8")
    if json:
        print_json("docs", 1, {"page": found[name], "text": text})
    else:
        for line in text.rstrip("\n").split("\n"):
            say(line)
    return ExitCode.PASS


def _pages(folder: Path) -> dict[str, Path]:
    """By what they are called below the folder, without `.md`; the journal is for who has the checkout."""
    found = sorted(path for path in folder.rglob("*.md") if "journal" not in path.parts)
    if not found:
        raise InfrastructureError("this fmha was installed without its documentation", where=str(folder))
    return {str(path.relative_to(folder).with_suffix("")): path for path in found}


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), "")
