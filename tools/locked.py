"""What our own workflows install, each package with the digests of its wheels: `python -m tools.locked`.

Versions are those of constraints.txt. Written is .github/locked.txt, for every Python that the workflows name, and make
installs from it with pip's --require-hashes where LOCKED names it. torch and Triton are not in it: the build of torch
without CUDA libraries is on an index of its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from fmha.harness.stages.lock_file import lock
from scripts.requirements import requirements

ROOT: Final = Path(__file__).resolve().parents[1]
LOCKED: Final = ".github/locked.txt"
BUILDER: Final = "cibuildwheel==4.3.5"
BUILDERS: Final = ".github/cibuildwheel.txt"  # by itself, since it wants other versions than ours
SETS: Final = ("build", "run", "programs", "watch", "test", "lint", "nvcc")
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_HEAD: Final = (
    "# What the workflows install. For other versions change constraints.txt and run: python -m tools.locked\n"
)


def merged(locks: list[list[str]]) -> list[str]:
    """Of each package one line with the digests of all. ValueError where two have another version of one."""
    digests: dict[str, dict[str, None]] = {}
    versions: dict[str, str] = {}
    for line in (line for made in locks for line in made):
        pin, *hashes = line.split(" ")
        name, version = pin.split("==")
        if versions.setdefault(name, version) != version:
            raise ValueError(f"{name} is {versions[name]} for one Python and {version} for another")
        digests.setdefault(pin, {}).update(dict.fromkeys(hashes))
    return [
        f"{pin} {' '.join(sorted(hashes))}" for pin, hashes in sorted(digests.items(), key=lambda item: item[0].lower())
    ]


def main() -> int:
    wanted = [*dict.fromkeys(requirements(list(SETS))), "-c", str(ROOT / "constraints.txt")]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda python: lock(wanted, python, "x86_64"), PYTHONS))
    builder = lock([BUILDER], "3.12", "x86_64")
    for name, lines in ((LOCKED, merged(found)), (BUILDERS, builder)):
        (ROOT / name).write_text(_HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
