"""Callables of one's own through the worker: fmha.harness.worker.subjects.callable_kernel carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import util
from typing import Any, Final

import numpy as np

from fmha.harness.contract.device import Device, LaunchReport, LoadedModule
from fmha.harness.contract.protocol import Beside, BuildResult, LaunchShape, Timed, Variant
from fmha.harness.judge.case import Case
from fmha.harness.worker.subjects.callable_kernel import CallableKernel
from fmha.harness.worker.subjects.declared import Arrays, Declared, Ran
from fmha.harness.worker.subjects.kernel import Kernel
from fmha.harness.worker.subjects.peers import RefusedError, batch_of_calls
from fmha.harness.worker.timing import UntimedError, time_alone

# torch's names of what an output's `dtype` is.
_TORCH: Final = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}


def subject_of(name: str, kernel: Kernel, where: str) -> Declared:
    """A kernel that matrix.yaml calls `name`, with its adapter at `where`, FILE.py:CLASS."""
    return Called(name, kernel, where) if isinstance(kernel, CallableKernel) else Declared(name, kernel, where)


class Called(Declared):
    """One callable of one's own."""

    def __init__(self, name: str, kernel: CallableKernel, where: str) -> None:
        super().__init__(name, kernel, where)
        self._callable = kernel

    def variant_for(self, case: Case, arch: str) -> Variant | str:
        if refused := self._refusal(arch):
            return refused
        shape = LaunchShape(0, 0, 0, 0, 0)
        return Variant(f"{self._name}_{arch.replace('_', '')}", arch, "", self._name, None, None, shape, sources=())

    def run(self, device: Device, module: LoadedModule | None, variant: Variant, case: Case, inputs: Arrays) -> Ran:
        """Raises RefusedError where it cannot be called, ValueError where it returns something else than outputs."""
        call = self._call(device, case, inputs)
        outputs, found = self._callable.outputs(case), call()
        if found.keys() != outputs.keys():
            raise ValueError(f"call gives {', '.join(found)}; the outputs are {', '.join(outputs)}")
        arrays = {}
        for name, output in outputs.items():
            tensor, wanted = found[name], _TORCH[output.dtype]
            kind = str(tensor.dtype).removeprefix("torch.")
            if (tuple(tensor.shape), kind) != (output.shape, wanted):
                raise ValueError(
                    f"call gives {name} as {kind} of {tuple(tensor.shape)}; the output is {wanted} of {output.shape}"
                )
            arrays[name] = _array(tensor)
        return Ran(arrays, LaunchReport())

    def timed(
        self, device: Device, build: BuildResult, beside: Beside, case: Case, inputs: Arrays, expected: Arrays
    ) -> Timed:
        raise UntimedError(f"{self._name} is called, and no commit's")

    def timed_alone(self, device: Device, build: BuildResult, case: Case, inputs: Arrays) -> Timed:
        return time_alone(device, partial(batch_of_calls, self._call(device, case, inputs)))

    def _call(self, device: Device, case: Case, inputs: Arrays) -> Callable[[], Mapping[str, Any]]:
        if self._callable.gpu and device.name != "cuda":
            raise RefusedError(f"{self._name} runs on a GPU alone")
        if missing := [module for module in ("torch", *self._callable.modules) if util.find_spec(module) is None]:
            raise RefusedError(f"{self._name} needs the module {missing[0]}, which is not installed here")
        import torch

        where = "cuda" if device.name == "cuda" else "cpu"

        def tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
            made = torch.from_numpy(np.array(array))  # of its own: what is called may write it
            return (made.view(torch.bfloat16) if array.dtype == np.uint16 else made).to(where)

        return self._callable.call(case, {name: tensor(array) for name, array in inputs.items()})


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    """Of bf16 its bit patterns."""
    import torch

    whole = tensor.detach().contiguous()
    found: np.ndarray[Any, Any] = (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).cpu().numpy()
    return found
