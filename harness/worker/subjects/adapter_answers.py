"""What an adapter's process may answer. It is believed in nothing: types, sizes, names and numbers are looked at here,
and CodecError or ValueError says which is none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from fmha.harness.contract.codec import CodecError, decode
from fmha.harness.contract.device import Dim3
from fmha.harness.judge.case import Field
from fmha.harness.text import lines
from fmha.harness.worker.subjects.adapter_frames import MOST_ARRAYS, MOST_BYTES, MOST_NAME
from fmha.harness.worker.subjects.dtypes import dtype_of
from fmha.harness.worker.subjects.kernel import PROFILES, At, Build, Output, TensorMap

MOST_WORDS: Final = 20_000  # characters of what went wrong
MOST_ITEMS: Final = 4096  # of anything that is a list
MOST_LAUNCHES: Final = 10_000
MOST_STRUCT: Final = 1 << 16  # bytes; CUDA passes 32,764
_ENTRY = re.compile(r"[A-Za-z_$%:][\w$:<>,&*() -]{0,4095}", re.ASCII)  # a symbol, or C++'s name of one
_MACRO = re.compile(r"[A-Za-z_]\w{0,255}", re.ASCII)
_MOST_SECONDS: Final = 1e6
_WORD: Final = 4096  # characters of a path, a flag, a macro's value


@dataclass(frozen=True, slots=True)
class Description:
    """What an adapter says of its kernel before any case is asked of. `called`: it is a callable, on a `gpu` alone;
    `faults` and `compiles`: it has a method of that kind of its own."""

    source: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]
    overwrites: tuple[str, ...]
    archs: tuple[str, ...]
    profile: str
    fields: tuple[Field, ...]
    faults: bool
    compiles: bool
    called: bool
    gpu: bool

    @property
    def plain(self) -> bool:
        """Whether its kernel is no Python: nvcc and ptxas alone read it."""
        return not self.called and not self.compiles and self.source.endswith((".cu", ".ptx"))


def description(said: Any, root: Path) -> Description:
    """What an adapter declares, checked. CodecError for anything else."""
    made = decode(Description, said, "it")
    for name in ("sources", "flags", "overwrites", "archs", "fields"):
        if len(getattr(made, name)) > MOST_ITEMS:
            raise CodecError(f"{name}: more than {MOST_ITEMS}")
    for word in (made.source, *made.sources, *made.flags, *made.overwrites, *made.archs):
        if len(word) > _WORD or not word.isprintable():
            raise CodecError(f"{word[:40]!r} is no printable word of at most {_WORD} characters")
    for name in (made.source, *made.sources):
        within(root, name)
    if made.profile not in PROFILES:
        raise CodecError(f"profile: {made.profile[:_WORD]!r} is not one of {', '.join(PROFILES)}")
    if not made.fields:
        raise CodecError("fields: there are none")
    return made


def within(root: Path, name: str) -> None:
    """ValueError for a file that is not below the root, also by a link."""
    if not (root / name).resolve().is_relative_to(root.resolve()):
        raise ValueError(f"source {name} is outside the repository")


def faults(said: Any, count: int) -> list[str | None]:
    """A word or None for each of `count` cases, checked. CodecError for anything else."""
    if not isinstance(said, list) or len(said) != count or any(type(item) not in (str, type(None)) for item in said):
        raise CodecError(f"fault: expected a word or null for each of {count} cases")
    return [None if item is None else words(item) for item in said]


@dataclass(frozen=True, slots=True)
class _Build:
    entry: str
    defines: dict[str, Any]
    shared_bytes: int
    others: tuple[str, ...]


def build(said: Any) -> Build:
    """What is compiled, checked. CodecError for anything else."""
    made = decode(_Build, said, "Build")
    for entry in (*((made.entry,) if made.entry else ()), *made.others):
        if not _ENTRY.fullmatch(entry):
            raise CodecError(f"Build: {entry[:80]!r} is no name of an entry")
    for name, value in made.defines.items():
        if not _MACRO.fullmatch(name) or not isinstance(value, str | int | float) or len(str(value)) > _WORD:
            raise CodecError(f"Build.defines: {name[:80]!r} is no macro with a value")
    _number("Build.shared_bytes", made.shared_bytes, 0, 1 << 30)
    return Build(made.entry, made.defines, made.shared_bytes, made.others)


@dataclass(frozen=True, slots=True)
class PlannedPtx:
    """PTX, what the process that compiled it has read, and the processor seconds that it took, as it says."""

    text: str
    read: dict[str, Any]
    processor_seconds: float


def compiled(said: Any) -> PlannedPtx | None:
    """Of a process that plans, checked; None where it has compiled no such case. CodecError for anything else."""
    if said == {"text": None}:
        return None
    made = decode(PlannedPtx, said, "compiled")
    if not 0.0 <= made.processor_seconds <= _MOST_SECONDS:
        raise CodecError(f"compiled.processor_seconds: {made.processor_seconds} is no time")
    made.text.encode()  # a ValueError for halves of characters
    return made


def buffers(said: Any, what: str) -> dict[str, Output]:
    """Buffers by name, with no more bytes than a run has room for. CodecError for anything else."""
    if not isinstance(said, dict) or len(said) > MOST_ARRAYS:
        raise CodecError(f"{what}: expected at most {MOST_ARRAYS} buffers by name")
    made, room = {}, MOST_BYTES
    for name, item in said.items():
        _name(f"{what}: a buffer", name)
        made[name] = decode(Output, item, f"{what}.{name}")
        for size in made[name].shape:
            _number(f"{what}.{name}.shape", size, 0, MOST_BYTES)
        room -= math.prod(made[name].shape) * dtype_of(made[name].dtype).storage.itemsize
    if room < 0:
        raise CodecError(f"{what}: more than {MOST_BYTES} bytes")
    return made


@dataclass(frozen=True, slots=True)
class _Bytes:
    hex: str


@dataclass(frozen=True, slots=True)
class _Address:
    address: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Placed:
    offset: int
    item: _Bytes | _Address | TensorMap


@dataclass(frozen=True, slots=True)
class _Struct:
    size: int
    at: tuple[_Placed, ...]


@dataclass(frozen=True, slots=True)
class _Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[_Bytes | _Address | TensorMap | _Struct, ...]
    shared_bytes: int
    cluster: tuple[int, int, int]
    entry: str
    overlaps: bool
    beside: tuple[int, ...]
    stream: str
    where: str


Plain = str | At | bytes | TensorMap  # a buffer's address by its name, a place in it, or what it is


@dataclass(frozen=True, slots=True)
class Packed:
    """A struct by value: what lies at which offset."""

    size: int
    at: Mapping[int, Plain]


@dataclass(frozen=True, slots=True)
class AnsweredLaunch:
    """One launch, as fmha.harness.worker.subjects.kernel describes it, with numbers as the bytes that are passed."""

    grid: Dim3
    block: Dim3
    args: tuple[Plain | Packed, ...]
    shared_bytes: int
    cluster: Dim3
    entry: str
    overlaps: bool
    beside: tuple[int, ...]
    stream: str
    where: str


def launches(said: Any) -> list[AnsweredLaunch]:
    """Launches, checked. CodecError for anything else."""
    if not isinstance(said, list) or len(said) > MOST_LAUNCHES:
        raise CodecError(f"launches: expected at most {MOST_LAUNCHES}")
    made = []
    for number, item in enumerate(said):
        where = f"launches[{number}]"
        found = decode(_Launch, item, where)
        for size in (*found.grid, *found.block, *found.cluster):
            _number(f"{where}: a size", size, -(1 << 31), (1 << 32) - 1)  # which of them run, the device says
        _number(f"{where}.shared_bytes", found.shared_bytes, 0, 1 << 30)
        if len(found.args) > MOST_ITEMS:
            raise CodecError(f"{where}.args: more than {MOST_ITEMS}")
        args = tuple(_argument(f"{where}.args[{at}]", argument) for at, argument in enumerate(found.args))
        if found.beside and not found.stream:
            raise CodecError(f"{where}.beside: without a stream; name the stream that this launch is in")
        for back in found.beside:
            _number(f"{where}.beside", back, 1, number)
        if len(found.where) > MOST_NAME or not found.where.isprintable():
            raise CodecError(f"{where}.where: expected a file and a line, at most {MOST_NAME} printable characters")
        made.append(
            AnsweredLaunch(**{field.name: getattr(found, field.name) for field in fields(found)} | {"args": args})
        )
    return made


def _argument(where: str, said: _Bytes | _Address | TensorMap | _Struct) -> Plain | Packed:
    if isinstance(said, _Struct):
        _number(f"{where}.size", said.size, 0, MOST_STRUCT)
        if len(said.at) > MOST_STRUCT:
            raise CodecError(f"{where}.at: more than {MOST_STRUCT}")
        at = {placed.offset: _plain(f"{where}.at", placed.item) for placed in said.at}
        return Packed(said.size, at)
    return _plain(where, said)


def _plain(where: str, said: _Bytes | _Address | TensorMap) -> Plain:
    if isinstance(said, _Bytes):
        if len(said.hex) > 2 * MOST_STRUCT:
            raise CodecError(f"{where}: more than {MOST_STRUCT} bytes")
        return bytes.fromhex(said.hex)
    if isinstance(said, _Address):
        _number(f"{where}.offset", said.offset, 0, MOST_BYTES)
        return At(said.address, said.offset) if said.offset else said.address
    for size in (*said.global_dim, *said.global_strides, *said.box_dim):
        _number(f"{where}: a size", size, 0, (1 << 63) - 1)
    return said


def seconds(said: Any, most: float) -> float:
    """Of calls that were waited for, so that they took no longer than `most`."""
    if type(said) is not float or not 0.0 < said <= most:
        raise CodecError(
            f"seconds: expected a number above 0 and at most the {most:.3g} that passed, found {said!r:.40}"
        )
    return said


def words(said: Any) -> str:
    """What it says to people: as much as may be shown."""
    if not isinstance(said, str):
        raise CodecError(f"expected words, found {said!r:.40}")
    return "\n".join(lines(said[:MOST_WORDS]))


def _name(what: str, name: str) -> None:
    if not 0 < len(name) <= MOST_NAME or not name.isprintable():
        raise CodecError(f"{what} is named {name[:40]!r}, which is no printable word of at most {MOST_NAME} characters")


def _number(what: str, value: Any, least: int, most: int) -> None:
    if not least <= value <= most:
        raise CodecError(f"{what} is {value}; it is from {least} to {most}")
