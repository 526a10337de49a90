"""The folder of a build cache: this account's, and outside of the tree that is judged."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fmha.harness import account
from fmha.harness.worker.compilers.cache import CacheError, cache_error

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def own_folder(folder: Path, root: Path) -> Path:
    """`folder`, made for this account alone where it is not there. CacheError where what lies in it could be another's:
    it comes with the tree that is judged, belongs to another account, or others may write into it."""
    folder = folder.resolve()
    if folder.is_relative_to(root.resolve()):
        raise _refused(folder, "lies in the tree that is judged, so that a commit could bring what is in it")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        raise cache_error(folder, error) from error
    if facts.st_uid != os.geteuid():
        raise _refused(folder, f"belongs to another account (uid {facts.st_uid}), which could put builds into it")
    if facts.st_mode & _OTHERS_WRITE:
        raise _refused(folder, "can be written by other accounts", f"chmod go-w {folder}; then fmha clean")
    return folder


def _refused(folder: Path, why: str, step: str = f"set {account.VARIABLE} to a folder of this account") -> CacheError:
    return CacheError(f"the build cache {why}", where=str(folder), next_step=step)
