"""A runner that is started while its worktree is still being made.

What it will import is known by git's word: the modules of the judge's commit. Their bytecode is kept by content and was
proved (bytecode.py), so it is sent to the interpreter over a pipe, and loads beside the checkout. What comes with the
kernels, harness/kernel_side, is loaded once the worktree has been proved, and nothing is done before that but to ask
for the compiler. A runner that cannot be used is ended, and another one started as if there had been none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fmha.harness.supervisor.bytecode import KeptBytecode
from fmha.harness.worker.processes.groups import spawn, terminate_group

MODULE = "fmha.harness.stages.hosted"
GO = b"go\n"
_PIPE_BYTES = 1 << 20  # else who writes and who reads wait for each other every 64 KiB
TAKE_SECONDS = 30.0  # for an interpreter to start and take its modules
# What a runner loads that needs nothing of the worktree; what a judge does not have is passed over.
_FIRST = (
    "fmha.harness.worker.compilers.toolchain",
    "fmha.harness.worker.processes.ahead",
    "fmha.harness.config.plain",
    "fmha.harness.config.filters",
    "fmha.harness.contract.codec",
    "fmha.harness.judge.identity",
    "fmha.harness.judge.gate",
    "fmha.harness.hosts",
    "fmha.harness.hosts.this_machine",
    "fmha.harness.stages.outcome",
    "fmha.harness.stages.preflight",
    "fmha.harness.worker.pool.supervise",
    "fmha.harness.worker.compilers.cache",
    "fmha.harness.worker.compilers.build_inputs",
    "fmha.harness.worker.compilers.build_steps",
)
_ASKS = _FIRST[0]  # which begins to ask for the compiler: that of the host, and nothing of the commit's
_ROOMS = tuple(
    f"harness/{room}/"
    for room in (
        *("archive", "config", "contract", "hosts", "isolate"),
        *("judge", "kernel_side", "stages", "supervisor", "worker"),
    )
)
_WORKERS = tuple(f"harness/{room}/" for room in ("contract", "isolate", "judge", "kernel_side", "worker"))
# Reads its standard input without a buffer: what comes after GO is the runner's.
_BOOT = """
import os, sys
def exactly(size):
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1 << 20))
        if not piece:
            os._exit(1)
        data += piece
    return bytes(data)
import json
import _imp, gc, importlib, importlib.util, importlib.machinery, marshal
gc.disable()
# Of the standard library, while it is looked up what there is of ours.
import concurrent.futures.thread, ctypes, dataclasses, hashlib, pathlib, platform, runpy, secrets
import selectors, shutil, signal, subprocess, tempfile, threading, typing
head = json.loads(exactly(int(exactly(12))))
modules, waiting = {}, [True]
for name, path, package, size in head["modules"]:
    modules[name] = (path, package, exactly(size))
def wait():
    if waiting:
        waiting.clear()
        if exactly(3) != b"go\\n":
            os._exit(1)
        os.chdir(head["tree"])
        sys.path_importer_cache.clear()
class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        if fullname.startswith("fmha.harness.kernel_side"):
            wait()
        code = marshal.loads(memoryview(modules[fullname][2])[16:])
        _imp._fix_co_filename(code, self.path)
        return code
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in modules:
            return None
        place, package, _ = modules[name]
        where = [os.path.dirname(place)] if package else None
        return importlib.util.spec_from_file_location(
            name, place, loader=Loader(name, place), submodule_search_locations=where)
sys.meta_path.insert(0, Finder)
for name in (*head["first"], "fmha.harness.stages.runner"):
    if name in modules:
        try:
            module = importlib.import_module(name)
            if name == head["asks"]:
                module.foresee()
        except Exception:
            pass
wait()
gc.enable()
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Preloaded:
    """A runner that waits for its worktree `tree`, begun in a thread; `modules` is where its package will be found.
    `command` is what would start one, with that interpreter and the environment given."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        tree: Path,
        modules: Path,
        log: Path,
        known: Callable[[], KeptBytecode | None],
    ) -> None:
        self._command, self._environment = list(command), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._fed = False  # it has been sent its modules
        self._closed = threading.Event()
        self._beginning = threading.Thread(target=self._begin, args=(tree, modules, log, known), daemon=True)
        self._beginning.start()

    def go(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """The worktree has been proved, so that the runner may use it; None where it is not what that would start, or
        has ended, or has not taken its modules yet."""
        self._beginning.join(TAKE_SECONDS)
        process = self._process
        if (
            process is None
            or not self._fed
            or self._beginning.is_alive()
            or (self._command, self._environment) != (list(command), dict(environment))
        ):
            return None
        assert process.stdin is not None
        try:
            process.stdin.write(GO)
            process.stdin.flush()
        except OSError:
            return None
        self._process = None
        return process

    def close(self) -> None:
        """Ends it, unless it went."""
        self._closed.set()
        if self._process is not None:
            terminate_group(self._process)  # which ends the writing to it as well
        self._beginning.join()
        if self._process is None:
            return
        terminate_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _begin(self, tree: Path, found: Path, log: Path, known: Callable[[], KeptBytecode | None]) -> None:
        at = self._command.index(MODULE) - 1
        with contextlib.suppress(OSError), log.open("ab") as file:
            text = f"# {MODULE}{_BOOT}"  # a list of processes shows how it begins
            self._process = process = spawn(
                [*self._command[:at], "-c", text, *self._command[at + 1 :]], cwd=Path("/"), env=self._environment,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip
            kept = known()  # while the interpreter starts
            if kept is None or self._closed.is_set():
                return
            modules = [[name, f"{found}/{path}", package, len(data)] for name, path, package, data in kept.modules()]
            head = json.dumps({"modules": modules, "first": _FIRST, "asks": _ASKS, "tree": str(tree)}).encode()
            assert process.stdin is not None
            with contextlib.suppress(OSError):  # an account has only so many large pipes
                fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            process.stdin.write(b"%12d" % len(head) + head + b"".join(data for _, _, _, data in kept.modules()))
            process.stdin.flush()
            self._fed = True


def wanted(path: str) -> bool:
    """Whether a runner may load the module: most of fmha it does not."""
    return path in ("fmha/__init__.py", "harness/__init__.py") or path.startswith(_ROOMS) or path.count("/") == 1


def wanted_by_workers(path: str, device: str) -> bool:
    """Whether a worker on such a device, or what it starts, may load the module."""
    if path.startswith("emulator/"):
        return device.startswith("emulator")
    return path.startswith(_WORKERS) or path.count("/") == 1
