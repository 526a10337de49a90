"""Runs a module and writes down what its process has read: `python -m fmha.harness.worker.compilers.reads LIST MODULE`.

What follows are the module's arguments. LIST is a file of JSON: `read`, the files that were opened, loaded, started or
asked about, or that were not there when they were to be; `listed`, the folders of which somebody asked what is in them;
`modules`, the file of each module by its name; `path`, where modules are looked for. A process that is started, such as
an assembler, is named, but what it reads is not.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

# Who asks whether a file is there chooses by it: no audit event tells of that.
_ASKING = ("stat", "lstat", "access", "readlink")


def _of_an_import(frame: FrameType) -> bool:
    """Whether the import system asks what is in a folder. Which module it takes is written down by name; what else lies
    beside decides nothing."""
    return str(frame.f_globals.get("__name__", "")).startswith(("importlib", "_frozen_importlib"))


def main(target: str, module: str, *arguments: str) -> None:
    """Runs `module` as `python -m` does, and writes to the file `target` what was read."""
    read: set[str] = set()
    listed: set[str] = set()

    def note(path: Any, where: set[str]) -> None:
        if isinstance(path, (str, bytes, os.PathLike)):
            with contextlib.suppress(TypeError, ValueError):
                where.add(os.path.abspath(os.fsdecode(path)))

    def heard(event: str, facts: tuple[Any, ...]) -> None:
        if event in ("open", "ctypes.dlopen", "subprocess.Popen"):
            note(facts[0], read)
        elif event in ("os.listdir", "os.scandir") and not _of_an_import(sys._getframe(1)):
            note("." if facts[0] is None else facts[0], listed)

    def told(asks: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(asks)
        def ask(path: Any, *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                note(path, read)
            return asks(path, *arguments, **options)

        return ask

    for name in _ASKING:
        asks = getattr(os, name)
        ask = told(asks)
        for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
            if asks in able:  # shutil and others look there before they ask
                able.add(ask)
        setattr(os, name, ask)
    sys.addaudithook(heard)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        files = ((name, getattr(found, "__file__", None)) for name, found in list(sys.modules.items()))
        modules = {name: os.path.abspath(file) for name, file in files if isinstance(file, str)}
        path = [os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)]
        found = {"read": sorted(read), "listed": sorted(listed), "modules": modules, "path": path}
        Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
