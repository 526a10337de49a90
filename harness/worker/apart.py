"""The kernel's side of a commit whose judge is another's: its launcher in a process of its own.

The commit's code chooses the variant and nvcc's flags, packs the parameter struct and shapes the launches, because a
parameter struct may change with the kernel. It does so on the other side of a pipe (kernel_end.py), so that nothing it
does can touch what judges it: the device, the tensors and the numbers are here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fmha.harness.contract.codec import CodecError, decode, encode
from fmha.harness.contract.device import (
    Device,
    DeviceError,
    LaunchConfig,
    LaunchReport,
    LoadedModule,
    TensorMapSpec,
)
from fmha.harness.contract.protocol import Cell, Variant
from fmha.harness.judge.configuration import OURS
from fmha.harness.kernel_side import recipe
from fmha.harness.kernel_side.launch import Call, launch_attention, sum_of
from fmha.harness.kernel_side.variants import variant_for

Launcher = Callable[[Device, LoadedModule, Variant, Call, Mapping[str, int]], LaunchReport]
MOST_LAUNCHES = 64  # of one call: a commit that asks on and on is stopped


class KernelSideError(Exception):
    """The commit's own code failed at what is its part; the message has what it said."""


Chooser = Callable[[Any, str], Variant | str]  # of a configuration and an architecture


class Declares(Protocol):
    """A kernel with an adapter: fmha.harness.worker.subjects.declared, which is loaded where there is one."""

    def variant_for(self, configuration: Any, arch: str) -> Variant | str: ...

    def built_in(self, tree: Path) -> None:
        """Its sources are below `tree` from now on, wherever the adapter is."""


class OwnSide:
    """The kernel's side where judge and judged are one commit's: plain calls. `kernels` have adapters, by name."""

    def __init__(self, kernels: Mapping[str, Declares] | None = None) -> None:
        self._choosers: dict[str, Chooser] = {OURS: variant_for}
        self._choosers |= {name: kernel.variant_for for name, kernel in (kernels or {}).items()}

    def variant_for(self, configuration: Cell, arch: str) -> Variant | str:
        return self._choosers[configuration.kernel](configuration, arch)

    def flags(self, variant: Variant) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What nvcc is given for the PTX, and to assemble it."""
        return recipe.flags(variant), recipe.ASSEMBLE

    def launch(
        self, device: Device, module: LoadedModule, variant: Variant, call: Call, addresses: Mapping[str, int]
    ) -> LaunchReport:
        return launch_attention(device, module, variant, call, addresses)

    def close(self) -> None: ...


class KernelSide:
    """That of the commit that `tree` is a checkout of. Its process is started when it is first needed.

    Of `kernels` the adapters are the judge's and the sources the commit's.
    """

    def __init__(self, tree: Path, kernels: Mapping[str, Declares] | None = None) -> None:
        self._tree = tree
        self._choosers: dict[str, Chooser] = {OURS: self._chosen}
        for name, kernel in (kernels or {}).items():
            kernel.built_in(tree)
            self._choosers[name] = kernel.variant_for
        self._process: subprocess.Popen[str] | None = None
        self._flags: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def variant_for(self, configuration: Cell, arch: str) -> Variant | str:
        return self._choosers[configuration.kernel](configuration, arch)

    def _chosen(self, configuration: Cell, arch: str) -> Variant | str:
        answer = self._say({"ask": "variant", "configuration": encode(configuration), "arch": arch})["done"]
        if "reason" in answer:
            return str(answer["reason"])
        known = {field.name for field in dataclasses.fields(Variant)}
        try:
            variant = decode(Variant, {k: v for k, v in answer["variant"].items() if k in known}, "variant")
        except CodecError as error:
            raise KernelSideError(
                f"the commit describes its kernels in a way that the judge cannot read: {error}"
            ) from error
        self._flags[variant.name] = tuple(answer["flags"]), tuple(answer["assemble"])
        return variant

    def flags(self, variant: Variant) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the commit says of its own kernels; of one with an adapter, what that says."""
        return self._flags.get(variant.name) or (recipe.flags(variant), recipe.ASSEMBLE)

    def launch(
        self, device: Device, module: LoadedModule, variant: Variant, call: Call, addresses: Mapping[str, int]
    ) -> LaunchReport:
        """Does what the commit's launcher asks for. The report is of the launches that were made here."""
        request = {
            "ask": "launch",
            "variant": variant.name,
            "call": _said(call),
            "addresses": dict(addresses),
            "device": device.name,
            "multiprocessors": device.multiprocessors,
        }
        reports: list[LaunchReport] = []
        answer = self._say(request)
        while "done" not in answer:
            if len(reports) >= MOST_LAUNCHES:
                raise KernelSideError(f"the commit's launcher asked for more than {MOST_LAUNCHES} launches")
            answer = self._say(_done(device, module, answer, reports))
        if not reports:
            raise KernelSideError("the commit's launcher launched nothing")
        return sum_of(reports)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def _say(self, message: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise KernelSideError("the commit's side of the run ended early; its words are in the worker's log")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise KernelSideError("the commit's side of the run wrote a line that is no answer") from error
        if not isinstance(answer, dict) or "error" in answer:
            raise KernelSideError(
                f"the commit's launcher failed: {answer['error'] if isinstance(answer, dict) else answer}"
            )
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if not (self._tree / "fmha" / "__init__.py").is_file():
            raise KernelSideError("the commit is of before fmha was one package: it cannot be launched from here")
        # -S: an editable installation would put the judge's own modules before the commit's.
        paths = [
            str(self._tree),
            sysconfig.get_path("purelib"),
            *(path for path in sys.path if "site-packages" in path),
        ]
        return subprocess.Popen(
            [sys.executable, "-S", "-P", str(Path(__file__).with_name("kernel_end.py")), str(self._tree)],
            cwd=self._tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


Side = OwnSide | KernelSide


def side_of(tree: str, kernels: Mapping[str, Declares] | None = None) -> Side:
    """The kernel's side in a checkout; this process's own for an empty name."""
    return KernelSide(Path(tree), kernels) if tree else OwnSide(kernels)


def _said(call: Call) -> dict[str, Any]:
    """A call's fields but those at their defaults, which a commit may not know yet."""
    given = dataclasses.asdict(call)
    return {field.name: given[field.name] for field in dataclasses.fields(call) if given[field.name] != field.default}


def _done(
    device: Device, module: LoadedModule, asked: Mapping[str, Any], reports: list[LaunchReport]
) -> dict[str, Any]:
    """Does one thing for the launcher, and is what it is told."""
    try:
        if asked.get("ask") == "map":
            spec = TensorMapSpec(**{name: _tuples(value) for name, value in asked["spec"].items()})
            return {"done": device.encode_tensor_map(spec).hex()}
        if asked.get("ask") == "launch":
            config = LaunchConfig(**{name: _tuples(value) for name, value in asked["config"].items()})
            reports.append(device.launch(module, asked["entry"], config, bytes.fromhex(asked["params"])))
            return {"done": None}
    except DeviceError as error:
        return {"error": str(error)}
    except (TypeError, ValueError, KeyError) as error:
        raise KernelSideError(f"the commit's launcher asked for what is no launch: {error}") from error
    raise KernelSideError(f"the commit's launcher asked for {asked.get('ask')!r}")


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
