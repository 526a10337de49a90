"""`fmha` in a process of its own, forked from one that has loaded it.

A start of Python that loads our command line takes 0.4 s of processor time, a fork of one that has loaded it 0.1 or
less, and the tests make many hundred. The fork has arguments, environment, folder, session and streams of its own, and
ends as an interpreter ends, but for taking apart what it has loaded. Tests of what a start alone shows start one by
`python -m fmha`: what it loads, what it reads from its environment, terminals, and signals that come before it has
loaded anything.
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
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

SECONDS = 600.0  # longer than any command takes; a test's own limit comes first
# What commands load when they need it, and many tests' commands do.
LATER = (
    "fmha.harness.hosts.emulator_host",
    "fmha.harness.see.launch_subject",
    "fmha.harness.stages.archive",
    "fmha.harness.worker.compilers.build_kernels",
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
    with Fork(*arguments, cwd=cwd, env=env) as fork:
        try:
            stdout, stderr = fork.communicate(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(fork.pid, signal.SIGKILL)
            fork.communicate()
            raise
        return subprocess.CompletedProcess(fork.args, fork.wait(), stdout, stderr)


class Fork:
    """A `fmha` that has been started, used as a `subprocess.Popen` of one with pipes and a session of its own is."""

    def __init__(self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        for name in filter(_READ_AT_A_START.match, {*env, *os.environ}):
            assert env.get(name) == os.environ.get(name), f"{name} is read when an interpreter starts: start one"
        self.args = ["fmha", *map(str, arguments)]
        self.returncode: int | None = None
        self._loaded = _idle.pop() if _idle else _Loaded()  # it answers for one fork at a time
        (out, theirs), (errors, their_errors) = os.pipe(), os.pipe()
        self.stdout, self.stderr = open(out), open(errors)  # noqa: SIM115
        request = {"command": self.args, "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        self.pid = self._loaded.fork(request, [theirs, their_errors])
        os.close(theirs)
        os.close(their_errors)
        self._said: dict[IO[str], str] = {}
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it says from here on, once it has ended and nobody else has its streams."""
        deadline = None if timeout is None else time.monotonic() + timeout
        left = lambda: None if deadline is None else max(0.0, deadline - time.monotonic())  # noqa: E731
        if not self._readers:
            for stream in (self.stdout, self.stderr):
                self._readers.append(threading.Thread(target=self._read, args=[stream], daemon=True))
                self._readers[-1].start()
        for reader in self._readers:
            reader.join(left())
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(left())
        return self._said[self.stdout], self._said[self.stderr]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            self._said[stream] = stream.read()

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._loaded.code(timeout)
            if self.returncode is not None:
                _idle.append(self._loaded)
        return self.returncode


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
        self.process.kill()  # it may wait for a fork that nobody has waited for
        self.process.wait()

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """The pid."""
        socket.send_fds(self.requests, [json.dumps(request).encode()], streams)
        return int(self.requests.recv(_MOST))

    def code(self, timeout: float | None) -> int | None:
        """The fork's exit code, or the negative number of the signal that has ended it; None where it still runs."""
        ended, _, _ = select.select([self.requests], [], [], timeout)
        return int(self.requests.recv(_MOST)) if ended else None


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
    from pydantic import BaseModel

    from fmha.harness import cli, config
    from fmha.harness.hosts import shipment
    from fmha.harness.judge import identity

    names = [f"fmha.harness.cli.{module.name}" for module in pkgutil.iter_modules(cli.__path__)]
    for name in (*names, *LATER):
        importlib.import_module(name)
    # What is made when it is first needed: pydantic's models, the judge's and the supervisor's sources.
    config.load(Path(__file__).resolve().parents[1])
    models = [BaseModel]
    for model in models:  # which grows meanwhile
        models += model.__subclasses__()
    for model in models[1:]:
        model.model_rebuild()
    identity.identity("")
    shipment.preamble("")
    gc.collect()
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["command"]
    sys.path[:0] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    try:
        cli.main()
    except SystemExit as stop:
        _end(stop)


def _end(stop: SystemExit) -> NoReturn:
    """What an interpreter does at its end, without destroying each object: to write to all that was loaded before the
    fork is to copy it, which takes 45 ms. What a command has left open is not flushed, and a test sees it missing."""
    assert isinstance(stop.code, int)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(stop.code)


if __name__ == "__main__":
    _main()
