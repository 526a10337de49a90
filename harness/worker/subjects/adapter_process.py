"""An adapter's process as the judge holds it: started in the sandbox, asked one thing after the other, ended."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from fmha.harness.errors import UserError
from fmha.harness.isolate import Grant, enclose
from fmha.harness.text import one_line
from fmha.harness.worker.processes.groups import MARK, describe_exit
from fmha.harness.worker.subjects.adapter_frames import MOST_BYTES, READS, AdapterFrameError, Arrays, pieces, received
from fmha.harness.worker.subjects.peers import PeerRefusedError

MODULE: Final = "fmha.harness.worker.subjects.adapter_end"
NOTHING: Final[Arrays] = MappingProxyType({})
_CACHES: Final = ("TRITON_CACHE_DIR", "CUTE_DSL_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
_CHUNK: Final = 1 << 20
_WITH_ARRAYS: Final = ("inputs", "reference", "call")  # of the questions: their answers
LAST_WORDS_SECONDS: Final = 1.0  # for what one that has ended has printed; a child that got away may hold the pipe
MOST_SHOWN: Final = 1 << 20  # bytes of what it prints


class AdapterError(UserError):
    """An adapter failed, or its process gave no answer; `what` has its own words, and the line in its file."""


class KernelsError(AdapterError):
    """The same of a process that is the kernel's own: what is called, or compiled by other means than nvcc, or another
    commit's. What it says is said against the kernel."""


