"""Where the modules of a run are found by name: in a folder that holds the package `fmha` and nothing else.

PYTHONPATH comes before the standard library. With a whole tree on it, any module at a tree's root would be imported in
place of one of the same name: a `json.py`, a `numpy/`, or a `sitecustomize.py`, which nobody has to import.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

FOLDER = "modules"


def provide(tree: Path, folder: Path) -> Path:
    """Makes the folder for the package of a worktree that has just been proved, and returns it.

    The package is a folder of its own with copies of its few files, and its parts are links to those of the tree: a
    sandbox is granted the folder by its name and each part by where it leads.
    """
    package = folder / "fmha"
    package.mkdir(parents=True, exist_ok=True)
    with os.scandir(tree / "fmha") as entries:
        for entry in entries:
            target = package / entry.name
            if entry.name == "__pycache__" or os.path.lexists(target):
                continue
            if entry.is_dir():
                target.symlink_to(os.path.realpath(entry.path))
            elif entry.is_file():  # a link may lead nowhere
                shutil.copyfile(entry.path, target)
    return folder
