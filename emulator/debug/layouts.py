"""Which element of which matrix is where, in tensor memory and in shared memory, of a launch that was looked at.

All of it is read off what the machine did: an MMA shows the chunks that it gathered and the lanes that it wrote, a load
or store of tensor memory the cells of each register, a bulk copy the bytes that it filled. Who wrote an operand says
what it is: a matrix that a copy brought has the name of its buffer, one that threads wrote is theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator.debug.cute import Layout, layout_of, thread_value
from fmha.emulator.debug.observe import Log, Seen, lanes_of, words

Cells = NDArray[np.int64]
CHUNK: Final = 16  # bytes
THREADS: Final = "threads"  # who wrote what no copy brought


@dataclass(frozen=True, slots=True)
class MatrixOperand:
    """A matrix that a product reads: A of (rows, k), B of (n, k). `at` has the byte of each element in shared memory,
    or lane << 16 | column where it lies in tensor memory, `half` of a column's elements which."""

    source: str  # a buffer's name, or THREADS
    format: str
    bits: int
    tensor_memory: bool
    mn_major: bool
    at: Cells
    half: Cells

    @property
    def layout(self) -> Layout | None:
        """As a layout of bytes in shared memory; None for an operand in tensor memory."""
        return None if self.tensor_memory else layout_of(self.at, self.bits // 8)


@dataclass(slots=True)
class Product:
    """MMAs that add to one accumulator, one after the other: D of (m, n) at lane << 16 | column."""

    cta: int
    m: int
    n: int
    mma: str
    line: str
    d: Cells
    a: MatrixOperand
    b: MatrixOperand
    times: int = 1
    name: str = "D"  # whoever knows the kernel gives them names
    a_name: str = "A"

    @property
    def columns(self) -> tuple[int, int]:
        """The first and the last column of tensor memory."""
        return int((self.d & 0xFFFF).min()), int((self.d & 0xFFFF).max())


@dataclass(frozen=True, slots=True)
class Transfer:
    """Of one warp's tcgen05.ld or tcgen05.st: the cell of each lane's registers, (lanes, registers)."""

    line: str
    pc: int
    cta: int
    warp: int
    write: bool
    cells: Cells


@dataclass(slots=True)
class UsedMemory:
    """What a CTA's launch used."""

    products: list[Product] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    boxes: list[Seen] = field(default_factory=list)
    stores: list[Seen] = field(default_factory=list)  # of threads, to shared memory


class _Writers:
    """Who wrote each 16 bytes of each CTA's shared memory last."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._of: dict[tuple[int, int], str] = {}

    def box(self, event: Seen) -> None:
        name = self._log.buffer(event["address"])
        for _, at, nbytes in words(event["pieces"]).reshape(-1, 3).tolist():
            for chunk in range(at // CHUNK, (at + nbytes - 1) // CHUNK + 1):
                self._of[event["to_cta"], chunk] = name

    def store(self, event: Seen) -> None:
        for _, at in lanes_of(event):
            self._of[event["cta"], at // CHUNK] = THREADS

    def of(self, cta: int, byte: int) -> str:
        return self._of.get((cta, byte // CHUNK), THREADS)


def memory_of(log: Log) -> dict[int, UsedMemory]:
    """By CTA. `log` has OPERANDS, ACCESSES and BARRIERS.

    A product's MMAs are those that add to one D up to a commit: that is what somebody waits for.
    """
    writers = _Writers(log)
    found: defaultdict[int, UsedMemory] = defaultdict(UsedMemory)
    chains: dict[tuple[int, int], list[Seen]] = {}
    done: list[tuple[list[Seen], tuple[str, str]]] = []
    for kind, event in log.seen:
        if kind == "box" and event["write"]:
            writers.box(event)
            found[event["to_cta"]].boxes.append(event)
        elif kind == "access" and event["shared"] and event["write"]:
            writers.store(event)
            found[event["cta"]].stores.append(event)
        elif kind == "cells":
            cells = words(event["cells"]).reshape(-1, 32).T.astype(np.int64)
            transfer = Transfer(log.line(event["pc"]), event["pc"], event["cta"], event["warp"], event["write"], cells)
            found[event["cta"]].transfers.append(transfer)
        elif kind == "barrier" and event["what"] == "promise" and event["amount"]:
            chains = {key: chain for key, chain in chains.items() if key[0] != event["by_cta"]}
        elif kind == "mma":
            key = (event["cta"], event["d_column"])
            if not event["accumulate"] or key not in chains:
                chains[key] = []
                done.append((chains[key], (_source(writers, event, "a"), _source(writers, event, "b"))))
            chains[key].append(event)
    for chain, (a, b) in done:
        _add(found[chain[0]["cta"]].products, _product(log, chain, a, b))
    return dict(found)


def _source(writers: _Writers, event: Seen, which: str) -> str:
    operand = event[which]
    if operand["tensor_memory"]:
        return THREADS
    return writers.of(event["cta"], int(words(operand["chunks"])[0]))


def _product(log: Log, chain: Sequence[Seen], a: str, b: str) -> Product:
    first = chain[0]
    n, banks = first["n"], first["banks"]
    lanes = words(first["d_lanes"]).reshape(banks, -1).astype(np.int64)
    column = np.arange(n)
    bank, within = column // (n // banks), column % (n // banks)
    d = lanes[bank].T << 16 | first["d_column"] + within[None, :]
    shape = f"{first['m']} x {n} x {first['k']} {first['a']['format']}"
    flags = "".join(f" {flag}" for flag in ("ws", "pair") if first[flag])
    return Product(
        first["cta"],
        d.shape[0],
        n,
        f"{shape}{flags}",
        log.line(first["pc"]),
        d,
        _operand([e["a"] for e in chain], a),
        _operand([e["b"] for e in chain], b),
    )


def _operand(steps: Sequence[Seen], source: str) -> MatrixOperand:
    first = steps[0]
    parts = [_elements(step) for step in steps]
    return MatrixOperand(
        source,
        first["format"],
        first["bits"],
        first["tensor_memory"],
        first["mn_major"],
        np.concatenate([at for at, _ in parts], axis=1),
        np.concatenate([half for _, half in parts], axis=1),
    )


def _elements(operand: Seen) -> tuple[Cells, Cells]:
    """(rows, k) of one MMA."""
    rows, k, per, bits = operand["rows"], operand["k"], operand["per_chunk"], operand["bits"]
    chunks = words(operand["chunks"]).astype(np.int64)
    r, e = np.meshgrid(np.arange(rows), np.arange(k), indexing="ij")
    if operand["tensor_memory"]:
        first = chunks[2 * r + e // per]
        bit = e % per * bits
        return first + bit // 32, bit % 32 // bits
    if operand["mn_major"]:
        at = chunks[r // per * k + e] + r % per * bits // 8
    else:
        at = chunks[2 * r + e // per] + e % per * bits // 8
    return at, np.zeros_like(at)


def _add(products: list[Product], new: Product) -> None:
    for product in products:
        alike = (product.mma, product.a.source, product.b.source) == (new.mma, new.a.source, new.b.source)
        threads = new.a.source == THREADS  # of a ring that copies fill one place is as good as another
        same = np.array_equal(product.d, new.d) and (not threads or np.array_equal(product.a.at, new.a.at))
        if alike and same:
            product.times += 1
            return
    products.append(new)


def cells_of(product: Product) -> dict[int, tuple[int, int]]:
    """(row, column) of D by cell."""
    return {int(cell): (r, c) for (r, c), cell in np.ndenumerate(product.d)}


def elements_of(operand: MatrixOperand) -> dict[int, list[tuple[int, int]]]:
    """The elements (row, k) that a cell of tensor memory, or a byte of shared memory, holds the first bits of."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for (r, k), at in np.ndenumerate(operand.at):
        found[int(at)].append((r, k))
    return found


def covering(transfer: Transfer, memory: UsedMemory) -> Iterator[tuple[Product, str]]:
    """The matrices of which a load or store moves cells: D as such, and A where it is read from tensor memory."""
    cells = set(transfer.cells.ravel().tolist())
    for product in memory.products:
        if cells & set(product.d.ravel().tolist()):
            yield product, "D"
        if product.a.tensor_memory and cells & set(product.a.at.ravel().tolist()):
            yield product, "A"


def warps_transfer(transfers: Sequence[Transfer], pc: int) -> Cells:
    """(128 threads, registers) of the first execution by each warp of the instruction at `pc`."""
    first: dict[int, Cells] = {}
    for transfer in transfers:
        if transfer.pc == pc:
            first.setdefault(transfer.warp, transfer.cells)
    return np.concatenate([first[warp] for warp in sorted(first)])


def transfer_layout(cells: Cells, where: dict[int, tuple[int, int]], rows: int) -> str | None:
    """The TV layout of a load or store in terms of a matrix's rows and columns: place = row + rows * column."""
    if any(int(cell) not in where for cell in cells.ravel()):
        return None
    index = np.vectorize(lambda cell: where[int(cell)][0] + rows * where[int(cell)][1])(cells)
    return thread_value(index.astype(np.int64))
