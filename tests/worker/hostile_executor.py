"""An executor that an artefact has taken over: it computes what it should, and at one request does something else.

`python -P hostile_executor.py FAULT [WORD]`; the device is that of tests.worker.numpy_device.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fmha.harness.worker.devices.executor import Answer, Payload, _Devices, serve
from fmha.harness.worker.devices.executor_frames import Channel
from tests.worker.numpy_device import NumpyDevice

FINDING = {"rule": "race", "severity": "error", "message": "two writers", "where": {}}


class TakenOver(_Devices):
    """Does as asked but for one thing, at the request of that name."""

    def __init__(self, outgoing: int) -> None:
        super().__init__(NumpyDevice)
        self._outgoing = outgoing
        self._at, self._fault = FAULTS[sys.argv[1]]

    def do(self, request: Mapping[str, Any], payload: Payload) -> Answer:
        done, data = super().do(request, payload)
        if request["do"] != self._at:
            return done, data
        changed = self._fault(self._outgoing, done)
        return changed if isinstance(changed, tuple) else (changed, data)


def raw(text: bytes) -> Callable[[int, Any], NoReturn]:
    """Writes this in the place of the answer, and hangs."""

    def fault(outgoing: int, done: Any) -> NoReturn:
        left = memoryview(text)
        while left:
            left = left[os.write(outgoing, left) :]
        return hang(outgoing, done)

    return fault


def line(answer: Any) -> Callable[[int, Any], NoReturn]:
    return raw(json.dumps(answer).encode() + b"\n")


def stats(**values: Any) -> Callable[[int, Any], Any]:
    return lambda _, done: done | {"stats": values}


def finding(**changes: Any) -> Callable[[int, Any], Any]:
    return lambda _, done: done | {"findings": [FINDING | changes]}


def hang(outgoing: int, done: Any) -> NoReturn:
    while True:
        time.sleep(60)


def kill(outgoing: int, done: Any) -> NoReturn:
    print("about to be killed", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return hang(outgoing, done)


def leave(outgoing: int, done: Any) -> NoReturn:
    print("leaving early", file=sys.stderr, flush=True)
    os._exit(3)


def close(outgoing: int, done: Any) -> NoReturn:
    os.close(outgoing)
    os.close(1)  # standard error by now
    return hang(outgoing, done)


def endless(outgoing: int, done: Any) -> NoReturn:
    while True:
        os.write(outgoing, bytes(1 << 16).replace(b"\0", b"x"))


def flood(outgoing: int, done: Any) -> Any:
    for number in itertools.count():
        os.write(2, b"%d noise\n" % number * 4096)
        if number > 1000:
            return done


def answer_twice(outgoing: int, done: Any) -> Any:
    """The second is what the next request is told."""
    os.write(outgoing, b'{"done":{"findings":[],"stats":{}}}\n')
    return done


def read_secret(outgoing: int, done: Any) -> Any:
    """The words of the first line of a file, or of why it cannot be read, as a hazard."""
    try:
        said = Path(sys.argv[2]).read_text()
    except OSError as error:
        said = type(error).__name__
    return done | {"findings": [FINDING | {"message": said}]}


def write_secret(outgoing: int, done: Any) -> Any:
    try:
        Path(sys.argv[2]).write_text("altered")
        said = "written"
    except OSError as error:
        said = type(error).__name__
    return done | {"findings": [FINDING | {"message": said}]}


FAULTS: dict[str, tuple[str, Callable[[int, Any], Any]]] = {
    "none": ("", hang),
    "killed": ("launch", kill),
    "killed-silently": ("launch", lambda *_: os.kill(os.getpid(), signal.SIGKILL)),
    "segfault": ("launch", lambda *_: ctypes.string_at(0)),
    "leaves": ("launch", leave),
    "closes": ("download", close),
    "hangs": ("launch", hang),
    "garbage": ("launch", raw(b"\x00\xff garbage\n")),
    "endless-line": ("launch", endless),
    "nested": ("launch", raw(b'{"done":' + b"[" * 100_000 + b"\n")),
    "many-values": ("launch", raw(b'{"done":[' + b"0," * (3 << 19) + b"0]}\n")),
    "list": ("launch", line([1])),
    "nothing": ("launch", line({})),
    "both": ("launch", line({"refused": "a", "lost": "b"})),
    "unknown-word": ("launch", line({"passed": "all of it"})),
    "words-no-text": ("launch", line({"refused": 1})),
    "report-with-bytes": ("launch", lambda _, done: (done, b"more")),
    "more-output": ("download", lambda _, done: (done, bytes(1 << 20))),
    "less-output": ("download", lambda _, done: (done, b"12")),
    "output-half": ("download", raw(b'{"done":null,"bytes":256}\nhalf')),
    "output-true": ("download", raw(b'{"done":null,"bytes":true}\n')),
    "output-huge": ("download", raw(b'{"done":null,"bytes":1000000000000000}\n')),
    "nan-stats": ("launch", raw(b'{"done":{"findings":[],"stats":{"mma":NaN}}}\n')),
    "infinite-stats": ("launch", raw(b'{"done":{"findings":[],"stats":{"mma":1e999}}}\n')),
    "text-stats": ("launch", stats(mma="12")),
    "true-stats": ("launch", stats(mma=True)),
    "huge-stats": ("launch", stats(mma=10**30)),
    "untimed-stats": ("launch", stats(untimed=1)),
    "coverage-stats": ("launch", stats(coverage={"ptx": {}, "source": {"a.cu": ["1-2", "1"]}})),
    "many-stats": ("launch", lambda _, done: done | {"stats": {f"n{i}": i for i in range(1000)}}),
    "no-findings": ("launch", lambda _, done: {"stats": {}}),
    "finding-severity": ("launch", finding(severity="fine")),
    "finding-field": ("launch", finding(waived="yes")),
    "finding-where": ("launch", finding(where={"judge": "pass"})),
    "finding-place": ("launch", finding(where={"source": ["a.cu:3"]})),
    "finding-line": ("launch", finding(where={"ptx_line": -1})),
    "finding-calls": ("launch", finding(where={"calls": [{}]})),
    "finding-surrogate": ("launch", finding(message="\ud800")),
    "finding-long": ("launch", finding(message="x" * (1 << 15))),
    "address-negative": ("alloc", lambda *_: -1),
    "address-text": ("alloc", lambda *_: "0x1000"),
    "address-huge": ("alloc", lambda *_: 1 << 64),
    "map-short": ("map", lambda *_: (None, bytes(64))),
    "flood": ("launch", flood),
    "twice": ("launch", answer_twice),
    "reads": ("launch", read_secret),
    "writes": ("launch", write_secret),
}


def main() -> None:
    faulthandler.enable()
    channel = Channel(os.dup(0), outgoing := os.dup(1))
    os.dup2(2, 1)
    channel.send({"done": "ready"})
    serve(channel, TakenOver(outgoing))


if __name__ == "__main__":
    main()
