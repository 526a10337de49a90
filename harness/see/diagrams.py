"""What `fmha diag` prints: lines for a person, and a picture where there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fmha.emulator.debug import banks, layouts
from fmha.emulator.debug.barrier_phases import Barrier, barriers_of, warps_named
from fmha.emulator.debug.cute import thread_value
from fmha.emulator.debug.layouts import MatrixOperand, Product, Transfer, UsedMemory
from fmha.emulator.debug.observe import ACCESSES, BARRIERS, OPERANDS, Log, Recorder, lanes_of
from fmha.harness.errors import UserError
from fmha.harness.see import picture
from fmha.harness.see.launch_subject import LaunchSubject

SHOWN_THREADS: Final = (0, 1, 32, 127)
DSL_TYPES: Final = {"bf16": "cutlass.BFloat16", "f16": "cutlass.Float16"}
CONFLICT: Final = (
    "more passes than the fewest: lanes of a warp want different words of one of the 32 banks, which are 4 bytes wide",
    "  make each row of that array longer by one element (by 16 bytes, where it is read in vectors), or swizzle it",
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A drawing as text, and as SVG where there is one."""

    lines: tuple[str, ...]
    svg: str | None = None


def recorded(subject: LaunchSubject, wants: int) -> tuple[Log, tuple[str, ...]]:
    """The launch of `subject` that is meant, and a line that says which of several it is."""
    recorder = Recorder(wants)
    which = subject.look(recorder)
    return recorder.logs[0], ((which,) if which else ())


def first_cta(log: Log) -> UsedMemory:
    """What the first CTA's launch used, its matrices named. `log` has OPERANDS, ACCESSES and BARRIERS."""
    memories = layouts.memory_of(log)
    memory = memories[min(memories)] if memories else UsedMemory()
    _name(memory.products)
    return memory


def _name(products: Sequence[Product]) -> None:
    """S is what copies brought, multiplied; O is P, which threads wrote, multiplied. Kernels without both have D."""
    second = [p for p in products if p.a.source == layouts.THREADS]
    first = [p for p in products if p.a.source != layouts.THREADS]
    letters = (("S", "Q", first), ("O", "P", second)) if first and second else (("D", "A", list(products)),)
    for letter, operand, group in letters:
        for product, name in zip(group, _numbered(letter, [p.d for p in group]), strict=True):
            product.name = name
        for product, name in zip(group, _numbered(operand, [p.a.at for p in group]), strict=True):
            product.a_name = name if product.a.source == layouts.THREADS else product.a.source


def _numbered(letter: str, places: Sequence[layouts.Cells]) -> list[str]:
    """`S` for all where they have one place, S0, S1, ... by their places otherwise."""
    keys = [place.tobytes() for place in places]
    different = list(dict.fromkeys(keys))
    return [letter if len(different) == 1 else f"{letter}{different.index(key)}" for key in keys]


def tmem(subject: LaunchSubject) -> Shown:
    """Which row and column of each accumulator, and of each A in tensor memory, is in which lane and column."""
    log, which = recorded(subject, OPERANDS | ACCESSES | BARRIERS)
    memory = first_cta(log)
    if not memory.products:
        raise UserError(f"{subject.name}: the launch executes no tcgen05.mma, and tensor memory is of those")
    return Shown((*which, *_tmem_lines(memory)), picture.tensor_memory(subject.name, areas_of(memory)))


def areas_of(memory: UsedMemory) -> list[picture.Area]:
    """Where the matrices of a CTA lie."""
    areas = [_area(p.name, f"{p.d.shape[0]} x {p.n}, the D of {p.mma}", p.d) for p in _different(memory.products)]
    for p in memory.products:
        if p.a.tensor_memory:
            rows, k = p.a.at.shape
            areas.append(_area(operand_name(p), f"{rows} x {k} {p.a.format}, the A of {p.name}", p.a.at))
    return areas


def _different(products: Sequence[Product]) -> list[Product]:
    """One product of each accumulator."""
    return list({p.name: p for p in reversed(products)}.values())[::-1]


def operand_name(product: Product, which: str = "a") -> str:
    """`P` for what threads wrote and a second product reads, the buffer's name for what copies brought."""
    if which == "a":
        return product.a_name
    return product.b.source if product.b.source != layouts.THREADS else "B"


def _area(name: str, text: str, cells: layouts.Cells) -> picture.Area:
    lanes, columns = cells >> 16, cells & 0xFFFF
    first, last = int(columns.min()), int(columns.max())
    lane = int(lanes.min())
    return picture.Area(name, text, first, last, lane, int(lanes.max()) - lane + 1)


