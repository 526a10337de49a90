"""Parsed PTX, its entries and their parameters, and the programs that they are decoded to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fmha.emulator.decode import Decoded, decode_entry, parameter_layout
from fmha.emulator.fatbin import FatbinError, embedded_ptx, is_binary
from fmha.emulator.ptx import Function, parse
from fmha.emulator.ptx import ParsedModule as ParsedModule

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter, sizes in bytes."""

    name: str
    nbytes: int
    align: int
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of a module: its parameters, and what its directives demand of a launch."""

    name: str
    params: tuple[Param, ...]
    param_bytes: int
    max_threads: int | None  # .maxntid, or the product of .reqntid
    required_block: Dim3 | None  # .reqntid
    required_cluster: Dim3 | None = None  # .reqnctapercluster
    explicit_cluster: bool = False  # .explicitcluster: a launch has to give cluster dimensions
    max_cluster: int | None = None  # .maxclusterrank
    least_ctas: int | None = None  # .minnctapersm


class Module:
    """Parsed PTX. Entries are decoded when they are first launched."""

    def __init__(self, parsed: ParsedModule) -> None:
        self.parsed = parsed
        self.entries = {name: entry_of(f) for name, f in parsed.entries.items() if f.defined}
        self._decoded: dict[tuple[object, ...], Decoded] = {}

    @property
    def target(self) -> str:
        """The `.target` of the PTX, as sm_100a."""
        return self.parsed.target

    def decode(self, entry: str, symbols: Mapping[str, int], apart: bool = False) -> Decoded:
        """The program of an entry whose module's variables lie at `symbols`; PtxError for what is not modelled. With
        `apart` also the program whose instructions can be ordered anew."""
        key = (entry, apart, *sorted(symbols.items()))
        if key not in self._decoded:
            self._decoded[key] = decode_entry(self.parsed, entry, symbols, apart)
        return self._decoded[key]


def entry_of(function: Function) -> Entry:
    """A function of PTX as an entry, with its parameters laid out."""
    offsets, total = parameter_layout(function)
    params = tuple(Param(p.name, p.nbytes, p.align, offsets[p.name]) for p in function.params)
    directives = function.directives
    required = directives.get("reqntid")
    limit = required or directives.get("maxntid")
    threads = int(np.prod([int(x) for x in limit])) if limit else None
    block = _three(required) if required else None
    cluster = directives.get("reqnctapercluster")
    most = directives.get("maxclusterrank")
    least = directives.get("minnctapersm")
    return Entry(
        function.name,
        params,
        total,
        threads,
        block,
        _three(cluster) if cluster else None,
        "explicitcluster" in directives,
        int(most[0]) if most else None,
        int(least[0]) if least else None,
    )


def _three(values: Sequence[object]) -> Dim3:
    x, y, z = (*(int(str(n)) for n in values), 1, 1)[:3]
    return (x, y, z)


def load_ptx(source: str | Path, arch: int | None = None) -> Module:
    """Parses PTX text, or the file at a path: PTX, or a fat binary, object or executable that holds PTX.

    `arch` chooses among the targets of a binary that holds several: 100 for sm_100a. Raises PtxError naming the line,
    and FatbinError for a binary without PTX, or with several modules of which none is chosen.
    """
    if not isinstance(source, Path):
        return Module(parse(source))
    data = source.read_bytes()
    if not is_binary(data):
        return Module(parse(data.decode(), str(source)))
    found = [ptx for ptx in embedded_ptx(data) if arch is None or ptx.arch == arch]
    if len(found) != 1:
        inside = ", ".join(f"compute_{ptx.arch}" for ptx in embedded_ptx(data))
        raise FatbinError(f"{len(found)} PTX modules to choose from (inside: {inside}); pass arch, or link them apart")
    return Module(parse(found[0].text, str(source)))
