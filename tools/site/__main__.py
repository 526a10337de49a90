"""The documentation as a site of its own: `python -m tools.site [FOLDER]`, or `make site`.

Sphinx makes it from docs/, README.md, CONTRIBUTING.md, and two pages that come from the code: what `--help` of each
command says, and the Python interface, whose attention needs torch. A link that leads nowhere is an error.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from sphinx.cmd.build import main as sphinx

import fmha
from fmha import emulator
from fmha.harness.cli.app import application

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
PARTS = {"use": "Use", "understand": "Understand", "reference": "Look up", "journal": "Journal"}
# What a part of the navigation begins with; its other pages follow by name.
FIRST = ("use/tutorial.md", "use/kernels.md", "use/scripts.md", "use/programs.md", "understand/architecture.md")
LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
WIDTH = {"terminal_width": 100, "max_content_width": 100}  # of the help of a command


def main(folder: Path) -> int:
    """Writes the site into `folder`. Returns sphinx's exit code."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        write_pages(source)
        return int(
            sphinx(["-q", "-W", "--keep-going", "-c", str(HERE), "-d", f"{name}/doctrees", str(source), str(folder)])
        )


def write_pages(source: Path) -> None:
    """What Sphinx is given: all pages, with the links of a checkout turned into those of the site."""
    shutil.copytree(ROOT / "docs", source)
    (source / "reference").mkdir(exist_ok=True)
    (source / "reference/commands.md").write_text("\n".join(_commands()), encoding="utf-8")
    (source / "reference/python.md").write_text("\n".join(_interface()), encoding="utf-8")
    pages = {path.relative_to(source).as_posix() for path in source.rglob("*.md")} | set(BESIDE.values())
    for page in sorted(pages - {"reference/commands.md", "reference/python.md"}):
        origin = next((name for name, after in BESIDE.items() if after == page), f"docs/{page}")
        text = (ROOT / origin).read_text(encoding="utf-8")
        text = LINK.sub(lambda link: _linked(link, origin, page, pages), text)  # noqa: B023
        (source / page).write_text(text + _contents(page, pages), encoding="utf-8")


def _linked(link: re.Match[str], origin: str, page: str, pages: set[str]) -> str:
    """A link of the file `origin` in the page that it becomes. What only a checkout has is named, and no link."""
    picture, words, target, anchor = link[1], link[2], link[3], link[4] or ""
    if "://" in target:
        return link[0]
    there = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    inside = BESIDE.get(there, there.removeprefix("docs/"))
    if inside not in pages and not picture and (ROOT / there).exists():
        return words
    return f"{picture}[{words}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"


def _contents(page: str, pages: set[str]) -> str:
    """Of the first page: the list that Sphinx makes the navigation of."""
    if page != "index.md":
        return ""
    text = ""
    for part, title in PARTS.items():
        names = sorted((name for name in pages if name.startswith(f"{part}/")), key=_place)
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(names) + "\n```\n"
    rest = sorted(name for name in pages if "/" not in name and name != page)
    return text + "\n```{toctree}\n:hidden:\n:caption: More\n\n" + "\n".join(rest) + "\n```\n"


def _place(page: str) -> tuple[int, str]:
    return FIRST.index(page) if page in FIRST else len(FIRST), page


def _commands() -> Iterator[str]:
    """The help of every command, as it is printed."""
    yield "# Commands\n\nWhat `--help` of each prints.\n"
    top: Any = typer.main.get_command(application())
    yield from _told(top, "fmha", None, 2)


def _told(command: Any, name: str, above: Any, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=name, parent=above, **WIDTH)
    yield f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for each in getattr(command, "list_commands", lambda _: [])(context):
        yield from _told(command.get_command(context, each), each, context, min(level + 1, 3))


def _interface() -> Iterator[str]:
    """Everything that is public, from the docstrings."""
    yield "# Python\n\n`import fmha`. What is not named here is not for users, and may change.\n"
    yield from _objects("fmha", fmha)
    yield "## The PTX machine\n\n`from fmha import emulator`.\n"
    yield from _objects("fmha.emulator", emulator)


def _objects(module: str, home: Any) -> Iterator[str]:
    for name in home.__all__:
        thing = getattr(home, name)
        if callable(thing):
            kind = "autoclass" if isinstance(thing, type) else "autofunction"
            yield f"```{{eval-rst}}\n.. {kind}:: {module}.{name}\n```\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site"))
