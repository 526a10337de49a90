"""A module's own variables in device memory, and what they hold at first."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator import _core
from fmha.emulator.decode import function_address
from fmha.emulator.device.illegal_launch import LaunchError
from fmha.emulator.device.module import Module
from fmha.emulator.ptx import ParsedModule as ParsedModule
from fmha.emulator.ptx import PtxError, Variable


def place_variables(machine: _core.Machine, module: Module) -> dict[str, int]:
    """Gives the module's .global and .const variables device memory and their initial values."""
    variables = [v for v in module.parsed.variables.values() if v.space in ("global", "const") and not v.extern]
    placed: dict[str, int] = {}
    for v in variables:
        try:
            placed[v.name] = machine.allocate(max(v.nbytes, 1), v.name)
            machine.zero(placed[v.name], max(v.nbytes, 1))
        except (MemoryError, TypeError, ValueError):  # of more than 64 bits, or than there are addresses
            raise LaunchError(f"there is no room for the {v.nbytes} bytes of {v.name}") from None
    for v in variables:
        if v.initializer:
            machine.write(placed[v.name], _initial_bytes(v, module.parsed, placed))
    return placed


def _initial_bytes(v: Variable, module: ParsedModule, placed: Mapping[str, int]) -> bytes:
    """A variable's initializer with the addresses that it names: of variables and functions, or bytes of one."""
    data = bytearray(v.initializer or b"")
    for r in v.relocations:
        if r.symbol in placed:
            address = placed[r.symbol]
        elif r.symbol in module.functions:
            address = function_address(module, r.symbol)
        else:
            message = f"initializer of '{v.name}' holds the address of '{r.symbol}', which is not modelled"
            raise PtxError(message, v.line)
        value = address + r.addend
        if r.mask:
            value = (value & r.mask) >> (r.mask & -r.mask).bit_length() - 1
        data[r.offset : r.offset + r.nbytes] = (value % (1 << 8 * r.nbytes)).to_bytes(r.nbytes, "little")
    return bytes(data)