def _tmem_lines(memory: UsedMemory) -> Iterator[str]:
    yield "matrices in tensor memory (lane, column)"
    for p in memory.products:
        first, last = p.columns
        yield f"  {p.name}: {p.d.shape[0]} x {p.n} at {p.line}, {p.mma}, columns {first}-{last}, {p.times} times"
        yield f"    {p.name} = {operand_name(p)} x {operand_name(p, 'b')}; {_corners(p.d)}"
        if p.a.tensor_memory:
            yield f"    {operand_name(p)}[r, k], {p.a.format}, is read as A: {_corners(p.a.at, p.a.half)}"
    for pc in dict.fromkeys(t.pc for t in memory.transfers):
        yield from _transfer_lines(memory, [t for t in memory.transfers if t.pc == pc])


def _corners(cells: layouts.Cells, half: layouts.Cells | None = None) -> str:
    """The places of a few elements: the first, its neighbours, the last."""
    rows, columns = cells.shape
    wanted = dict.fromkeys([(0, 0), (0, 1), (1, 0), (rows // 2, 0), (0, columns // 2), (rows - 1, columns - 1)])
    places = {at: _cell(int(cells[at]), None if half is None else int(half[at])) for at in wanted}
    return ", ".join(f"[{r},{c}] in {place}" for (r, c), place in places.items())


def _cell(cell: int, half: int | None = None) -> str:
    which = "" if half is None else (" low", " high")[int(half)] if half < 2 else f" part {half}"
    return f"({cell >> 16}, {cell & 0xFFFF}{which})"


def _transfer_lines(memory: UsedMemory, transfers: Sequence[Transfer]) -> Iterator[str]:
    first = transfers[0]
    cells = layouts.warps_transfer(transfers, first.pc)
    what = "tcgen05.st" if first.write else "tcgen05.ld"
    for product, role in layouts.covering(first, memory):
        operand = role == "A"
        name = operand_name(product) if operand else product.name
        where = (
            {cell: found[0] for cell, found in layouts.elements_of(product.a).items()}
            if operand
            else layouts.cells_of(product)
        )
        rows = product.d.shape[0]
        layout = layouts.transfer_layout(cells, where, rows)
        yield f"{what} at {first.line} moves {name}, {cells.shape[1]} registers a thread"
        if layout:
            yield f"  (thread, register) -> row + {rows} * column of {name}: {layout}"
        threads = [t for t in SHOWN_THREADS if t < len(cells)]
        for thread in threads:
            found = [where.get(int(cell)) for cell in cells[thread]]
            begin, end = found[0], found[-1]
            if begin and end:
                last = f"the last {name}[{end[0]}, {end[1]}]"
                yield f"  thread {thread}: register 0 has {name}[{begin[0]}, {begin[1]}], {last}"
            else:
                yield f"  thread {thread}: cells that {name} does not have"


def smem(subject: LaunchSubject) -> Shown:
    """Where the operands of products lie in shared memory, in CuTe's notation, and bank conflicts by line."""
    log, which = recorded(subject, OPERANDS | ACCESSES | BARRIERS)
    memory = first_cta(log)
    lines = [*which, *_operand_lines(memory, log)]
    lines.append("loads and stores of threads: passes, and the fewest there could be")
    conflicts = banks.conflicts(log)
    for line in conflicts:
        factor = f"{line.passes / max(1, line.least):.2f}"
        passes = f"{line.passes} passes of at least {line.least} ({factor} times)"
        lines.append(f"  {line.line}: {line.accesses} x {line.what}, {passes}")
    if any(line.passes > line.least for line in conflicts):
        lines.extend(CONFLICT)
    return Shown(tuple(lines))


def _operand_lines(memory: UsedMemory, log: Log) -> Iterator[str]:
    yield "operands in shared memory"
    told: set[tuple[str, int]] = set()
    patterns: set[tuple[int, int, int]] = set()
    for p in memory.products:
        for which in ("a", "b"):
            operand: MatrixOperand = getattr(p, which)
            name = operand_name(p, which)
            if operand.tensor_memory or (name, int(operand.at[0, 0])) in told:
                continue
            told.add((name, int(operand.at[0, 0])))
            rows, k = operand.at.shape
            major = "MN-major" if operand.mn_major else "K-major"
            what = f"{which.upper()} of {p.name}, {rows} x {k} {operand.format}, {major}"
            yield f"  {name}: {what}, from 0x{operand.at.min():x}"
            layout = operand.layout
            if layout is None:
                yield "    no shape and strides give this"
                continue
            yield f"    (row, k): {layout}"
            if which == "a" and not operand.mn_major:
                yield f"    as MMAs read it: {layout.as_operand_a(int(p.mma.split()[4]))}"
            if layout.swizzle not in patterns:
                patterns.add(layout.swizzle)
                yield from _pattern(operand)
            if operand.source == layouts.THREADS:
                yield from _copy_lines(memory, operand, name)


def _pattern(operand: MatrixOperand) -> Iterator[str]:
    """Which 16 bytes of a row lie where, of the first eight rows of 128 bytes."""
    if operand.mn_major or operand.layout is None or not operand.layout.swizzle[0]:
        return
    per = 16 * 8 // operand.bits
    yield "    16 bytes of a row of 128, by where they lie:"
    for row in range(min(8, operand.at.shape[0])):
        at = operand.at[row, ::per][:8]
        order = np.argsort(at % 128)
        yield f"      row {row}: {' '.join(str(int(x)) for x in order)}"


def _copy_lines(memory: UsedMemory, operand: MatrixOperand, name: str) -> Iterator[str]:
    """The TiledCopy by which threads wrote an operand."""
    elements = {at: found[0] for at, found in layouts.elements_of(operand).items()}
    bytes_each = operand.bits // 8
    values: dict[int, list[int]] = {}
    size = 0
    for event in memory.stores:
        for lane, first in lanes_of(event):
            if first in elements:
                size = event["size"]
                thread = values.setdefault(32 * event["warp"] + lane, [])
                for element in range(size // bytes_each):
                    r, k = elements[first + element * bytes_each]
                    thread.append(r + operand.at.shape[0] * k)
    counts = {len(thread) for thread in values.values()}
    if not values or len(counts) != 1:
        return
    each = operand.at.size // len(values)
    index = np.array([values[thread][:each] for thread in sorted(values)], dtype=np.int64)
    rows = operand.at.shape[0]
    layout = thread_value(index)
    wide = size // bytes_each
    yield f"    threads store it {size} bytes at a time: {wide} elements of one row, {each} a thread"
    if layout is None:
        yield "    (no TV layout: the threads of the first execution do not store it alike)"
        return
    yield f"    TiledCopy, (thread, value) -> row + {rows} * k: {layout}"
    if len(values) == rows and each == operand.at.shape[1] and operand.format in DSL_TYPES:
        yield "    in the CuTe DSL, with thread t holding row t in registers, k ascending:"
        kind = DSL_TYPES[operand.format]
        yield f"      atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), {kind}, num_bits_per_copy={8 * size})"
        yield f"      threads, values = cute.make_layout(({rows}, 1)), cute.make_layout((1, {wide}))"
        yield "      copy = cute.make_tiled_copy_tv(atom, threads, values)"


def barriers(subject: LaunchSubject) -> Shown:
    """Who arrives on each mbarrier of the first CTA, and who waits."""
    log, which = recorded(subject, BARRIERS)
    found = [barrier for barrier in barriers_of(log).values() if barrier.cta == 0]
    if not found:
        raise UserError(f"{subject.name}: the launch uses no mbarrier")
    lines = [*which]
    edges: list[tuple[str, int, str, bool]] = []
    for index, b in enumerate(found):
        lines.append(f"mbarrier 0x{b.offset:x}: count {b.count}, {_phases(b)}, initialised at {b.line}")
        for party in b.arriving:
            lines.append(f"  {party.how:9} {party}")
            edges.append((_node(party.warps, party.line), index, f"{party.how}: {party}", True))
        if b.expected:
            lines.append(
                f"  bytes     {_amounts(b.bytes.values())} a phase, of {_amounts(b.expected.values())} expected"
            )
        for party in b.waiting:
            parities = sorted(parity for parity, times in b.parities[party.line].items() if times)
            lines.append(f"  waits     {party}, parity {' and '.join(map(str, parities)) or 'none seen'}")
            edges.append((_node(party.warps, party.line), index, f"waits: {party}", False))
    middle = [f"0x{b.offset:x}, count {b.count}\n{_phases(b)}" for b in found]
    return Shown(tuple(lines), picture.graph(f"mbarriers of {subject.name}", middle, edges))


def _phases(barrier: Barrier) -> str:
    return "1 phase" if barrier.phases == 1 else f"{barrier.phases} phases"


def _amounts(amounts: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(amounts))))


def _node(warps: Sequence[int], line: str) -> str:
    return f"{warps_named(warps)}\n{line}"
