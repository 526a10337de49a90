"""What a run says of what is no number: `python -m tools.verdicts` writes docs/pictures/verdict-*.svg.

A kernel of one's own, RMSNorm as `fmha init` writes it, with a baseline. Then a commit whose launch no GPU takes, one
whose adapter raises, and a run of a part of the suite. What `fmha regress` and `fmha run-matrix` say is drawn as a
terminal shows it; times, and what else differs from run to run, is left out.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

PICTURES: Final = Path(__file__).parents[1] / "docs/pictures"
COLUMNS: Final = 110
_DIFFERS: Final = (
    (re.compile(r"\b\d+(\.\d+)? ?(s|ms)\b"), "… s"),
    (re.compile(r"\b\d{8}T\d{6}Z\S*"), "…"),
    (re.compile(r"\b[0-9a-f]{8,40}\b"), "…"),
    (re.compile(r"/\S*/(?=fmha_kernels)"), ""),
)


@dataclass(frozen=True, slots=True)
class Picture:
    """What a command says where the adapter has `new` in place of `old`."""

    name: str
    title: str
    old: str
    new: str
    command: tuple[str, ...]


REGRESS: Final = ("regress", "--quiet")
OUTPUT: Final = 'return {"y": Output('
PICTURES_OF: Final = (
    Picture("illegal-launch", "a launch that no GPU takes", "(case.threads, 1, 1)", "(2048, 1, 1)", REGRESS),
    Picture("adapter", "an adapter that raises", OUTPUT, f"oops\n        {OUTPUT}", REGRESS),
    Picture("part", "a run of a part", "", "", (*REGRESS, "--filter", "rows=1")),
)


def said(root: Path, *command: str) -> str:
    """What the command says, without what differs from run to run."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "fmha", *command], cwd=root, capture_output=True, text=True, check=False
    )
    text = "\n".join(line.rstrip() for line in (ran.stdout + ran.stderr).splitlines())
    for pattern, instead in _DIFFERS:
        text = pattern.sub(instead, text)
    return text.strip() + "\n"


def drawn(picture: Picture, text: str) -> str:
    """As SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system=None)
    console.print(Text(f"$ fmha {' '.join(picture.command)}"))
    console.print(Text(text))
    return console.export_svg(title=picture.title, unique_id=f"verdict-{picture.name}")


def repository(folder: Path) -> Path:
    """RMSNorm with a baseline, committed."""
    root = folder / "norm"
    root.mkdir()
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    fmha = [sys.executable, "-P", "-m", "fmha"]
    for command in (
        [*git, "init", "-q", "-b", "main"],
        [*fmha, "init", "--example", "rmsnorm"],
        [*git, "add", "."],
        [*git, "commit", "-q", "-m", "a kernel"],
        [*fmha, "run-matrix", "--quiet"],
        [*fmha, "baseline", "accept", "latest", "--why", "the start"],
        [*git, "add", "."],
        [*git, "commit", "-q", "-m", "baseline"],
    ):
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    return root


def all_of_them(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each picture's file and what is in it, from runs in `folder`."""
    root = repository(folder)
    adapter = root / "fmha_kernels.py"
    before = adapter.read_text(encoding="utf-8")
    for picture in PICTURES_OF:
        adapter.write_text(before.replace(picture.old, picture.new) if picture.old else before, encoding="utf-8")
        yield PICTURES / f"verdict-{picture.name}.svg", drawn(picture, said(root, *picture.command))


def main() -> None:
    """Draws every picture of a verdict."""
    with tempfile.TemporaryDirectory() as folder:
        for file, svg in all_of_them(Path(folder)):
            file.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