class _Pipes:
    """The two pipes of a process, read and written until a moment: who does not answer is not waited for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin.fileno(), process.stdout.fileno()
        for descriptor in (self._to, self._from):
            os.set_blocking(descriptor, False)
        self._kept = bytearray()
        self.until: float | None = None

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._to, view) :]
            except BlockingIOError:
                self._wait(self._to, select.POLLOUT)

    def line(self, most: int) -> bytes:
        begun = 0
        while (end := self._kept.find(b"\n", begun)) < 0 and len(self._kept) < most:
            begun = len(self._kept)
            data = self._read(_CHUNK)
            if not data:
                break
            self._kept += data
        size = end + 1 if end >= 0 else min(len(self._kept), most)
        found = bytes(self._kept[:size])
        del self._kept[:size]
        return found

    def into(self, view: memoryview) -> None:
        at = min(len(view), len(self._kept))
        view[:at] = self._kept[:at]
        del self._kept[:at]
        while at < len(view):
            try:
                count = os.readv(self._from, [view[at:]])
            except BlockingIOError:
                self._wait(self._from, select.POLLIN)
                continue
            if not count:
                raise AdapterFrameError("it ends within an array")
            at += count

    def _read(self, most: int) -> bytes:
        while True:
            try:
                return os.read(self._from, most)
            except BlockingIOError:
                self._wait(self._from, select.POLLIN)

    def _wait(self, descriptor: int, event: int) -> None:
        waiter = select.poll()
        waiter.register(descriptor, event)
        left = None if self.until is None else self.until - time.monotonic()
        if (left is not None and left <= 0) or not waiter.poll(None if left is None else 1000 * left):
            raise TimeoutError


class AdapterProcess:
    """A process that answers for one adapter. It has a folder of its own to write to, which goes with it.

    One that has ended, by itself or because the thread that started it has, is started again when it is next asked.
    """

    def __init__(
        self,
        root: Path,
        where: str,
        name: str,
        tree: Path,
        *,
        gpu: bool = False,
        kernels: bool = False,
        compiles: bool = False,
        reads: bool = False,
        limit_seconds: float | None = None,
    ) -> None:
        """Its sources are below `tree`. An answer takes `limit_seconds` at most, where there are any. One that is the
        kernel's own raises KernelsError. One that `compiles` has the variables that compilers have. One that `reads`
        can say what it has read."""
        self._failure = KernelsError if kernels else AdapterError
        self._root, self._where, self._name, self._tree = root, where, name, tree
        self._gpu, self._compiles, self._reads, self._limit = gpu, compiles, reads, limit_seconds
        self.scratch, self.started_ns = Path(), 0  # of the process: its folder, and the clock when it was started
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: _Pipes | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._begun = False
        self._itself: Any = None

    def start(self) -> None:
        """Without waiting for it."""
        with self._lock:
            self._started()

    def begin(self) -> Any:
        """What it says of its adapter."""
        with self._lock:
            self._begin()
            return self._itself

    def ask(self, what: str, message: Mapping[str, Any], arrays: Arrays = NOTHING) -> tuple[Any, Arrays]:
        """What it answers to `message`. AdapterError, and the process ended, when it does not."""
        with self._lock:
            self._begin()
            self._said({"ask": what, **message}, arrays, what)
            return self._answered(what)

    @property
    def runs(self) -> bool:
        """Whether it has been started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        with self._lock:
            self._ended()

    def _begin(self) -> None:
        self._started()
        if self._begun:
            return
        try:
            self._itself, _ = self._answered("begin")
        except Exception:
            self._ended()  # whoever asks again begins anew
            raise
        self._begun = True

    def _started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._ended()
        scratch = Path(tempfile.mkdtemp(prefix="fmha-adapter-"))
        trees = dict.fromkeys((self._root.resolve(), self._tree.resolve()))
        command = [sys.executable, "-P", "-m", MODULE, str(self._root), self._where, self._name]
        command += [READS] if self._reads else []
        given = self._variables() | {"PYTHONDONTWRITEBYTECODE": "1"}
        self.scratch, self.started_ns = scratch, time.time_ns()
        try:
            grant = Grant(read=tuple(trees), write=(scratch,), gpu=self._gpu)
            inside, environment = enclose(command, grant, cwd=self._root, environment=given)
            # A group of its own: an interrupt at the terminal is ours to hear. The session stays, so that whoever ends
            # ours ends it too.
            process = subprocess.Popen(
                inside,
                cwd=self._root,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        self._process, self._begun = process, False
        shown = threading.Thread(target=_show, args=(process.stderr,), daemon=True)
        shown.start()
        self._end = weakref.finalize(self, _end, process, scratch, shown)
        self._pipes = _Pipes(process)
        # What has a cache has it there: another's would be read, and may be anybody's.
        settings = {name: str(scratch) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        settings |= {name: str(scratch / name.lower()) for name in _CACHES}
        self._said({"ask": "begin", "environment": settings, "tree": str(self._tree)}, NOTHING, "begin")

    def _variables(self) -> dict[str, str]:
        if not self._compiles:
            return dict(os.environ)
        from fmha.harness.worker.compilers.enclosed import of_compilers  # the others, in each worker, compile nothing

        return of_compilers()

    def _said(self, message: Mapping[str, Any], arrays: Arrays, what: str) -> None:
        assert self._pipes is not None
        self._pipes.until = None if self._limit is None else time.monotonic() + self._limit
        try:
            for piece in pieces(message, arrays):
                self._pipes.write(piece)
        except TimeoutError as error:
            raise self._silent(what) from error
        except OSError as error:
            raise self._gone(what) from error

    def _answered(self, what: str) -> tuple[Any, Arrays]:
        assert self._pipes is not None
        try:
            found = received(self._pipes, MOST_BYTES if what in _WITH_ARRAYS else 0)
        except TimeoutError as error:
            raise self._silent(what) from error
        except AdapterFrameError as error:
            raise self.odd(what, error) from error
        if found is None:
            raise self._gone(what)
        answer, arrays = found
        return self._meaning(answer, what), arrays

    def _meaning(self, answer: dict[str, Any], what: str) -> Any:
        from fmha.harness.worker.subjects import adapter_answers

        try:
            if answer.keys() == {"done"}:
                return answer["done"]
            if answer.keys() == {"error"}:
                raise self._failure(adapter_answers.words(answer["error"]), where=self._file)
            if answer.keys() == {"refused"}:
                raise PeerRefusedError(adapter_answers.words(answer["refused"]))
            if answer.keys() == {"wrong"} and isinstance(answer["wrong"], list) and len(answer["wrong"]) == 3:
                said, where, next_step = map(adapter_answers.words, answer["wrong"])
                raise self._failure(said, where=where, next_step=next_step)
        except ValueError as error:
            raise self.odd(what, error) from error
        raise self.odd(what, "it neither has what was asked for nor says why")

    def odd(self, what: str, reason: object) -> AdapterError:
        """That the process has said what is no answer to a question, after which it is not asked again."""
        self._ended()
        return self._failure(f"{self._name}: its adapter's answer to {what!r} is none: {reason}", where=self._file)

    @property
    def _file(self) -> str:
        return self._where.rpartition(":")[0]

    def _silent(self, what: str) -> AdapterError:
        self._ended()
        return self._failure(
            f"{self._name}: its adapter has not answered {what!r} within {self._limit:g} s and was ended",
            where=self._file,
            next_step="a method of it waits, or takes longer than the limit of a build in matrix.yaml",
        )

    def _gone(self, what: str) -> AdapterError:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its pipes are closed: it is about to be reaped
        code = self._process.returncode
        self._ended()
        how = "" if code is None else f" ({describe_exit(code)})"
        return self._failure(
            f"{self._name}: its adapter's process ended{how} when asked for {what!r}", where=self._file
        )

    def _ended(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._pipes = self._end = None
        self._begun = False


def _show(printed: IO[bytes]) -> None:
    """What it prints, for people: a terminal and a CI system are shown text, and given no order. Each line is behind
    MARK, so that nobody takes it for ours."""
    left = MOST_SHOWN
    while line := printed.readline(_CHUNK):
        if left > 0:
            text = one_line(line[:left].decode(errors="replace").rstrip("\n"))
            print(f"{MARK}{text}", file=sys.stderr, flush=True)
        left -= len(line)


def _end(process: subprocess.Popen[bytes], scratch: Path, shown: threading.Thread) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shown.join(LAST_WORDS_SECONDS)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.close()
    shutil.rmtree(scratch, ignore_errors=True)
