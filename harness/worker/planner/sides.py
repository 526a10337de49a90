"""The kernel's side of a commit whose judge is another's: its launcher in a process of its own, behind the wall.

The commit's code chooses the variant and nvcc's flags, packs the parameter struct and shapes the launches, because a
parameter struct may change with the kernel. It does so in a sandbox, on the other side of a pipe
(harness/worker/planner/process.py), so that nothing it does can touch what judges it: the device, the tensors and the
numbers are here. What it says is plain data, and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fmha.harness.contract.codec import decode, encode, fields_given
from fmha.harness.contract.device import (
    Device,
    DeviceError,
    IllegalError,
    LaunchConfig,
    LaunchReport,
    LoadedModule,
    TensorMapSpec,
)
from fmha.harness.contract.protocol import Cell, Variant
from fmha.harness.judge.configuration import OURS
from fmha.harness.kernel_side import recipe
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.compilers.enclosed import outside, refused
from fmha.harness.worker.planner.process import KernelSideError, Planner, choice_of

if TYPE_CHECKING:  # who plans a run does not launch
    from fmha.harness.kernel_side.launch import Call
    from fmha.harness.worker.compilers.at_hand import AtHand

Launcher = Callable[[Device, LoadedModule, Variant, "Call", Mapping[str, int]], LaunchReport]
MOST_LAUNCHES = 64  # of one call: a commit that asks on and on is stopped


Chooser = Callable[[Any, str], Variant | str]  # of a configuration and an architecture


class HandsOn(Protocol):
    """What a kernel's side has made while it was asked for variants: fmha.harness.worker.subjects.adapter."""

    def at_hand(self, variant: Variant) -> AtHand | None:
        """The PTX of a variant, where it has compiled it."""

    def hold_planned(self) -> None:
        """Keeps what it has said for `planned`, where nothing has changed since."""

    def planned(self, ids: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """That, of these cases."""

    def close_kernel(self) -> None:
        """Ends its process."""


class Declares(Protocol):
    """A kernel with an adapter: fmha.harness.worker.subjects.declared, which is loaded where there is one."""

    def variant_for(self, configuration: Any, arch: str) -> Variant | str:
        """The kernel that runs a configuration, or in words why there is none."""

    def built_in(self, tree: Path) -> None:
        """Its sources are below `tree` from now on, wherever the adapter is."""

    @property
    def adapter(self) -> HandsOn | None:
        """Who is asked for its variants; None where nobody has to be."""


class OwnSide:
    """The kernel's side where judge and judged are one commit's: plain calls. `kernels` have adapters, by name."""

    def __init__(self, kernels: Mapping[str, Declares] | None = None) -> None:
        self._choosers: dict[str, Chooser] = {OURS: variant_for}
        self._choosers |= {name: kernel.variant_for for name, kernel in (kernels or {}).items()}

    def variant_for(self, configuration: Cell, arch: str) -> Variant | str:
        """The kernel that runs a configuration, or in words why there is none."""
        return self._choosers[configuration.kernel](configuration, arch)

    def flags(self, variant: Variant) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What nvcc is given for the PTX, and to assemble it."""
        return recipe.flags(variant), recipe.ASSEMBLE

    def launch(
        self, device: Device, module: LoadedModule, variant: Variant, call: Call, addresses: Mapping[str, int]
    ) -> LaunchReport:
        """Launches by this process's own code."""
        from fmha.harness.kernel_side.launch import launch_attention

        return launch_attention(device, module, variant, call, addresses)

    def close(self) -> None: ...


class KernelSide:
    """That of the commit that `tree` is a checkout of. Its process is started when it is first needed.

    Of `kernels` the adapters are the judge's and the sources the commit's.
    """

    def __init__(self, tree: Path, kernels: Mapping[str, Declares] | None = None) -> None:
        self._choosers: dict[str, Chooser] = {OURS: self._chosen}
        for name, kernel in (kernels or {}).items():
            kernel.built_in(tree)
            self._choosers[name] = kernel.variant_for
        self._tree = tree
        self._planner = Planner(tree)
        self._flags: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def variant_for(self, configuration: Cell, arch: str) -> Variant | str:
        """The kernel that runs a configuration, or in words why there is none."""
        return self._choosers[configuration.kernel](configuration, arch)

    def _chosen(self, configuration: Cell, arch: str) -> Variant | str:
        answer = self._planner.say({"ask": "variant", "configuration": encode(configuration), "arch": arch})
        found = choice_of(answer.get("done"), arch)
        if isinstance(found, str):
            return found
        for folder, path in outside(self._tree, (*found.flags, *found.assemble)).items():
            raise KernelSideError(refused(folder, path))
        self._flags[found.variant.name] = found.flags, found.assemble
        return found.variant

    def flags(self, variant: Variant) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the commit says of its own kernels; of one with an adapter, what that says."""
        return self._flags.get(variant.name) or (recipe.flags(variant), recipe.ASSEMBLE)

    def launch(
        self, device: Device, module: LoadedModule, variant: Variant, call: Call, addresses: Mapping[str, int]
    ) -> LaunchReport:
        """Does what the commit's launcher asks for. The report is of the launches that were made here."""
        from fmha.harness.kernel_side.launch import sum_of

        request = {
            "ask": "launch",
            "variant": variant.name,
            "call": fields_given(call),
            "addresses": dict(addresses),
            "device": device.name,
            "multiprocessors": device.multiprocessors,
        }
        reports: list[LaunchReport] = []
        answer = self._planner.say(request)
        while "done" not in answer:
            if len(reports) >= MOST_LAUNCHES:
                raise KernelSideError(f"the commit's launcher asked for more than {MOST_LAUNCHES} launches")
            try:
                done = _done(device, module, answer, reports)
            except DeviceError:  # the machine's fault, of which a launcher hears nothing: it waits in vain for this
                self._planner.close()
                self._planner = Planner(self._tree)
                raise
            answer = self._planner.say(done)
        if not reports:
            raise KernelSideError("the commit's launcher launched nothing")
        return sum_of(reports)

    def close(self) -> None:
        self._planner.close()


Side = OwnSide | KernelSide


def side_of(tree: str, kernels: Mapping[str, Declares] | None = None) -> Side:
    """The kernel's side in a checkout; this process's own for an empty name."""
    return KernelSide(Path(tree), kernels) if tree else OwnSide(kernels)


def _done(
    device: Device, module: LoadedModule, asked: Mapping[str, Any], reports: list[LaunchReport]
) -> dict[str, Any]:
    """Does one thing for the launcher, and is what it is told."""
    try:
        if asked.get("ask") == "map":
            return {"done": device.encode_tensor_map(decode(TensorMapSpec, asked["spec"], "map")).hex()}
        if asked.get("ask") == "launch":
            entry, config = asked["entry"], decode(LaunchConfig, asked["config"], "launch")
            if not isinstance(entry, str):
                raise ValueError("its entry is no name")
            reports.append(device.launch(module, entry, config, bytes.fromhex(asked["params"])))
            return {"done": None}
    except IllegalError as error:
        return {"error": str(error)}
    except (TypeError, ValueError, KeyError) as error:
        raise KernelSideError(f"the commit's launcher asked for what is no launch: {error}") from error
    raise KernelSideError(f"the commit's launcher asked for {asked.get('ask')!r}")
