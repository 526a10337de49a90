"""Devices that fail for real. A worker is pointed at one by `module:attribute`; a configuration's t picks the fault."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from fmha.harness.contract.device import DeviceError, DeviceLostError, LaunchConfig, LaunchReport
from fmha.harness.contract.protocol import FindingRecord
from fmha.harness.kernel_side.params import LAYOUT
from fmha.harness.worker.pool.supervise import MAXIMUM_LINE
from tests.worker.numpy_device import NumpyDevice

WORKS, HAZARD, KILLED, SEGFAULT, EXITS, RAISES, REFUSES, FULL = range(1, 9)
HANGS, CHATTERS, STOPPED, TRUNCATES, GARBAGE, ENDLESS_LINE, WRONG_NAME, PRINTS, CLOSES, ORPHANS = range(11, 21)
LOST, DEAF = 21, 22
T_OFFSET = next(offset for name, offset, _ in LAYOUT if name == "t")


class FaultyDevice(NumpyDevice):
    """Computes attention like its parent, and then does what t asks for."""

    def __init__(self, seed: int = 0, schedule: str = "realistic") -> None:
        super().__init__(seed, schedule)
        log(f"pid {os.getpid()}")

    def launch(self, module: object, entry: str, config: LaunchConfig, params: bytes) -> LaunchReport:
        fault = FAULTS.get(int.from_bytes(params[T_OFFSET : T_OFFSET + 4], "little"))
        if fault is not None:
            fault(self)
        return super().launch(module, entry, config, params)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report_hazard(device: FaultyDevice) -> None:
    device.findings = (FindingRecord("race", "error", "two writers", {"line": 7}),)


def kill(device: FaultyDevice) -> NoReturn:
    log("about to be killed")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def read_null(device: FaultyDevice) -> None:
    ctypes.string_at(0)


def leave(device: FaultyDevice) -> NoReturn:
    log("leaving early")
    os._exit(3)


def fail(device: FaultyDevice) -> NoReturn:
    raise RuntimeError("device went wrong")


def refuse(device: FaultyDevice) -> NoReturn:
    raise DeviceError("no room for that")


def take_the_device_down(device: FaultyDevice) -> NoReturn:
    raise DeviceLostError("entry: CUDA_ERROR_ILLEGAL_ADDRESS")


def run_out_of_disk(device: FaultyDevice) -> None:
    Path("/dev/full").write_text("x")


def hang(device: FaultyDevice) -> NoReturn:
    start_stubborn_child()
    log("hanging")
    while True:
        time.sleep(600)


def ignore_termination(device: FaultyDevice) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(device)


def chatter(device: FaultyDevice) -> NoReturn:
    while True:
        log("still at it")
        time.sleep(0.05)


def stop(device: FaultyDevice) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def truncate(device: FaultyDevice) -> NoReturn:
    write_events(b'{"event":"result","conf')
    os._exit(0)


def talk_nonsense(device: FaultyDevice) -> None:
    write_events(b"Segmentation fault (not really)\n")


def never_end_the_line(device: FaultyDevice) -> NoReturn:
    while True:
        write_events(b"x" * (MAXIMUM_LINE // 8))


def answer_for_another(device: FaultyDevice) -> None:
    write_events(b'{"event":"started","config":"hd64_t1_sk128"}\n')


def print_everywhere(device: FaultyDevice) -> None:
    print("a library's banner")
    os.write(1, b"{half a line")
    subprocess.run(["echo", "a child's banner"], check=True)


def close_the_stream(device: FaultyDevice) -> NoReturn:
    for descriptor in event_descriptors():
        os.close(descriptor)
    hang(device)


def leave_an_orphan(device: FaultyDevice) -> NoReturn:
    """Dies, while a child of its own session keeps the event stream open."""
    for descriptor in event_descriptors():
        os.set_inheritable(descriptor, True)
    start_stubborn_child()
    kill(device)


FAULTS = {
    HAZARD: report_hazard,
    KILLED: kill,
    SEGFAULT: read_null,
    EXITS: leave,
    RAISES: fail,
    REFUSES: refuse,
    FULL: run_out_of_disk,
    HANGS: hang,
    CHATTERS: chatter,
    STOPPED: stop,
    TRUNCATES: truncate,
    GARBAGE: talk_nonsense,
    ENDLESS_LINE: never_end_the_line,
    WRONG_NAME: answer_for_another,
    PRINTS: print_everywhere,
    CLOSES: close_the_stream,
    ORPHANS: leave_an_orphan,
    LOST: take_the_device_down,
    DEAF: ignore_termination,
}


def start_stubborn_child() -> None:
    child = subprocess.Popen(["bash", "-c", "trap '' TERM; exec sleep 600"], close_fds=False)
    log(f"pid {child.pid}")


def event_descriptors() -> list[int]:
    """Descriptors above standard error that are pipes to write into: the stream of events."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return [number for number in numbers if number > 2 and is_pipe(number) and is_written(number)]


def is_written(number: int) -> bool:
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def is_pipe(number: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False


def write_events(data: bytes) -> None:
    for descriptor in event_descriptors():
        os.write(descriptor, data)
