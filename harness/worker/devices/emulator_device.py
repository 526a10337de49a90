"""The emulator as a device."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import Around
from fmha.emulator.executed_lines import own_of
from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.contract.device import (
    DeviceError,
    IllegalError,
    LaunchConfig,
    LaunchReport,
    LoadedModule,
    Params,
    TensorMapSpec,
)
from fmha.harness.contract.lines import Lines
from fmha.harness.contract.protocol import THREADS, FindingRecord
from fmha.harness.worker.devices.grid_before import run_grid_before

# CTAs that run side by side each have their own shadow of global memory: more threads would cost memory first.
_MAX_THREADS = 16

_Spelled = dict[str, dict[str, list[str]]]  # "ptx" by entry and "source" by file: lines as Lines.as_json has them


class EmulatorDevice:
    """One emulator.Device: memory, seed, schedule and `mma_sums` of its own. IllegalError for what the driver would
    refuse, DeviceError for what this machine does not do.

    `threads` of the host run CTAs side by side: where it is not given, FMHA_THREADS of the environment or as many as
    this process may use. `timing` names the GPU whose time is modelled: then only a few CTAs of a launch run, and no
    output is whole, unless `sampled` is False. Every launch runs within the context that `around` makes for it: of
    somebody who looks on.
    """

    name = "emulator"
    artifact: Literal["ptx", "cubin"] = "ptx"
    multiprocessors = 148  # those of a B200

    def __init__(
        self,
        seed: int,
        schedule: str,
        checks: bool = True,
        threads: int | None = None,
        mma_sums: str = "fast",
        watch: bool = False,
        timing: str | None = None,
        around: Around | None = None,
        sampled: bool = True,
        reordered: bool = False,
    ) -> None:
        self._watch = watch
        self._around = around or (lambda device, module, entry: nullcontext())
        self.timings: list[tuple[str, LaunchTiming]] = []  # of launches, by the entry
        self.first_plane = 0
        self._uploaded: dict[int, int] = {}  # bytes by address
        self._timed = timing is not None
        try:
            self._device = emulator.Device(
                seed=seed,
                schedule=cast(Any, schedule),
                checks=checks,
                mma_sums=cast(Any, mma_sums),
                threads=threads or min(_MAX_THREADS, int(os.environ.get(THREADS) or len(os.sched_getaffinity(0)))),
                watch=watch,
                timing=timing,
                sampled=sampled and timing is not None,
                reordered=reordered,
            )
        except ValueError as error:
            raise DeviceError(str(error)) from error

    @property
    def work(self) -> Sequence[float]:
        """With `timing`: what each cluster of a launch of so many has to do."""
        return self._device.work

    @work.setter
    def work(self, of_each: Sequence[float]) -> None:
        self._device.work = of_each

    @property
    def looked_at(self) -> Sequence[int]:
        """With `timing`: clusters that are looked at, in place of those that the model chooses."""
        return self._device.looked_at

    @looked_at.setter
    def looked_at(self, clusters: Sequence[int]) -> None:
        self._device.looked_at = clusters

    @property
    def counter(self) -> int:
        """With `timing`: an address from which the CTAs of launches draw their work; 0 where they do not."""
        return self._device.counter

    @counter.setter
    def counter(self, address: int) -> None:
        self._device.counter = address

    def alloc(self, nbytes: int, name: str) -> int:
        return self._device.alloc(nbytes, name).address

    def reserve(self, nbytes: int, name: str) -> int:
        return self._device.reserve(nbytes)

    def back(self, address: int, nbytes: int, name: str) -> None:
        self._device.back(address, nbytes, name)

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self._uploaded[address] = data.nbytes
        self._device.write(address, data)

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        return self._device.read(address, nbytes)

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        try:
            return emulator.encode_tiled(
                dtype=spec.dtype,
                address=spec.address,
                global_dim=spec.global_dim,
                global_strides=spec.global_strides,
                box_dim=spec.box_dim,
                element_strides=spec.element_strides,
                swizzle=spec.swizzle,
            )
        except emulator.TensorMapError as error:
            raise IllegalError(f"tensor map refused: {error}") from error

    def load(self, artifact: Path) -> LoadedModule:
        return _load(artifact)

    def launch(self, module: LoadedModule, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        assert isinstance(module, emulator.Module)
        given = [params] if isinstance(params, bytes) else params
        if config.overlaps and self._device.launches == 0 and not self._timed:
            run_grid_before(self._device, self._uploaded)
        beside = sorted(self._device.launches + 1 - back for back in config.beside)
        self._device.profile = "lenient" if config.lenient else "strict"
        try:
            with self._around(self._device, module, entry):
                report = self._device.launch(
                    module,
                    entry,
                    config.grid,
                    config.block,
                    given,
                    config.shared_bytes,
                    config.cluster,
                    programmatic=config.overlaps,
                    first_plane=self.first_plane,
                    beside=beside if config.stream else None,
                    stream=config.stream,
                )
        except (emulator.UnmodelledError, emulator.PtxError) as error:  # a driver would take both
            raise DeviceError(f"launch of {entry} refused: {error}") from error
        except emulator.LaunchError as error:
            raise IllegalError(f"launch of {entry} refused: {error}") from error
        if report.timing is not None:
            report.timing.overlaps = config.overlaps
            self.timings.append((entry, report.timing))
        stats: dict[str, Any] = dict(report.stats)
        stats.pop("interleaving", None)  # a digest, which tells the runs of a search apart
        if self._watch:
            stats["coverage"] = self._coverage(module)
        return LaunchReport(tuple(_record(finding) for finding in report.findings), stats)

    def _coverage(self, module: emulator.Module) -> _Spelled:
        """The lines that this process's launches of `module` have executed."""
        before, spelled = _EXECUTED.get(module, ({}, {}))
        now = {entry: _union(before.get(entry, b""), marks) for entry, marks in self._device.executed(module).items()}
        if now != before:
            spelled = self._spelled(module, now)
            _EXECUTED[module] = now, spelled
        return spelled

    def _spelled(self, module: emulator.Module, now: dict[str, bytes]) -> _Spelled:
        ptx: dict[str, list[str]] = {}
        source: dict[str, dict[int, bool]] = {}
        for entry, lines in self._device.coverage(module, now).items():
            ptx[entry] = Lines.of(lines.ptx).as_json()
            for (file, line), done in lines.source.items():
                numbers = source.setdefault(file, {})
                numbers[line] = numbers.get(line, False) or done
        return {"ptx": ptx, "source": {file: Lines.of(numbers).as_json() for file, numbers in source.items()}}

    def close(self) -> None:
        """The machine's memory goes with the object."""


