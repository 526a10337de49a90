"""Print requirements declared in pyproject.toml, one a line: `requirements.py build run test ...`.

`build` is [build-system] requires and the dependency group of that name, `run` is the project's dependencies, any other
name is an extra. With this the Makefile installs requirements without building the project, and pyproject.toml stays
the only list.
"""

import sys
import tomllib
from pathlib import Path


def requirements(names: list[str]) -> list[str]:
    with open(Path(__file__).resolve().parent.parent / "pyproject.toml", "rb") as file:
        document = tomllib.load(file)
    sets = {
        "build": document["build-system"]["requires"] + document["dependency-groups"]["build"],
        "run": document["project"]["dependencies"],
        **document["project"]["optional-dependencies"],
    }
    return [requirement for name in names for requirement in sets[name]]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
