"""A device whose memory and launches are an executor's (executor.py): a process behind a wall, with which this one
exchanges numbers, text and bytes.

One executor serves all configurations that its worker runs. They are of one commit: a kernel that took its executor
over can only spoil what is its own, and an interpreter, an emulator and the PTX are loaded once.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fmha.harness.contract.device import (
    Ceilings,
    DeviceLostError,
    LaunchConfig,
    LaunchReport,
    LoadedModule,
    Params,
    TensorMapSpec,
)
from fmha.harness.contract.protocol import Job
from fmha.harness.isolate import Grant
from fmha.harness.worker.devices import executor_answers
from fmha.harness.worker.devices.behind import Behind
from fmha.harness.worker.devices.executor_answers import ExecutorAnswerError
from fmha.harness.worker.devices.executor_frames import MOST_REPORT
from fmha.harness.worker.devices.factory import DEVICES

T = TypeVar("T")
WATCHING: Final = "emulator-watching"  # its reports say which lines were executed
TENSOR_MAP_BYTES: Final = 128


class Executor:
    """The executor of one worker. `open` is a DeviceFactory."""

    def __init__(self, device: str, artefacts: Iterable[Path], command: Sequence[str] = ()) -> None:
        """Starts it, with leave to read the folders of `artefacts`; `command` in the place of its own."""
        own = [sys.executable, "-P", "-m", "fmha.harness.worker.devices.executor", device]
        self.behind = Behind(list(command) or own, grant_for(device, artefacts))
        self.covered = device == WATCHING
        self.loaded: set[str] = set()
        self._numbers = itertools.count()
        self._facts: Mapping[str, Any] | None = None

    def open(self, seed: int, schedule: str) -> AcrossDevice:
        """A device in the executor, with nothing allocated in it."""
        number = next(self._numbers)
        self.behind.begin()
        facts, _ = self.behind.ask({"do": "open", "on": number, "seed": seed, "schedule": schedule})
        if self._facts is None:
            try:
                self._facts = _facts(facts)
            except ExecutorAnswerError as error:
                raise self.behind.distrusted(error) from error
        kind = RatedDevice if self._facts["rated"] else ClockedDevice if self._facts["clocked"] else AcrossDevice
        return kind(self, number, self._facts)

    def close(self) -> None:
        self.behind.close()


def executor_for(job: Job) -> Executor:
    """Of a job whose device is one of DEVICES."""
    builds = (*job.builds, *(job.beside.builds if job.beside else ()))
    return Executor(job.device, [Path(file) for build in builds for file in (build.ptx, build.cubin) if file])


def goes_across(device: str) -> bool:
    """Whether a job's device is had through an executor. One that is named `module:attribute` is its owner's own code,
    not a commit's, and lives in the worker."""
    return device in DEVICES


def grant_for(device: str, artefacts: Iterable[Path]) -> Grant:
    """What an executor may: read the artefacts, beside fmha itself, and write nothing. Memory has no limit where there
    is a GPU, whose driver reserves more addresses than any machine has."""
    folders = tuple(dict.fromkeys(path.parent for path in artefacts))
    gpu = device == "cuda"
    return Grant(read=folders, gpu=gpu, memory_bytes=None if gpu else _memory())


