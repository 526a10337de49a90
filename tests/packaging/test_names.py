"""A name is one thing's: of files, and of classes that others import, in harness/, emulator/ and tools/. Of kernel/ it
is not asked: there a role has its name in each kernel's folder, and names of files stand in the PTX."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from pathlib import Path

from tests.packaging.syntax import OF_ONE_PROCESS, tree

pytestmark = OF_ONE_PROCESS
ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("harness", "emulator", "tools")
# What Python, or fmha of whoever declares a kernel, asks for by this name.
ASKED_FOR = frozenset({"__init__.py", "__main__.py", "fmha_kernels.py"})
# Rooms that do what the command of the same name in harness/cli/ prints.
BEHIND_COMMANDS = frozenset({"harness/evidence", "harness/see", "harness/stages"})
# One thing in two rooms of which neither may import the other, or of which one is the plain data of the other.
SHARED_CLASSES = {
    "Device": "what a launch is written over, and the emulator's, which users import",
    "Pace": "how long a CTA takes, of kernels of sm_100a and of sm_90a",
}


def files_that_end(*ends: str) -> list[str]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if name.endswith(ends) and (ROOT / name).exists()]


def test_no_two_files_have_one_name() -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for name in files_that_end(".py", ".cpp", ".hpp", ".h", ".cu", ".cuh"):
        folder, _, file = name.rpartition("/")
        folders[file].add(folder)
    shared = {
        file: sorted(found)
        for file, found in folders.items()
        if len(found) > 1
        and file not in ASKED_FOR
        and not ("harness/cli" in found and len(found) == 2 and found & BEHIND_COMMANDS)
    }
    assert shared == {}


def test_no_two_classes_have_one_name() -> None:
    files: dict[str, set[str]] = defaultdict(set)
    for name in files_that_end(".py"):
        for node in ast.walk(tree(ROOT / name)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].add(name)
    shared = {name: sorted(found) for name, found in files.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in SHARED_CLASSES} == {}
    assert SHARED_CLASSES.keys() <= shared.keys(), "a name of this list is one class's: take it out"
