"""The kernel's C ABI as its headers say it: the layout of the parameter struct, and constants.

Python reads kernel/include as text, where C++ compiles it, so that neither is written a second time. Understood is what
stands there: fields of a fixed size, one a line, and constants that are a number or a bit. What is not understood is an
error here, and tests/kernel_side/test_params.py holds a compiler's answers to what was read.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Final

# From the root of a checkout, or of what a wheel brings. Whoever lays out this package elsewhere takes them with it.
PARAMS_HEADER: Final = "kernel/include/fmha_params.h"
LAUNCH_HEADER: Final = "kernel/include/fmha_launch.h"
SM90_TABLE: Final = "kernel/sm90/shapes.h"
HEADERS: Final = (PARAMS_HEADER, LAUNCH_HEADER, SM90_TABLE)
Layout = tuple[tuple[str, int, str], ...]  # field, offset in bytes, struct format; little-endian, as every GPU and host

POINTER: Final = "Q"  # a device address
MAP: Final = "128s"
_FORMATS: Final = {"FmhaTensorMap": MAP, "int32_t": "i", "uint32_t": "I", "float": "f"}
_STRUCT: Final = re.compile(r"^struct FmhaParams \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"(?:const )?(\w+)(\*?) (\w+);")
_CONSTANT: Final = re.compile(r"^constexpr u?int32_t kFmha(\w+) = (1u << )?(-?\d+);", re.MULTILINE)
_MAP_ALIGNMENT: Final = 64  # of FmhaTensorMap, and so of the whole struct


def header(name: str) -> Path:
    """A header by its path from the root of a checkout; where there is no checkout, the one that a wheel brought."""
    harness = Path(__file__).resolve().parents[1]
    brought = harness / "project" / name
    return brought if brought.is_file() else harness.parent / name


def layout_of(text: str) -> tuple[Layout, int]:
    """The fields of FmhaParams as a C++ compiler lays them out, and its size. ValueError for what is not understood."""
    body = _STRUCT.search(text)
    if body is None:
        raise ValueError("there is no struct FmhaParams")
    code = (line.partition("//")[0].strip() for line in body[1].splitlines())
    fields: list[tuple[str, int, str]] = []
    end = 0
    for line in filter(None, code):
        field = _FIELD.fullmatch(line)
        if field is None or (not field[2] and field[1] not in _FORMATS):
            raise ValueError(f"FmhaParams: {line!r} is no field of a type that is known here")
        kind = POINTER if field[2] else _FORMATS[field[1]]
        size = struct.calcsize(f"<{kind}")
        offset = _aligned(end, min(size, _MAP_ALIGNMENT))
        fields.append((field[3], offset, kind))
        end = offset + size
    return tuple(fields), _aligned(end, _MAP_ALIGNMENT)


def constants_of(text: str) -> dict[str, int]:
    """The constants that are a number or a bit, by their names without `kFmha`."""
    return {name: 1 << int(value) if bit else int(value) for name, bit, value in _CONSTANT.findall(text)}


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
