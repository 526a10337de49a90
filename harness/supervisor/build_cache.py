"""Whose cache of builds a run has: the host's, or one of its own.

A harness that is enclosed as a whole, since it is the commit's own or of before there was a wall, writes into the cache
that it builds in, and what it leaves there may be anything. So it gets a cache that no other run ever has. What the
host's cache holds is linked into it, to be read: that was built by harnesses that others judge by.

A runner finds the cache beside the folder of runs that it is told. One with a cache of its own is told its run by way
of `own/runs` in the run's directory, a link to the folder of all runs, with `own/cache` beside it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from fmha.harness.supervisor.rundir import RunDirectory

FOLDER = "own"
CACHE = "cache"
_HASHES = ".hashes.json"  # of compilers, as harness/worker/compilers/hashes.py keeps them


def of_its_own(directory: RunDirectory) -> Path:
    """Makes a cache for this run alone. Returns the run's directory as its runner is to be told it."""
    home = directory.path / FOLDER
    (home / CACHE).mkdir(parents=True)
    (home / "runs").symlink_to(directory.path.parent)
    with contextlib.suppress(FileNotFoundError), os.scandir(directory.folder / CACHE) as entries:
        for entry in entries:
            if "-" in entry.name and entry.is_dir():
                (home / CACHE / entry.name).symlink_to(entry.path)
            elif entry.name == _HASHES and entry.is_file(follow_symlinks=False):  # a link could lead to any file
                shutil.copyfile(entry.path, home / CACHE / entry.name, follow_symlinks=False)
    return home / "runs" / directory.run


def cache_of(run: Path) -> Path:
    """The cache of builds of the runner that is told its run by this name."""
    return run.parent.parent / CACHE