class AcrossDevice:
    """One device of an executor. What it says of itself, the executor said of the first, before it had any artefact."""

    def __init__(self, executor: Executor, number: int, facts: Mapping[str, Any]) -> None:
        self.name: str = facts["name"]
        self.artifact = cast(Literal["ptx", "cubin"], facts["artifact"])
        self.multiprocessors: int = facts["multiprocessors"]
        self.first_plane = 0
        self._executor, self._number = executor, number
        self._maps: dict[TensorMapSpec, bytes] = {}
        self._kept: list[_Launch] | None = None

    def alloc(self, nbytes: int, name: str) -> int:
        return self._address({"do": "alloc", "size": nbytes, "name": name})

    def reserve(self, nbytes: int, name: str) -> int:
        return self._address({"do": "reserve", "size": nbytes, "name": name})

    def back(self, address: int, nbytes: int, name: str) -> None:
        self._post({"do": "back", "address": address, "size": nbytes, "name": name})

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self._post({"do": "upload", "address": address}, np.ascontiguousarray(data))

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        return self._ask({"do": "download", "address": address, "size": nbytes}, nbytes=nbytes)[1]

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        """A function of `spec`, which launches that are repeated ask for again and again."""
        if spec not in self._maps:
            _, data = self._ask({"do": "map", "spec": dataclasses.asdict(spec)}, nbytes=TENSOR_MAP_BYTES)
            self._maps[spec] = data.tobytes()
        return self._maps[spec]

    def load(self, artifact: Path) -> LoadedModule:
        """Once an executor: artefacts lie in a cache by content and never change."""
        if str(artifact) not in self._executor.loaded:
            self._ask({"do": "load", "artifact": str(artifact)})
            self._executor.loaded.add(str(artifact))
        return _Loaded(str(artifact))

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        assert isinstance(module, _Loaded)
        made = _Launch(module.artifact, entry, config, params)
        if self._kept is not None:
            self._kept.append(made)
            return LaunchReport()
        asked = made.asked() | {"do": "launch", "first_plane": self.first_plane}
        done, _ = self._ask(asked, made.payload(), most=MOST_REPORT)
        return self._checked(lambda: executor_answers.report(done, self._executor.covered))

    def close(self) -> None:
        """Of an executor that is lost there is nothing to close."""
        try:
            self._post({"do": "close"})
        except DeviceLostError:
            return

    def _address(self, request: Mapping[str, Any]) -> int:
        done, _ = self._ask(request)
        return self._checked(lambda: executor_answers.integer(done, executor_answers.ADDRESSES, "an address"))

    def _ask(
        self, request: Mapping[str, Any], payload: NDArray[Any] | bytes = b"", nbytes: int = 0, **limits: int
    ) -> tuple[Any, NDArray[np.uint8]]:
        return self._executor.behind.ask({**request, "on": self._number}, payload, nbytes, **limits)

    def _post(self, request: Mapping[str, Any], payload: NDArray[Any] | bytes = b"") -> None:
        self._executor.behind.post({**request, "on": self._number}, payload)

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except ExecutorAnswerError as error:
            raise self._executor.behind.distrusted(error) from error


class ClockedDevice(AcrossDevice):
    """One whose times mean something. A batch's launches are there before it is timed: what is timed is the device, and
    no message."""

    def batch(self, work: Callable[[], object]) -> Callable[[], float]:
        kept = self._kept = []
        try:
            work()
        finally:
            self._kept = None
        places: dict[_Launch, int] = {}
        order = [places.setdefault(launch, len(places)) for launch in kept]  # mostly one launch over and over
        request = {"do": "batch", "launches": [launch.asked() for launch in places], "order": order}
        done, _ = self._ask(request, b"".join(launch.payload() for launch in places))
        number = self._checked(lambda: executor_answers.integer(done, executor_answers.MOST_NUMBER, "a batch"))

        def replay() -> float:
            taken, _ = self._ask({"do": "replay", "batch": number})
            return self._checked(lambda: executor_answers.seconds(taken, "a batch's seconds"))

        return replay

    def clock(self) -> float | None:
        done, _ = self._ask({"do": "clock"})
        return None if done is None else self._checked(lambda: executor_answers.seconds(done, "the clock"))


class RatedDevice(ClockedDevice):
    """One that says what it does at most, too."""

    def ceilings(self) -> Ceilings:
        done, _ = self._ask({"do": "ceilings"})
        return self._checked(lambda: executor_answers.ceilings(done))


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    artifact: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Launch:
    artifact: str
    entry: str
    config: LaunchConfig
    params: Params

    def asked(self) -> dict[str, Any]:
        several = isinstance(self.params, tuple)
        sizes = [len(data) for data in self.params] if isinstance(self.params, tuple) else [len(self.params)]
        config = dataclasses.asdict(self.config)
        asked = {"artifact": self.artifact, "entry": self.entry, "config": config, "sizes": sizes, "several": several}
        return asked | {"first_plane": 0}

    def payload(self) -> bytes:
        return b"".join(self.params) if isinstance(self.params, tuple) else self.params


def _facts(facts: Any) -> Mapping[str, Any]:
    if not isinstance(facts, dict) or facts.keys() != {"name", "artifact", "multiprocessors", "clocked", "rated"}:
        raise ExecutorAnswerError("a device: not what it is")
    executor_answers.text(facts["name"], "a device's name", 100)
    if (
        facts["artifact"] not in ("ptx", "cubin")
        or type(facts["clocked"]) is not bool
        or type(facts["rated"]) is not bool
    ):
        raise ExecutorAnswerError("a device: neither of PTX nor of cubins")
    executor_answers.integer(facts["multiprocessors"], 1 << 20, "multiprocessors")
    return facts


def _memory() -> int:
    """This machine's, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
