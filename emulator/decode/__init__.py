"""A parsed entry -> the core's decoded program. A form that no table row covers is a `PtxError` that names the line."""

from fmha.emulator.decode.builder import function_address
from fmha.emulator.decode.control.inlined_calls import launchable
from fmha.emulator.decode.memory.multimem import MULTIMEM
from fmha.emulator.decode.program import Decoded, decode_entry, device_steps, parameter_layout, uses_heap

__all__ = [
    "MULTIMEM",
    "Decoded",
    "decode_entry",
    "device_steps",
    "function_address",
    "launchable",
    "parameter_layout",
    "uses_heap",
]
