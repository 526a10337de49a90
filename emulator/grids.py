"""The grids that kernels launch: what the machine has to know beforehand, and the run of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from fmha.emulator import _core
from fmha.emulator.decode import Decoded, launchable
from fmha.emulator.launch_report import Finding, Waiver, findings_of
from fmha.emulator.ptx import Function, ParsedModule, PtxError

Printed = tuple[tuple[bool, bytes], ...]
# What cudaDeviceGetAttribute tells a kernel, by cudaDeviceAttr: what an H200 and a B200 have in common.
_ATTRIBUTES = {
    1: 1024,  # threads a block
    2: 1024,
    3: 1024,
    4: 64,
    5: 2**31 - 1,  # blocks a grid
    6: 65535,
    7: 65535,
    8: 49152,  # shared memory a block
    10: 32,  # lanes
    12: 65536,  # registers a block
    39: 2048,  # threads a multiprocessor
    81: 233472,  # shared memory a multiprocessor
    82: 65536,
    97: 232448,  # shared memory a block that asks for more
    106: 32,  # blocks a multiprocessor
}
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
PORTABLE_CLUSTER = 8


class KernelDirectives(Protocol):
    """What a kernel's directives say, as device.Entry has it."""

    @property
    def param_bytes(self) -> int:
        """Bytes of the parameter space."""

    @property
    def max_threads(self) -> int | None:
        """`.maxntid` or `.reqntid`, in threads; None without either."""

    @property
    def required_block(self) -> tuple[int, int, int] | None:
        """`.reqntid`; None without."""

    @property
    def required_cluster(self) -> tuple[int, int, int] | None:
        """`.reqnctapercluster`; None without."""

    @property
    def explicit_cluster(self) -> bool:
        """Whether a launch has to give the size of its clusters."""


def tell_device(machine: _core.Machine) -> None:
    """Tells the core the attributes of the device that kernels ask for through cudaDeviceGetAttribute."""
    for attribute, value in _ATTRIBUTES.items():
        machine.set_attribute(attribute, value)


def tell_kernels(
    machine: _core.Machine,
    module: ParsedModule,
    host: str,
    declared: Callable[[Function], KernelDirectives],
    decode: Callable[[str], Decoded],
    most_shared: Callable[[str, int], int],
) -> None:
    """Before a launch of `host`. `most_shared` gives a CTA's shared memory, of a kernel and its static part. Of
    a kernel that is not modelled the reason is told where it is launched."""
    arch = int("".join(c for c in module.target if c.isdigit()))
    machine.set_attribute(_MULTIPROCESSORS, machine.multiprocessors)
    machine.set_attribute(_MAJOR, arch // 10)
    machine.set_attribute(_MINOR, arch % 10)
    machine.begin_kernels(host)
    for address, function in launchable(module).items():
        entry, static, refused = declared(function), 0, ""
        try:
            static = decode(function.name).shared_static
        except PtxError as error:
            refused = str(error)
        cluster = entry.required_cluster or (1, 1, 1)
        if math.prod(cluster) > PORTABLE_CLUSTER:
            refused = f"a cluster of {math.prod(cluster)} CTAs is not portable, and which error that is no manual says"
        elif entry.explicit_cluster and not entry.required_cluster:
            refused = "it is declared .explicitcluster, and a launch from the device gives no cluster dimensions"
        machine.add_kernel(
            address,
            function.name,
            entry.param_bytes,
            min(entry.max_threads or 1024, 1024),
            entry.required_block or (0, 0, 0),
            cluster,
            static,
            most_shared(function.name, static),
            refused,
        )


class Below:
    """The grids below one that the host has launched. `ran` is told each kernel's name once a grid of it has run."""

    def __init__(
        self,
        machine: _core.Machine,
        module: ParsedModule,
        decode: Callable[[str], Decoded],
        ran: Callable[[str], None],
        waivers: Sequence[Waiver],
    ) -> None:
        self._machine = machine
        self._names = {address: function.name for address, function in launchable(module).items()}
        self._decode = decode
        self._ran = ran
        self._waivers = waivers

    def run(self, findings: tuple[Finding, ...], printed: Printed) -> tuple[tuple[Finding, ...], Printed]:
        """Runs them to their end, or to the first fault. Takes what the host's grid has found and printed, and adds to
        it; what grids of one kernel find at one place is one finding."""
        found = list(findings)
        at: dict[tuple[object, ...], int] = {}
        text = [*printed]
        while address := self._machine.next_grid():
            name = self._names[address]
            decoded = self._decode(name)
            raw = self._machine.run_next(decoded.program)
            self._ran(name)
            text += self._machine.printed
            for finding in findings_of(decoded.sources, raw, waivers=self._waivers):
                key = (name, finding.rule, finding.place, finding.other)
                if key in at:
                    found[at[key]] = replace(found[at[key]], count=found[at[key]].count + finding.count)
                    continue
                at[key] = len(found)
                kernel, parent, grid, block = self._machine.running_grid
                where = f"in {kernel}, launched by {parent} with grid {grid} and block {block}"
                found.append(replace(finding, details=(*finding.details, (None, where))))
        return tuple(found), tuple(text)
