"""Mistakes in the emulator's core, and whether the tests that `make test` runs still see them.

    cmake --build FOLDER --target _core          # a build folder of this checkout, as `make install` makes one
    python -m tests.planted_core --build FOLDER  # all
    python -m tests.planted_core --build FOLDER --only tcgen05 --jobs 2

Each mistake is one file of C++ compiled anew and linked with what the build folder has of the others, into a copy of
the tree whose sources stay as they are: a test that compares them with the core sees nothing. Of those of
`Mistake.tests` that make test runs, the first that fails is told, where it passes on the core as it is. What they miss
meets those of the night. Exit code 0 where the day notices all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fmha.emulator._core as compiled
from tests.planted import ROOT, first_red, lay_out
from tests.planted_core_mistakes import MISTAKES, Mistake

CORE = Path(str(compiled.__file__))
SOURCES = ROOT / "emulator" / "core"


@dataclass(frozen=True, slots=True)
class Build:
    """A build folder of this checkout."""

    folder: Path

    def with_mistake(self, mistake: Mistake, made: Path) -> Path:
        """The core with it, in `made`."""
        source, place = made / Path(mistake.file).name, SOURCES / mistake.file
        text = place.read_text(encoding="utf-8")
        if text.count(mistake.old) != 1:
            raise SystemExit(
                f"{mistake.name}: {mistake.file} has its place {text.count(mistake.old)} times; rewrite it"
            )
        source.write_text(text.replace(mistake.old, mistake.new), encoding="utf-8")
        commands = json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8"))
        (command,) = [
            shlex.split(entry["command"])
            for entry in commands
            if entry["file"].endswith(f"/emulator/core/{mistake.file}") and "/_core.dir/" in entry["output"]
        ]
        whole, target = command[command.index("-o") + 1], made / "unit.o"
        command[command.index("-o") + 1] = str(target)
        command[command.index("-c") + 1] = str(source)
        # Found beside the file that includes them, some headers are not where its copy is.
        self._run([*command, "-iquote", str(place.parent), "-w"])
        built = made / CORE.name
        link = [str(target) if word == whole else word for word in self._link()]
        link[link.index("-o") + 1] = str(built)
        assert str(target) in link, whole
        self._run(link)
        return built

    def _link(self) -> list[str]:
        (name,) = [path.name for path in self.folder.glob("_core.*.so")]
        said = subprocess.run(
            ["ninja", "-C", str(self.folder), "-t", "commands", "-s", name], capture_output=True, text=True, check=True
        )
        words = shlex.split(said.stdout.strip().splitlines()[-1])
        first, end = words.index("&&") + 1, len(words) - 1 - words[::-1].index("&&")
        return words[first:end]

    def _run(self, command: list[str]) -> None:
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(f"{shlex.join(command)}\n{ran.stderr[-3000:]}")


@dataclass(frozen=True, slots=True)
class Noticed:
    """By which test; empty where none failed. `when`: by day, at night alone, or why nothing can be said."""

    test: str
    seconds: float
    when: str


def put(core: Path, place: Path) -> None:
    """In one step: a process may have the file there loaded."""
    os.replace(shutil.copy(core, place.with_name("next")), place)


def noticed_by(mistake: Mistake, build: Build, within: float) -> Noticed:
    """The first test that fails with the mistake and not without it; `within` seconds for those of the day, and again
    for those of the night."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        tree, made = Path(name) / "tree", Path(name) / "made"
        made.mkdir()
        lay_out(tree)
        core = tree / "emulator" / CORE.name
        wrong = build.with_mistake(mistake, made)
        for night in (False, True):
            red_without: list[str] = []
            while True:
                put(wrong, core)
                try:
                    found = first_red(tree, mistake.tests, night=night, without=red_without, seconds=within)
                except subprocess.TimeoutExpired:
                    return Noticed("", time.monotonic() - start, f"open by {'night' if night else 'day'}")
                if not found:
                    break
                put(CORE, core)
                if not first_red(tree, [found], night=night):
                    return Noticed(found, time.monotonic() - start, "night" if night else "day")
                red_without.append(found)
    return Noticed("", time.monotonic() - start, "nothing")


def row(mistake: Mistake, noticed: Noticed) -> str:
    """Of a table in Markdown."""
    words = f"`{re.sub('@.*', '', noticed.test)}`" if noticed.test else f"**{noticed.when}**"
    words += ", **at night**" if noticed.when == "night" else ""
    return f"| {mistake.name} | `{mistake.file}` | {words} | {noticed.seconds:.0f} s |"


def main() -> int:
    """0 where the tests of the day notice every mistake, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--build", type=Path, required=True, metavar="FOLDER", help="a build folder of this checkout")
    add("--only", default="", metavar="WORDS", help="mistakes whose names or files have these words")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once  [default: the cores]")
    add("--within", type=float, default=600.0, metavar="SECONDS", help="for a mistake  [default: %(default)g]")
    options = parser.parse_args()
    chosen = [mistake for mistake in MISTAKES if options.only in f"{mistake.name} {mistake.file}"]
    build = Build(options.build.resolve())
    missed = 0

    def tell(mistake: Mistake) -> Noticed:
        noticed = noticed_by(mistake, build, options.within)
        print(row(mistake, noticed), flush=True)
        return noticed

    with ThreadPoolExecutor(options.jobs) as pool:
        for noticed in pool.map(tell, chosen):
            missed += noticed.when != "day"
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
