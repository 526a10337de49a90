"""The kernel's C ABI as its headers say it: the layout of the parameter struct, constants, and launch shapes.

Python reads kernel/include as text, where C++ compiles it, so that neither is written a second time. Understood is what
stands there: fields of a fixed size, one a line, constants that are a number or a bit, and constexpr functions of whole
numbers. What is not understood is an error here, and tests/kernel_side/test_params.py holds a compiler's answers to
what was read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

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
_FUNCTION: Final = re.compile(r"^constexpr \w+ (fmha_\w+)\((.*?)\) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_GROUP: Final = re.compile(r"\(([^()]*)\)")
_HELD: Final = re.compile(r"@(\d+)")
_WORDS: Final = {"&&": " and ", "||": " or ", "/": "//"}  # numbers of launches are not negative
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


def functions_of(text: str, constants: Mapping[str, int]) -> dict[str, Callable[..., Any]]:
    """The constexpr functions by their names, made into Python: of whole numbers, and of structs that have them for
    attributes. One that returns a struct returns its fields in their order. ValueError for what is not understood."""
    found: dict[str, Any] = {f"kFmha{name}": value for name, value in constants.items()}
    found |= {"true": True, "false": False}
    names = []
    for name, parameters, body in _FUNCTION.findall(text):
        code = " ".join(line.partition("//")[0] for line in body.splitlines())
        lines = [_statement(part.strip()) for part in code.split(";") if part.strip()]
        given = ", ".join(" ".join(part.split()[1:]) for part in parameters.split(","))
        source = f"def {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)
        try:
            exec(compile(source, name, "exec"), found)  # of a header that comes with this file
        except SyntaxError as error:
            raise ValueError(f"{name} of {LAUNCH_HEADER} is not understood: {error.text}") from error
        names.append(name)
    return {name: found[name] for name in names}


def _statement(text: str) -> str:
    """A definition of constants, or a `return`."""
    held: list[str] = []

    def hold(group: re.Match[str]) -> str:
        held.append(f"({', '.join(map(_chosen, group[1].split(',')))})")
        return f"@{len(held) - 1}"

    for sign, word in _WORDS.items():
        text = text.replace(sign, word)
    while _GROUP.search(text):
        text = _GROUP.sub(hold, text)
    returned = text.removeprefix("return ")
    if returned != text:
        text = "return " + ", ".join(map(_chosen, returned.strip("{} ").split(",")))
    else:
        named = (part.partition("=") for part in text.removeprefix("const int32_t ").split(","))
        text = "; ".join(f"{name.strip()} = {_chosen(value)}" for name, _, value in named)
    while _HELD.search(text):
        text = _HELD.sub(lambda found: held[int(found[1])], text)
    return text


def _chosen(text: str) -> str:
    """`a ? b : c` as Python has it, for however many of them there are in a row."""
    condition, asked, rest = text.partition("?")
    if not asked:
        return text.strip()
    value, _, other = rest.partition(":")
    return f"({value.strip()} if {condition.strip()} else {_chosen(other)})"


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