def silicon_emulator(seed: int, schedule: str) -> EmulatorDevice:
    """One whose tcgen05.mma adds as a B200 does."""
    return EmulatorDevice(seed, schedule, mma_sums="silicon")


def watching_emulator(seed: int, schedule: str) -> EmulatorDevice:
    """One whose reports say in `coverage` which lines this process's launches of the module have executed."""
    return EmulatorDevice(seed, schedule, watch=True)


# By module: what emulator.Device.executed has, over the many devices of a process, and the same as lines.
_EXECUTED: dict[emulator.Module, tuple[dict[str, bytes], _Spelled]] = {}


def forget_executed() -> None:
    """From now on `coverage` is of launches to come."""
    _EXECUTED.clear()


def _union(a: bytes, b: bytes) -> bytes:
    if not a or not b:
        return a or b
    return bytes(np.frombuffer(a, np.uint8) | np.frombuffer(b, np.uint8))


@functools.lru_cache(maxsize=64)  # of 3 to 9 MB each; more than we have variants, which runs and tests take in turns
def _load(artifact: Path) -> emulator.Module:
    """Parses once a process: artefacts lie in a cache by content and never change."""
    try:
        return emulator.load_ptx(artifact)
    except emulator.PtxError as error:
        raise DeviceError(f"{artifact.name} refused: {error}") from error


def _record(finding: emulator.Finding) -> FindingRecord:
    """As plain data: `where` has the fields of WHERE that there are."""
    fields: dict[str, Any] = {
        **_place("", finding.place),
        **_place("other_", finding.other),
        "cta": finding.cta,
        "count": finding.count,
        "warp": finding.warp,
        "details": [text if place is None else f"{text} at {place}" for place, text in finding.details] or None,
    }
    where = {name: value for name, value in fields.items() if value is not None}
    return FindingRecord(finding.rule, finding.severity, finding.message, where)


def _place(prefix: str, place: emulator.Place | None) -> dict[str, Any]:
    if place is None:
        return {}
    calls = [place.source, *place.callers] if place.source else []
    fields = {
        "source": own_of(calls),
        "calls": calls if len(calls) > 1 else None,
        "ptx_line": place.ptx_line,
        "ptx": place.ptx_text,
    }
    return {prefix + name: value for name, value in fields.items()}
