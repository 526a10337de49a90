"""The process that is behind the wall, as the worker has it: started, spoken to, and what its end says."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fmha.harness.contract.device import DeviceError, DeviceLostError, IllegalError
from fmha.harness.isolate import Grant, enclose
from fmha.harness.worker.devices.executor_answers import ExecutorAnswerError, text
from fmha.harness.worker.devices.executor_frames import MOST_WORDS, Channel, EndedError, ExecutorFrameError
from fmha.harness.worker.processes.groups import GRACE_SECONDS, describe_exit, memory_kills
from fmha.harness.worker.processes.heard import Heard


class FailedThereError(Exception):
    """The device's code raised what it does not say of itself; the message has the exception's type and words."""


class Behind:
    """A process that answers requests. It is the worker's to end: nothing it does or says reaches further than one
    of DeviceError, IllegalError, DeviceLostError and FailedThereError."""

    def __init__(self, command: Sequence[str], grant: Grant) -> None:
        """Starts it and does not wait. It stays in the worker's group: whoever ends that, ends it."""
        argv, environment = enclose(command, grant, cwd=Path("/"), environment=os.environ)
        self._memory_kills = memory_kills()
        self._process = process = subprocess.Popen(
            argv, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._channel = Channel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        self._heard = Heard(process.stderr)
        self.pid = process.pid
        self._ready = False
        self._lost = ""

    def ask(
        self, request: Mapping[str, Any], payload: NDArray[Any] | bytes = b"", nbytes: int = 0, most: int = MOST_WORDS
    ) -> tuple[Any, NDArray[Any]]:
        """What is done, in a line of at most `most` bytes, and the raw bytes, which have to be `nbytes`."""
        self._wait_until_ready()
        try:
            self._channel.send(request, payload)
            answer = self._channel.receive(most)
            came = answer.get("bytes", 0)
            if "done" in answer:
                if type(came) is not int or came != nbytes:
                    raise ExecutorFrameError(f"{came!r:.40} bytes where {nbytes} were asked for")
                return answer["done"], self._channel.take(nbytes)
            if came or len(answer) != 1:
                raise ExecutorFrameError("neither what is done nor why not")
            ((how, words),) = answer.items()
            words = text(words, how, most)
        except EndedError:
            raise self._ended() from None
        except (ExecutorFrameError, ExecutorAnswerError) as error:
            raise self.distrusted(error) from error
        if how == "illegal":
            raise IllegalError(words)
        if how == "refused":
            raise DeviceError(words)
        if how == "failed":
            raise FailedThereError(words)
        raise self._given_up(words) if how == "lost" else self.distrusted("neither what is done nor why not")

    def post(self, request: Mapping[str, Any], payload: NDArray[Any] | bytes = b"") -> None:
        """A request that is not answered."""
        self._wait_until_ready()
        try:
            self._channel.send(request, payload)
        except EndedError:
            raise self._ended() from None

    def begin(self) -> None:
        """What it said until now is of what is over: its last words are those from here on. Until it has started they
        are why it does not."""
        if self._ready:
            self._heard.forget()

    def distrusted(self, why: object) -> DeviceLostError:
        """Ends the process, which said what it may not say."""
        return self._given_up(f"the executor gave no answer but {why}")

    def close(self) -> None:
        """Ends it at once: it keeps nothing."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._channel.close()

    def _wait_until_ready(self) -> None:
        if self._ready and self._lost:
            raise DeviceLostError(self._lost)
        if self._ready:
            return
        try:
            if not self._lost and self._channel.receive(MOST_WORDS) != {"done": "ready"}:
                self.distrusted("something else than that it is ready")
        except EndedError:
            self._ended()
        except ExecutorFrameError as error:
            self.distrusted(error)
        if self._lost:
            raise DeviceError(f"the executor does not start: {self._lost}")
        self._ready = True

    def _given_up(self, why: str) -> DeviceLostError:
        self._lost = why
        self._process.kill()
        return DeviceLostError(why)

    def _ended(self) -> DeviceLostError:
        """It closed a pipe: why, as supervise.py says it of a worker."""
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return self._given_up("executor closed its output and did not end")
        number = -code if code < 0 else max(0, code - 128)  # a wrapper says it as a shell does
        how = describe_exit(-number or code)
        what = f"executor killed by {how}" if number else f"executor ended early with {how}"
        if number == signal.SIGKILL and memory_kills() > self._memory_kills:
            what += ": the memory that it may take was used up"
        said = self._heard.last_words()
        return self._given_up(f"{what}; it last said: {said}" if said else what)
