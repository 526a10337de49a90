"""The adapter as Python imports it: in a process of its own (adapter_end.py), and where a compiler is called."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Final

from fmha.harness.errors import UserError
from fmha.harness.worker.subjects.callable_kernel import CallableKernel
from fmha.harness.worker.subjects.kernel import Kernel
from fmha.harness.worker.subjects.repository_modules import module_at, on_path

# What either sandbox says to who writes elsewhere; Landlock of a file that is moved, that it is on another disk.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)


def load_kernel(root: Path, where: str) -> Kernel:
    """The kernel `FILE.py:NAME` below `root`. UserError, with the line where there is one, when there is none."""
    file, colon, name = where.rpartition(":")
    path = root / file
    if not colon or not path.is_file():
        raise UserError(f"{where}: no such file", where=str(root), next_step="name it FILE.py:CLASS")
    on_path(root)  # for what lies beside the adapter
    try:
        made = getattr(module_at(path), name)()
        made.root = made.home = root
    except Exception as error:
        raise UserError(f"{name} cannot be made: {told(error, path)}", where=file) from error
    if not isinstance(made, Kernel) or not all(hasattr(made, needed) for needed in ("source", "fields")):
        raise UserError(f"{name} is no fmha.Kernel with a source and fields", where=file)
    if not isinstance(made, CallableKernel) and not (root / made.source).is_file():
        raise UserError(f"{name}.source: there is no {made.source}", where=file)
    return made


def told(error: BaseException, path: Path) -> str:
    """What went wrong in the user's file, and in which line of it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else line
        trace = trace.tb_next
    refused = isinstance(error, OSError) and error.errno in _REFUSED
    where = f"; in its sandbox it writes below {tempfile.gettempdir()} (TMPDIR) alone, and nothing of the repository"
    return f"{type(error).__name__}: {error}{f' ({path.name}:{line})' if line else ''}{where if refused else ''}"
