"""From a commit of a kernel to a verdict, and the kernels of this project.

>>> import fmha
>>> result = fmha.attention(q, k, v, causal=True)  # torch tensors: on a GPU, or on the emulator

What is named here is the public interface; `Kernel` and its parts are for a kernel of one's own, `emulated` for code
that launches kernels of Triton's. Each is imported when it is first used: `attention` needs torch and most of fmha does
not. The command `fmha` is `python -m fmha`; the PTX machine by itself is `fmha.emulator`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would come with a fifth of what a command takes to answer an interrupt
if TYPE_CHECKING:
    from typing import Any

    from fmha.harness.attention import AttentionResult, Sparse, attention, merge
    from fmha.harness.problems.flashinfer_bench import FlashInferBench
    from fmha.harness.problems.headers import TORCH_HEADERS
    from fmha.harness.problems.kernelbench import KernelBench
    from fmha.harness.scripted.emulated import HazardError, LaunchRefusedError, emulated
    from fmha.harness.triton_kernel import TritonKernel
    from fmha.harness.worker.subjects.callable_kernel import CallableKernel
    from fmha.harness.worker.subjects.kernel import (
        At,
        Build,
        Case,
        Field,
        Kernel,
        Launch,
        Output,
        Struct,
        TensorMap,
        from_bf16,
        from_dtype,
        to_bf16,
        to_dtype,
    )

__all__ = [
    "TORCH_HEADERS",
    "At",
    "AttentionResult",
    "Build",
    "CallableKernel",
    "Case",
    "Field",
    "FlashInferBench",
    "HazardError",
    "Kernel",
    "KernelBench",
    "Launch",
    "LaunchRefusedError",
    "Output",
    "Sparse",
    "Struct",
    "TensorMap",
    "TritonKernel",
    "attention",
    "emulated",
    "from_bf16",
    "from_dtype",
    "merge",
    "to_bf16",
    "to_dtype",
]

_ATTENTION = ("AttentionResult", "Sparse", "attention", "merge")
_SCRIPTED = ("HazardError", "LaunchRefusedError", "emulated")
_HOMES = (
    dict.fromkeys(__all__, "fmha.harness.worker.subjects.kernel")
    | dict.fromkeys(_ATTENTION, "fmha.harness.attention")
    | dict.fromkeys(_SCRIPTED, "fmha.harness.scripted.emulated")
    | {
        "CallableKernel": "fmha.harness.worker.subjects.callable_kernel",
        "FlashInferBench": "fmha.harness.problems.flashinfer_bench",
        "KernelBench": "fmha.harness.problems.kernelbench",
        "TORCH_HEADERS": "fmha.harness.problems.headers",
        "TritonKernel": "fmha.harness.triton_kernel",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fmha' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
