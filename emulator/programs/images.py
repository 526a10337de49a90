"""Which PTX of a program's modules a device takes, and what can be told of a program before it is started."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fmha.emulator.fatbin import (
    ELF_MAGIC,
    FATBIN_MAGIC,
    LOADED,
    RELOCATABLE,
    Embedded,
    FatbinError,
    embedded_ptx,
    fat_binaries,
    holds_ptx,
    is_binary,
)

_TARGET: Final = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_RUNTIME: Final = "libcudart.so."
RUNTIME: Final = "libcudart.so.13"
_HOW: Final = "nvcc -cudart shared -gencode arch=compute_100a,code=[sm_100a,compute_100a]"


def ptx_for(image: bytes, arch: int) -> str:
    """The PTX that a driver for a device of compute capability `arch`, 100 or 90, compiles: of the targets that run on
    it the newest. FatbinError where there is none."""
    if not is_binary(image):
        return image.decode(errors="replace").rstrip("\0")
    found = embedded_ptx(image)
    if text := _newest(found, arch):
        return text
    inside = ", ".join(f"sm_{target[0]}{target[1]}" for ptx in found if (target := _target(ptx.text)))
    raise FatbinError(f"its PTX is for {inside}, none of which runs on sm_{arch}a; compile it with: {_HOW}")


def units_for(image: bytes, arch: int) -> list[str]:
    """The same of each translation unit of an image: what nvcc -rdc=true has compiled apart is linked when it is
    loaded. Units without PTX for the device are left out, as those of CUDA's own library are; FatbinError where none
    has any."""
    if not image.startswith(FATBIN_MAGIC):
        return [ptx_for(image, arch)]
    units = fat_binaries(image)
    found = [text for unit in units if holds_ptx(unit) and (text := _newest(embedded_ptx(unit), arch))]
    return found or [ptx_for(units[0], arch)]


def _newest(found: Sequence[Embedded], arch: int) -> str | None:
    targets = [(target, ptx.text) for ptx in found if (target := _target(ptx.text))]
    fitting = [(rank, text) for (number, suffix), text in targets if (rank := _rank(number, suffix, arch))]
    return max(fitting)[1] if fitting else None


def _target(text: str) -> tuple[int, str] | None:
    found = _TARGET.search(text)
    return (int(found[1]), found[2]) if found else None


def _rank(number: int, suffix: str, arch: int) -> tuple[int, int] | None:
    """None for a target that the device does not run: sm_100a is for itself alone, sm_100f for its family."""
    runs = {"a": number == arch, "f": number <= arch and number // 10 == arch // 10, "": number <= arch}[suffix]
    return (number, ("", "f", "a").index(suffix)) if runs else None


def why_not(program: Path) -> str | None:
    """Why a program's kernels cannot be run as it is, and what to do; None where nothing speaks against it."""
    data = program.read_bytes()
    if not data.startswith(ELF_MAGIC):
        return None
    needed, sections = _needed(data), _section_names(data)
    runtimes = [name for name in needed if name.startswith(_RUNTIME)]
    if runtimes and RUNTIME not in runtimes:
        return f"it is linked with {runtimes[0]}, and {RUNTIME} is what is there: build it with CUDA 13's {_HOW}"
    has_kernels = LOADED in sections
    if has_kernels and not runtimes and "libcuda.so.1" not in needed:
        return f"the CUDA runtime is linked into it: build it with {_HOW}"
    if has_kernels and not holds_ptx(data, (LOADED,)):
        if holds_ptx(data, (RELOCATABLE,)):
            return None  # translation units that are linked when they are loaded
        return f"no PTX inside, only machine code: build it with {_HOW}"
    return None


def _sections(data: bytes) -> list[tuple[str, int, int, int, int]]:
    """(name, type, offset, size, link)."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQII", data, table + size * k) for k in range(count)]
    start = headers[names][4] if headers else 0
    return [(_string(data, start + h[0]), h[1], h[4], h[5], h[6]) for h in headers]


def _string(data: bytes, at: int) -> str:
    return data[at : data.find(b"\0", at)].decode(errors="replace")


def _section_names(data: bytes) -> set[str]:
    return {name for name, *_ in _sections(data)}


def _needed(data: bytes) -> list[str]:
    """The shared libraries that an ELF file names."""
    sections = _sections(data)
    found = []
    for _, kind, offset, size, link in sections:
        if kind != 6:  # SHT_DYNAMIC
            continue
        strings = sections[link][2]
        for at in range(offset, offset + size, 16):
            tag, value = struct.unpack_from("<QQ", data, at)
            if tag == 1:  # DT_NEEDED
                found.append(_string(data, strings + value))
    return found
