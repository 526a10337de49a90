"""The device runtime: what a kernel calls to launch others (CUDA C++ programming guide, CUDA dynamic parallelism).

nvcc -rdc=true leaves calls of functions that libcudadevrt defines. Those that are here are PTX (device_runtime.ptx),
made of the steps that the core takes (core/ptx/control/device_runtime.cpp). A copy or a fill is the launch of a kernel.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from fmha.emulator._core import DEVICE_CALLS
from fmha.emulator.decode.builder import Builder
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Function, Instruction, ParsedModule, parse

# A step of the core: the types of what it takes and of what it gives.
STEPS = {
    "parameters": (("b64", *("b32",) * 7), "b64"),
    "launch": (("b64", "b64"), "b32"),
    "make_stream": ((), "b64"),
    "make_event": ((), "b64"),
    "drop": (("b64",), "b32"),
    "record": (("b64", "b64"), "b32"),
    "wait": (("b64", "b64"), "b32"),
    "last_error": (("b32",), "b32"),
    "fail": (("b32",), "b32"),
    "attribute": (("b32",), "b32"),
    "limit": (("b32",), "b64"),
    "text": (("b32", "b32"), "b64"),
}
_CDP1 = "of the first dynamic parallelism, which no device of compute capability 9.0 or more has"
_NO_WAIT = "a kernel cannot wait for what it launches: CUDA 12 has taken cudaDeviceSynchronize from device code"
_NOT_KNOWN = "how many registers a kernel has, no ptxas has said"
REFUSED = {
    "cudaDeviceSynchronize": _NO_WAIT,
    "__cudaDeviceSynchronizeDeprecationAvoidance": _NO_WAIT,
    **dict.fromkeys(
        ("cudaGetParameterBuffer", "cudaGetParameterBufferV2", "cudaLaunchDevice", "cudaLaunchDeviceV2"), _CDP1
    ),
    "__cudaCDP2FuncGetAttributes": _NOT_KNOWN,
    "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor": _NOT_KNOWN,
    "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessorWithFlags": _NOT_KNOWN,
    "cudaGraphLaunch": "graphs that a kernel launches are not modelled",
}


@cache
def runtime() -> ParsedModule:
    """The functions of the device runtime, written in PTX."""
    return parse((Path(__file__).parent / "device_runtime.ptx").read_text())


def with_runtime(module: ParsedModule) -> ParsedModule:
    """The module, linked with the functions of the device runtime if it names one of them. Its own come first."""
    if all(f.defined or not name.startswith("__cudaCDP2") for name, f in module.functions.items()):
        return module
    ours = runtime().functions
    functions = dict(module.functions)
    for name, function in ours.items():
        if name not in functions or not functions[name].defined:
            functions[name] = function
    return replace(module, functions=functions)


def at_call(callee: Function, call: Instruction) -> Function:
    """A function of the device runtime as if it stood where it is called; others as they are."""
    if not callee.name.startswith(("__cudaCDP2", "__fmha_")) or callee is not runtime().functions.get(callee.name):
        return callee
    body = tuple(replace(i, line=call.line, text=call.text, location=call.location) for i in callee.body)
    return replace(callee, body=body)


def take_step(b: Builder, m: Modifiers) -> None:
    """What a call of a step becomes (inlined_calls.py)."""
    name = m.choose({step: step for step in STEPS})
    m.done()
    takes, gives = STEPS[name]
    d, *operands = b.operands(1 + len(takes))
    b.emit(
        "device_runtime",
        dst=[b.dst(d, gives)],
        src=[b.src(x, t) for x, t in zip(operands, takes, strict=True)],
        immediate=DEVICE_CALLS[name],
    )


FORMS = {"%device": take_step}
