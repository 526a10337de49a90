"""The executor: `python -m fmha.harness.worker.devices.executor DEVICE` has a device, and does what the worker asks.

It is the process that parses and runs what comes with a commit, behind a wall (fmha.harness.isolate), and it runs
nothing else of it. It knows neither what the outputs should be nor what passes: the worker keeps both.

A request names what is to be `do`ne and the number of the device it is for. Those of POSTED are not answered; where
one fails, the next that is answered says so. An answer has what is `done`, or one of `illegal`, `refused`, `lost`
and `failed` with words: IllegalError, any other DeviceError, DeviceLostError and any other exception.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.codec import encode
from fmha.harness.contract.device import (
    Device,
    DeviceError,
    DeviceLostError,
    IllegalError,
    LaunchConfig,
    LaunchReport,
    Params,
    Rated,
    Roomy,
    Stopwatch,
    TensorMapSpec,
)
from fmha.harness.worker.devices.executor_frames import Channel, EndedError
from fmha.harness.worker.devices.factory import DeviceFactory, device_factory
from fmha.harness.worker.processes.groups import die_with_parent

EXIT_NO_DEVICE = 2
MOST_REQUEST: Final = 16 << 20  # of a batch of launches
POSTED: Final = frozenset({"upload", "back", "close"})

Payload = NDArray[np.uint8]
Answer = tuple[Any, Payload | bytes]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when the worker wants no more, 2 when there is no such device."""
    parser = argparse.ArgumentParser(prog="python -m fmha.harness.worker.devices.executor")
    parser.add_argument("device", metavar="DEVICE")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    die_with_parent(os.getppid())  # in a launch nobody notices that the worker's end of the pipe is closed
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        factory = device_factory(options.device)
    except LookupError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_DEVICE
    try:
        channel.send({"done": "ready"})
        serve(channel, _Devices(factory))
    except EndedError:
        return 0
    return 0


def serve(channel: Channel, devices: _Devices) -> None:
    """Answers requests until the worker sends no more, which is an EndedError."""
    owed: dict[int, dict[str, str]] = {}  # by device, the first fault of what was posted
    while True:
        request = channel.receive(MOST_REQUEST)
        payload = channel.take(request.get("bytes", 0))
        number, posted = request["on"], request["do"] in POSTED
        if number in owed and not posted:
            channel.send(owed.pop(number))
            continue
        try:
            done, data = devices.do(request, payload)
        except Exception as error:
            if posted:
                owed.setdefault(number, _fault(error))
            else:
                channel.send(_fault(error))
        else:
            if not posted:
                channel.send({"done": done}, data)
        if request["do"] == "close":  # nobody is left to hear of it
            owed.pop(number, None)


def _fault(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    if isinstance(error, DeviceLostError):
        return {"lost": str(error)}
    if isinstance(error, IllegalError):
        return {"illegal": str(error)}
    if isinstance(error, (DeviceError, OSError)):
        return {"refused": str(error)}
    return {"failed": f"{type(error).__name__}: {error}"}


class _Devices:
    """Those that are open, by the worker's numbers, and what each is asked to do."""

    def __init__(self, factory: DeviceFactory) -> None:
        self._factory = factory
        self._open: dict[int, Device] = {}
        self._batches: dict[int, list[Callable[[], float]]] = {}

    def do(self, request: Mapping[str, Any], payload: Payload) -> Answer:
        what, number = request["do"], request["on"]
        if what == "open":
            device = self._open[number] = self._factory(request["seed"], request["schedule"])
            self._batches[number] = []
            facts = {name: getattr(device, name) for name in ("name", "artifact", "multiprocessors")}
            return facts | {"clocked": isinstance(device, Stopwatch), "rated": isinstance(device, Rated)}, b""
        if what == "close":
            self._batches.pop(number, None)
            if number in self._open:
                self._open.pop(number).close()
            return None, b""
        made: Answer = getattr(self, f"_{what}")(self._open[number], request, payload)
        return made

    def _alloc(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return device.alloc(request["size"], request["name"]), b""

    def _reserve(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return _roomy(device).reserve(request["size"], request["name"]), b""

    def _back(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        _roomy(device).back(request["address"], request["size"], request["name"])
        return None, b""

    def _upload(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        device.upload(request["address"], payload)
        return None, b""

    def _download(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return None, np.ascontiguousarray(device.download(request["address"], request["size"]))

    def _map(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return None, device.encode_tensor_map(TensorMapSpec(**_tuples(request["spec"])))

    def _load(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        device.load(Path(request["artifact"]))
        return None, b""

    def _launch(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return encode(_launching(device, request, payload)()), b""

    def _batch(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        launches, at = [], 0
        for launch in request["launches"]:
            size = sum(launch["sizes"])
            launches.append(_launching(device, launch, payload[at : at + size]))
            at += size

        def work() -> None:
            for place in request["order"]:
                launches[place]()

        batches = self._batches[request["on"]]
        batches.append(_clocked(device).batch(work))
        return len(batches) - 1, b""

    def _replay(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return self._batches[request["on"]][request["batch"]](), b""

    def _clock(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        return _clocked(device).clock(), b""

    def _ceilings(self, device: Device, request: Mapping[str, Any], payload: Payload) -> Answer:
        if not isinstance(device, Rated):
            raise DeviceError(f"device {device.name} does not say what it does at most")
        return encode(device.ceilings()), b""


def _launching(device: Device, request: Mapping[str, Any], payload: Payload) -> Callable[[], LaunchReport]:
    module = device.load(Path(request["artifact"]))  # known by now
    ends = itertools.accumulate(request["sizes"], initial=0)
    given = tuple(payload[start:end].tobytes() for start, end in itertools.pairwise(ends))
    params: Params = given if request["several"] else given[0]
    config = LaunchConfig(**_tuples(request["config"]))
    if request["first_plane"]:
        _roomy(device).first_plane = request["first_plane"]
    return functools.partial(device.launch, module, request["entry"], config, params)


def _roomy(device: Device) -> Roomy:
    if not isinstance(device, Roomy):
        raise DeviceError(f"device {device.name} cannot have a tensor's end alone")
    return device


def _clocked(device: Device) -> Stopwatch:
    if not isinstance(device, Stopwatch):
        raise DeviceError(f"device {device.name} has no clock of its own")
    return device


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


if __name__ == "__main__":
    sys.exit(main())
