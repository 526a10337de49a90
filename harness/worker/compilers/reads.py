"""Runs a module and writes down what its process has read: `python -m fmha.harness.worker.compilers.reads LIST MODULE`.

What follows are the module's arguments. LIST is a file of JSON: `read`, the files that were opened, loaded, started or
asked about, or that were not there when they were to be; `listed`, the folders of which somebody asked what is in them;
both with what told them from others when they were first asked for; `modules`, the file of each module by its name;
`path`, where modules are looked for. A process that is started, such as an assembler, is named, but what it reads is
not.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import stat
import sys
from collections.abc import Callable
from importlib.util import source_from_cache
from pathlib import Path
from types import FrameType
from typing import Any

# Who asks whether a file is there chooses by it: no audit event tells of that.
_ASKING = ("stat", "lstat", "access", "readlink")


def _of_an_import(frame: FrameType) -> bool:
    """Whether the import system asks what is in a folder. Which module it takes is written down by name; what else lies
    beside decides nothing."""
    return str(frame.f_globals.get("__name__", "")).startswith(("importlib", "_frozen_importlib"))


Facts = list[Any] | None  # of JSON


def facts_of(path: str, asks: Callable[[str], os.stat_result] = os.lstat) -> Facts:
    """What tells a file from another one at its path, and from itself after a change; of a link, where it leads and the
    same of what is there. Of a folder that it is one: where the sandbox makes one of its own, it has another number.
    None for what is not there."""
    try:
        found = asks(path)
        if stat.S_ISLNK(found.st_mode):
            return [_READLINK(path), facts_of(path, _STAT)]
    except (OSError, ValueError):
        return None
    return [] if stat.S_ISDIR(found.st_mode) else _told_apart(found)


def facts_of_listed(path: str) -> Facts:
    """The same of a folder and all that its names are."""
    try:
        return _told_apart(_STAT(path))
    except (OSError, ValueError):
        return None


def _told_apart(found: os.stat_result) -> list[Any]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


_STAT, _READLINK = os.stat, os.readlink  # whom `Reading` replaces


class Reading:
    """What this process has read since `begin`."""

    def __init__(self) -> None:
        self._read: dict[str, Facts] = {}  # when it was first asked for
        self._listed: dict[str, Facts] = {}

    def begin(self) -> None:
        """Listens from now on, for as long as the process lives."""

        def heard(event: str, facts: tuple[Any, ...]) -> None:
            if event in ("open", "ctypes.dlopen", "subprocess.Popen"):
                _note(facts[0], self._read, facts_of)
            elif event in ("os.listdir", "os.scandir") and not _of_an_import(sys._getframe(1)):
                _note("." if facts[0] is None else facts[0], self._listed, facts_of_listed)

        for name in _ASKING:
            asks = getattr(os, name)
            ask = self._told(asks)
            for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
                if asks in able:  # shutil and others look there before they ask
                    able.add(ask)
            setattr(os, name, ask)
        sys.addaudithook(heard)

    def said(self) -> dict[str, Any]:
        """As plain data: `read`, `listed`, `modules` and `path`."""
        files = ((name, getattr(found, "__file__", None)) for name, found in list(sys.modules.items()))
        modules = {name: os.path.abspath(file) for name, file in files if isinstance(file, str)}
        path = [os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)]
        return {"read": dict(self._read), "listed": dict(self._listed), "modules": modules, "path": path}

    def _told(self, asks: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(asks)
        def ask(path: Any, *arguments: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None:
                _note(path, self._read, facts_of)
            return asks(path, *arguments, **options)

        return ask


def _note(path: Any, where: dict[str, Facts], facts: Callable[[str], Facts]) -> None:
    if isinstance(path, (str, bytes, os.PathLike)):
        with contextlib.suppress(TypeError, ValueError):
            name = os.path.abspath(os.fsdecode(path))
            if name.endswith(".pyc"):  # of a source that has not changed, which is not opened then
                name = source_from_cache(name)
            if name not in where:
                where[name] = facts(name)


def main(target: str, module: str, *arguments: str) -> None:
    """Runs `module` as `python -m` does, and writes to the file `target` what was read."""
    reading = Reading()
    reading.begin()
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        found = reading.said()
        Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
