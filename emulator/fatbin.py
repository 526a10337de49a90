"""The PTX inside what nvcc makes: fat binaries (`-fatbin`), and host objects and executables that carry them.

A fat binary is a header of 16 bytes (magic, version, header size, size of what follows) and entries, each a header of
its own and a payload: PTX, or machine code for one architecture. NVIDIA does not document the layout; it was read off
what nvcc 13.0 writes under every `--compress-mode`, and anything that does not fit it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
_EM_CUDA = 190
LOADED, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"  # what a driver gets, and what nvcc -rdc=true leaves to its linker
_SECTIONS = (LOADED, RELOCATABLE)
_PTX = 1
_LZ4, _ZSTD = 0x2000, 0x8000
_HINT = (
    "cuobjdump -ptx FILE shows what there is; nvcc -gencode arch=compute_100a,code=[sm_100a,compute_100a] embeds PTX"
)


class FatbinError(ValueError):
    """A binary without PTX that can be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """PTX from a fat binary; `arch` is the number of its target, 100 for sm_100a."""

    arch: int
    text: str


def is_binary(data: bytes) -> bool:
    """Whether it begins as a cubin or as a fat binary does."""
    return data.startswith((ELF_MAGIC, FATBIN_MAGIC))


def embedded_ptx(data: bytes) -> list[Embedded]:
    """Every PTX module of a fat binary, object or executable. Raises FatbinError where there is none."""
    if data.startswith(FATBIN_MAGIC):
        found = list(_entries(data))
    elif data.startswith(ELF_MAGIC):
        found = [ptx for section in _fatbin_sections(data) for ptx in _entries(section)]
    else:
        raise FatbinError("neither an ELF file nor a fat binary")
    if not found:
        raise FatbinError(f"no PTX inside, only machine code; {_HINT}")
    return found


def fat_binaries(data: bytes) -> list[bytes]:
    """The fat binaries that stand one behind the other, each padded to 8 bytes: at least one. The last may be cut
    short."""
    found, at = [], 0
    while (at := data.find(FATBIN_MAGIC, at)) >= 0 and at + 16 <= len(data):
        header, size = struct.unpack_from("<HQ", data, at + 6)
        found.append(data[at : at + header + size])
        at += header + size
    return found or [data]


def holds_ptx(data: bytes, where: Sequence[str] = _SECTIONS) -> bool:
    """Whether there is a PTX module in a fat binary, or in these sections of an object or executable; nothing is
    unpacked."""
    sections = [data] if data.startswith(FATBIN_MAGIC) else _fatbin_sections(data, where)
    return any(True for section in sections for _ in _packed(section))


def _fatbin_sections(data: bytes, where: Sequence[str] = _SECTIONS) -> Iterator[bytes]:
    try:
        if data[4] != 2 or data[5] != 1:
            raise FatbinError("an ELF file that is not 64-bit little-endian")
        (machine,) = struct.unpack_from("<H", data, 18)
        if machine == _EM_CUDA:
            raise FatbinError(f"a cubin: machine code, with no PTX inside; {_HINT}")
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        headers = [struct.unpack_from("<IIQQQQ", data, table + size * k) for k in range(count)]
    except (struct.error, IndexError) as error:
        raise FatbinError("the ELF file is cut short") from error
    for name, _, _, _, offset, length in headers:
        start = headers[names][4] + name
        if data[start : data.find(b"\0", start)].decode("ascii", "replace") in where:
            yield data[offset : offset + length]


def _entries(section: bytes) -> Iterator[Embedded]:
    return (_ptx(header, payload) for header, payload in _packed(section))


def _packed(section: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The header and the payload of each PTX module. A section holds one fat binary a translation unit, padded to 8
    bytes."""
    at = 0
    while (at := section.find(FATBIN_MAGIC, at)) >= 0:
        try:
            _, header, size = struct.unpack_from("<HHQ", section, at + 4)
            end = at + header + size
            if end > len(section):
                raise FatbinError("the fat binary is cut short")
            at += header
            while at < end:
                kind, _, header, padded = struct.unpack_from("<HHIQ", section, at)
                if header < 64 or at + header + padded > end:
                    raise FatbinError("an entry of the fat binary has another layout than nvcc 13 writes")
                if kind == _PTX:
                    yield section[at : at + header], section[at + header : at + header + padded]
                at += header + padded
        except struct.error as error:
            raise FatbinError("the fat binary is cut short") from error


def _ptx(header: bytes, payload: bytes) -> Embedded:
    (packed,) = struct.unpack_from("<I", header, 16)
    (arch,) = struct.unpack_from("<I", header, 28)
    (flags,) = struct.unpack_from("<Q", header, 40)
    (size,) = struct.unpack_from("<Q", header, 56)
    if flags & (_LZ4 | _ZSTD):
        payload = _decompress(payload[:packed], size, bool(flags & _ZSTD))
    try:
        text = payload.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise FatbinError(f"its PTX is packed in a way that is not known (flags {flags:#x}); {_HINT}") from error
    return Embedded(arch, text)


def _decompress(packed: bytes, size: int, zstd: bool) -> bytes:
    try:
        import lz4.block  # an extra: only those need them who open a compressed binary
        import zstandard
    except ImportError as error:
        raise FatbinError(
            "its PTX is compressed, and what reads it is not there: pip install lz4 zstandard, or nvcc --no-compress"
        ) from error

    try:
        if zstd:
            return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
        unpacked: bytes = lz4.block.decompress(packed, uncompressed_size=size)
    except (zstandard.ZstdError, lz4.block.LZ4BlockError) as error:
        raise FatbinError(f"its compressed PTX is damaged: {error}") from error
    return unpacked
