"""`fmha` in a process of its own, forked from one that has loaded it.

A start of Python that loads our command line takes 0.4 s of processor time, a fork of one that has loaded it 0.1 or
less, and the tests make many hundred. The fork has arguments, environment, folder, session and streams of its own, and
ends as an interpreter ends. Tests of what a start alone shows start one by `python -m fmha`: what it loads, what it
reads from its environment, terminals, and what signals do while it lasts.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

SECONDS = 600.0  # longer than any command takes; a test's own limit comes first
# What commands load when they need it, and many tests' commands do.
LATER = (
    "fmha.harness.hosts.emulator",
    "fmha.harness.see.subject",
    "fmha.harness.stages.archive",
    "fmha.harness.worker.compilers.build",
    "numpy.random",
)
_MOST = 1 << 17  # bytes of a request, most of them environment
_READ_AT_A_START = re.compile("PYTHON(?!PATH|SAFEPATH)|LANG|LC_")
_idle: list[_Loaded] = []
loaded: set[int] = set()  # pids of the processes that have loaded it; they end with this one


def fmha(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `python -P -m fmha` with nothing to read; `env` is the whole environment.

    :raises subprocess.TimeoutExpired: The process and its group have been killed.
    """
    env = os.environ if env is None else env
    for name in filter(_READ_AT_A_START.match, {*env, *os.environ}):
        assert env.get(name) == os.environ.get(name), f"{name} is read when an interpreter starts: start one"
    one = _idle.pop() if _idle else _Loaded()  # threads have one each: it answers for one `fmha` at a time
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        request = {"command": ["fmha", *map(str, arguments)], "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        code = one.run(request, (out, errors), timeout)
        _idle.append(one)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(request["command"], code, out.read(), errors.read())


class _Loaded:
    """A process that has loaded `fmha`."""

    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        loaded.add(self.process.pid)
        atexit.register(self.end)

    def end(self) -> None:
        self.requests.close()
        self.process.wait()

    def run(self, request: dict[str, Any], streams: tuple[IO[str], ...], timeout: float) -> int:
        """The exit code, or the negative number of the signal that has ended it."""
        socket.send_fds(self.requests, [json.dumps(request).encode()], [stream.fileno() for stream in streams])
        pid = int(self.requests.recv(_MOST))
        in_time, _, _ = select.select([self.requests], [], [], timeout)
        if not in_time:
            os.killpg(pid, signal.SIGKILL)
        code = int(self.requests.recv(_MOST))
        if not in_time:
            raise subprocess.TimeoutExpired(request["command"], timeout)
        return code


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Forks for each request. The fork says its pid and returns the request, and its exit code is said after it."""
    while True:
        text, streams, _, _ = socket.recv_fds(requests, _MOST, 2)
        if not text:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            requests.send(str(os.getpid()).encode())
            requests.close()
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
                os.close(stream)
            request: dict[str, Any] = json.loads(text)
            return request
        for stream in streams:
            os.close(stream)
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _main() -> None:
    from fmha.harness import cli, config, judge

    names = [f"fmha.harness.cli.{module.name}" for module in pkgutil.iter_modules(cli.__path__)]
    for name in (*names, *LATER):
        importlib.import_module(name)
    config.load(Path(__file__).resolve().parents[1])  # models of settings are built when first needed
    judge.identity("")  # and the judge's sources are read
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["command"]
    sys.path[:0] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    cli.main()


if __name__ == "__main__":
    _main()
