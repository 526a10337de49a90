"""The bytes of a launch's parameters."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from fmha.emulator.device.illegal_launch import LaunchError
from fmha.emulator.device.module import Entry, Param


def pack_args(info: Entry, args: Sequence[bytes | int | float]) -> bytes:
    """The bytes of an entry's parameter space. LaunchError where number, size or type do not fit."""
    if len(args) != len(info.params):
        raise LaunchError(f"{info.name} takes {len(info.params)} parameters, {len(args)} were passed")
    out = bytearray(info.param_bytes)
    for param, value in zip(info.params, args, strict=True):
        out[param.offset : param.offset + param.nbytes] = _argument_bytes(param, value)
    return bytes(out)


def _argument_bytes(param: Param, value: bytes | int | float) -> bytes:
    if isinstance(value, bytes):
        if len(value) != param.nbytes:
            raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, {len(value)} were passed")
        return value
    if isinstance(value, int):
        try:
            return value.to_bytes(param.nbytes, "little", signed=value < 0)
        except OverflowError:
            raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, {value} does not fit") from None
    if param.nbytes not in (4, 8):
        raise LaunchError(f"parameter {param.name} has {param.nbytes} bytes, a float has 4 or 8")
    return struct.pack("<f" if param.nbytes == 4 else "<d", value)
