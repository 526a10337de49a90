"""Callables of one's own through the worker: fmha.harness.worker.subjects.callable_kernel carried out.

What is called runs in a process that has its inputs and sees neither the reference nor the measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from fmha.harness.contract.device import Device, LaunchReport, LoadedModule
from fmha.harness.contract.protocol import Beside, BuildResult, LaunchShape, Measurement, Timed, Variant
from fmha.harness.judge.case import Case
from fmha.harness.worker.launch.time_builds import UntimedError, time_alone
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.adapter_frames import Arrays
from fmha.harness.worker.subjects.declared import Declared, DeclaredRun, Expected
from fmha.harness.worker.subjects.dtypes import dtype_of
from fmha.harness.worker.subjects.peers import PeerRefusedError

# torch's names of what an output's `dtype` is, where they are not ml_dtypes'.
_TORCH: Final = {"e2m1x2": "float4_e2m1fn_x2"}


def subject_of(adapter: Adapter, tolerances: Mapping[str, float] = MappingProxyType({})) -> Declared:
    """The kernel of an adapter, which is asked which kind it is."""
    return (Called if adapter.description.called else Declared)(adapter, tolerances)


class Called(Declared):
    """One callable of one's own."""

    def variant_for(self, case: Case, arch: str) -> Variant | str:
        """A variant without a source: nothing is built. Or in words why it does not run there."""
        if refused := self._refusal(arch):
            return refused
        shape = LaunchShape(0, 0, 0, 0, 0)
        return Variant(f"{self._name}_{arch.replace('_', '')}", arch, "", self._name, None, None, shape, sources=())

    def run(
        self, device: Device, module: LoadedModule | None, variant: Variant, case: Case, inputs: Arrays
    ) -> DeclaredRun:
        """Raises RefusedError where it cannot be called, ValueError where it returns something else than outputs."""
        outputs = self._adapter.outputs(case)
        kinds, found = self._adapter.call(case, self._where(device), inputs)
        if found.keys() != outputs.keys():
            raise ValueError(f"call gives {', '.join(found)}; the outputs are {', '.join(outputs)}")
        for name, output in outputs.items():
            kind = dtype_of(output.dtype)
            shape, wanted = found[name].shape, _TORCH.get(output.dtype, str(kind.values))
            if (shape, kinds[name]) != (kind.shape(output.shape), wanted):
                raise ValueError(
                    f"call gives {name} as {kinds[name]} of {shape}; the output is {wanted} of {output.shape}"
                )
            if found[name].dtype.itemsize != kind.storage.itemsize:
                raise ValueError(f"call gives {name} as {kinds[name]}, and sends {found[name].dtype}")
        bits = {name: found[name].view(dtype_of(output.dtype).storage) for name, output in outputs.items()}
        return DeclaredRun(bits, LaunchReport())

    def timed(
        self,
        device: Device,
        build: BuildResult,
        beside: Beside,
        case: Case,
        inputs: Arrays,
        expected: Expected,
        judged: Measurement,
    ) -> Timed:
        """UntimedError: there is no build of another commit to time it beside."""
        raise UntimedError(f"{self._name} is called, and no commit's")

    def timed_alone(
        self, device: Device, build: BuildResult, case: Case, inputs: Arrays, expected: Expected, judged: Measurement
    ) -> Timed:
        """Times of calls by themselves. What they return is their own memory, which is not looked at again."""
        with self._prepared(device, case, inputs):
            return time_alone(device, self._adapter.batch)

    @contextmanager
    def _prepared(self, device: Device, case: Case, inputs: Arrays) -> Iterator[None]:
        self._adapter.prepare(case, self._where(device), inputs)
        try:
            yield
        finally:
            self._adapter.release()

    def _where(self, device: Device) -> str:
        """What torch calls the device."""
        if self._adapter.description.gpu and device.name != "cuda":
            raise PeerRefusedError(f"{self._name} runs on a GPU alone")
        return "cuda" if device.name == "cuda" else "cpu"
