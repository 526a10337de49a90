"""Runs a module and writes down what its process has read: `python -m fmha.harness.worker.compilers.reads LIST MODULE`.

What follows are the module's arguments. LIST is a file of JSON: `read`, the files that were opened, loaded or started,
or that were not there when they were to be; `modules`, the file of each module by its name; `path`, where modules are
looked for. A process that is started, such as an assembler, is named, but what it reads is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main(target: str, module: str, *arguments: str) -> None:
    """Runs `module` as `python -m` does, and writes to the file `target` what was read."""
    read: set[str] = set()

    def heard(event: str, facts: tuple[Any, ...]) -> None:
        if event in ("open", "ctypes.dlopen", "subprocess.Popen") and isinstance(facts[0], (str, bytes, os.PathLike)):
            with contextlib.suppress(TypeError, ValueError):
                read.add(os.path.abspath(os.fsdecode(facts[0])))

    sys.addaudithook(heard)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        files = ((name, getattr(found, "__file__", None)) for name, found in list(sys.modules.items()))
        modules = {name: os.path.abspath(file) for name, file in files if isinstance(file, str)}
        path = [os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)]
        found = {"read": sorted(read), "modules": modules, "path": path}
        Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
