"""Listings of SASS as they were read before: ptxas and nvdisasm take several times as long as the model does.

What is kept is plain data in the account's own folder (harness/account.py), under a digest of all that it comes of:
the PTX with its lines, the architecture, the compiler and the disassembler. What is damaged, or cannot be had, is made
anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fmha.harness import account
from fmha.harness.errors import FmhaError

FOLDER = "sass"
MOST_KEPT = 64  # some 0.3 MB each
Instructions = tuple[tuple[int, str], ...]  # of an entry, each with the line of the PTX that it is of; 0 for none


def name_of(ptx: str, reading: str, version: str, tools: Sequence[Path]) -> str:
    """The name under which what `tools` make of PTX, and a `reading` of that, are kept; `version` is the compiler's.
    Its variables are options as well."""
    found = [(str(tool.resolve()), stat.st_size, stat.st_mtime_ns) for tool in tools for stat in (tool.stat(),)]
    options = [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    return hashlib.sha256(json.dumps([ptx, reading, version, found, options]).encode()).hexdigest()


def take(name: str) -> dict[str, Instructions] | None:
    """The instructions of each entry; None where nothing is kept, or it is damaged."""
    with contextlib.suppress(FmhaError, OSError, ValueError, TypeError, AttributeError):
        path = account.folder(FOLDER) / name
        if (text := account.take(path)) is not None:
            os.utime(path)  # the latest are those that were used last
            return {entry: tuple((line, said) for line, said in each) for entry, each in json.loads(text).items()}
    return None


def keep(name: str, found: Mapping[str, Instructions]) -> None:
    """Keeps them, and of all the last that were used. That it cannot is no failure."""
    text = json.dumps(found, separators=(",", ":")).encode()
    with contextlib.suppress(FmhaError, OSError):
        account.keep(account.folder(FOLDER) / name, text, MOST_KEPT)
