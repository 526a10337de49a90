"""Mistakes planted in the planner of new sizes, and which tests see them.

    python -m tools.planner              # each of planner.yaml, in a copy of this checkout
    python -m tools.planner NAME...      # of these names

The planner is compiled without optimization, which takes a few seconds, and tests/harness/test_planner.py run until one
fails. Exits 1 where a mistake is not seen.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[1]
LIBRARY: Final = Path(__file__).with_name("planner.yaml")
DEVICES: Final = Path("harness/worker/devices")
TESTS: Final = "tests/harness/test_planner.py"
LEFT_OUT: Final = (".git", ".venv", "results", "docs", "build", "__pycache__", ".mypy_cache", ".ruff_cache")
SECONDS: Final = 600


@dataclass(frozen=True)
class Mistake:
    """A mistake in the planner, as a replacement of text."""

    name: str
    file: str  # of DEVICES / native
    did: str
    old: str
    new: str
    equivalent: str = ""  # why no test can see it

    def applied(self, text: str) -> str:
        """ValueError unless there is exactly one place."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: found {text.count(self.old)} times in {self.file}, not once: {self.old!r}")
        return text.replace(self.old, self.new)


def load() -> list[Mistake]:
    """The mistakes of the library."""
    return [Mistake(**each) for each in yaml.safe_load(LIBRARY.read_text(encoding="utf-8"))]


def compiled(tree: Path) -> None:
    """CalledProcessError where it does not compile."""
    devices = tree / DEVICES
    module = devices / f"_calls{sysconfig.get_config_var('EXT_SUFFIX')}"
    options = ["-std=c++20", "-O0", "-fPIC", "-shared", "-ffp-contract=off", "-fvisibility=hidden"]
    command = ["g++", *options, f"-I{sysconfig.get_paths()['include']}", "calls.cpp", "native/planner.cpp"]
    subprocess.run([*command, "-o", str(module)], cwd=devices, check=True, capture_output=True)


def seen_by(tree: Path) -> str | None:
    """The first test that fails; None where all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", TESTS]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"pytest ended with {done.returncode}"


def planted(tree: Path, mistakes: list[Mistake]) -> Iterator[tuple[Mistake, str | None]]:
    """Each mistake, alone in the copy, and what sees it."""
    for mistake in mistakes:
        source = tree / DEVICES / "native" / mistake.file
        right = source.read_text(encoding="utf-8")
        source.write_text(mistake.applied(right), encoding="utf-8")
        try:
            compiled(tree)
            yield mistake, seen_by(tree)
        finally:
            source.write_text(right, encoding="utf-8")


def main() -> int:
    """Plants each mistake and says which tests see it. 1 where one lives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    mistakes = [mistake for mistake in load() if not names or mistake.name in names]
    alive = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (tree / "results").symlink_to(ROOT / "results")
        for mistake, seen in planted(tree, mistakes):
            alive += seen is None and not mistake.equivalent
            why = f", equivalent: {mistake.equivalent}" if mistake.equivalent else ""
            print(f"{mistake.name}: {seen or f'NOT SEEN{why}'}", flush=True)
    print(f"{alive} of {sum(not mistake.equivalent for mistake in mistakes)} not seen")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
