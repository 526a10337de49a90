"""`fmha budget`: what a kernel takes of a multiprocessor, and how many of its CTAs fit.

What a launch uses of shared and tensor memory is read off the launch. Registers are ptxas's figure for the kernel;
what a role needs of them is counted in the PTX that its warps executed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fmha.emulator import _core
from fmha.emulator.debug import layouts
from fmha.emulator.debug.barriers import warps_named
from fmha.emulator.debug.differ import EXECUTED
from fmha.emulator.debug.layouts import Memory
from fmha.emulator.debug.observe import ACCESSES, BARRIERS, BEFORE, OPERANDS, TRACE, Log, Seen, own_line, words
from fmha.emulator.device import Device, Module
from fmha.harness.errors import UserError
from fmha.harness.see.diagrams import areas_of
from fmha.harness.see.subject import Subject

ALIKE: Final = 0.9  # warps of one role execute so much of what either executes


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a multiprocessor: CUDA C++ programming guide, "Technical specifications per compute capability". Bytes."""

    name: str
    registers: int
    shared: int
    shared_cta: int
    shared_reserved: int  # that each CTA costs besides
    warps: int
    ctas: int
    columns: int  # of tensor memory; 0 without it
    register_unit: int = 256  # a warp's are allocated in these
    thread_registers: int = 255


ARCHITECTURES: Final[Mapping[str, Limits]] = {
    "sm_90a": Limits("sm_90a (H100, H200)", 65536, 228 << 10, 227 << 10, 1 << 10, 64, 32, 0),
    "sm_100a": Limits("sm_100a (B200)", 65536, 228 << 10, 227 << 10, 1 << 10, 64, 32, 512),
}


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one CTA. `registers` a thread, 0 where nobody has said."""

    threads: int
    registers: int
    shared: int
    columns: int

    @property
    def warps(self) -> int:
        return -(-self.threads // 32)


@dataclass(frozen=True, slots=True)
class Occupancy:
    ctas: int
    bounds: tuple[tuple[str, int], ...]  # by resource: how many CTAs it would allow

    @property
    def limiting(self) -> tuple[str, ...]:
        return tuple(name for name, ctas in self.bounds if ctas == self.ctas)


def occupancy(needs: Needs, limits: Limits) -> Occupancy:
    """How many CTAs a multiprocessor holds, and what each resource alone would allow."""
    bounds = [("warps", limits.warps // needs.warps), ("CTAs", limits.ctas)]
    if needs.registers:
        unit = limits.register_unit
        warp = -(-needs.registers * 32 // unit) * unit
        fits = needs.registers <= limits.thread_registers
        bounds.append(("registers", limits.registers // (warp * needs.warps) if fits else 0))
    fits = needs.shared <= limits.shared_cta
    bounds.append(("shared memory", limits.shared // (needs.shared + limits.shared_reserved) if fits else 0))
    if needs.columns:
        bounds.append(("tensor memory", limits.columns // needs.columns))
    return Occupancy(min(ctas for _, ctas in bounds), tuple(bounds))


def most(needs: Needs, limits: Limits, ctas: int) -> Iterator[tuple[str, int, int]]:
    """(resource, what a CTA takes, the most it could take for `ctas` of them), of those that it takes too much of."""
    registers = limits.registers // (ctas * needs.warps) // limits.register_unit * limits.register_unit // 32
    rows = [
        ("registers a thread", needs.registers, min(registers, limits.thread_registers)),
        (
            "bytes of shared memory",
            needs.shared,
            min(limits.shared // ctas - limits.shared_reserved, limits.shared_cta),
        ),
        ("warps", needs.warps, limits.warps // ctas),
        ("columns of tensor memory", needs.columns, limits.columns // ctas),
    ]
    return (row for row in rows if row[1] > row[2])


@dataclass(frozen=True, slots=True)
class Budget:
    name: str
    arch: str
    needs: Needs
    shared: tuple[tuple[str, int, int], ...]  # (what, first byte, bytes)
    tensor: tuple[tuple[str, int, int], ...]  # (what, first column, columns)
    roles: tuple[tuple[str, int, int, tuple[str, ...]], ...]  # (warps, live registers at most, instructions, files)


def budget_of(subject: Subject) -> Budget:
    looked = _Look()
    subject.run(looked)
    log = looked.logs[0]
    memories = layouts.memory_of(log)
    memory = memories[min(memories)] if memories else Memory()
    tensor = sorted({(a.name, a.first, a.last - a.first + 1) for a in areas_of(memory)}, key=lambda x: x[1])
    shared = log.decoded.shared_static + subject.shared_bytes
    registers = subject.resources.registers if subject.resources else 0
    return Budget(
        subject.name,
        subject.arch,
        Needs(subject.threads, registers, shared, looked.columns),
        tuple(_regions(memory, log)),
        tuple(tensor),
        tuple(_roles(log, looked.trace)),
    )


class _Look:
    """Of the first launch: what was used, which columns were allocated, and who executed what."""

    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.trace: NDArray[np.void] = np.empty(0, EXECUTED)
        self.columns = 0

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        log = Log(entry, device.decoded(module, entry), device=device)
        allocates = [i.mnemonic.startswith("tcgen05.alloc") for i in log.decoded.sources]

        def tell(kind: str, event: Seen) -> None:
            if kind != "step":
                log.seen.append((kind, event))
            elif event["cta"] == 0:
                record = _core.record_of(log.decoded.program, event["pc"])
                columns = words(observer.register(event["rank"], event["warp"], record["src"][-1]))
                self.columns += int(columns[0])

        observer = _core.Observer(tell)
        observer.wants = OPERANDS | ACCESSES | BARRIERS | TRACE
        observer.stop_at(bytes(BEFORE if here else 0 for here in allocates))
        with nullcontext() if self.logs else device.observed(observer):
            yield
        if not self.logs:
            self.logs.append(log)
            self.trace = np.frombuffer(observer.trace, EXECUTED)


def _regions(memory: Memory, log: Log) -> Iterator[tuple[str, int, int]]:
    """Shared memory by who fills it: copies by their buffer, threads by their line, mbarriers; in runs."""
    owner: dict[int, str] = {}
    for event in memory.stores:
        at = words(event["at"], np.uint64).tolist()
        line = log.line(event["pc"])
        for lane, address in enumerate(at):
            if event["mask"] >> lane & 1:
                for byte in range(address & 0xFFFFFF, (address & 0xFFFFFF) + event["size"], 4):
                    owner[byte // 4] = f"stores at {line}"
    for event in memory.boxes:
        name = log.buffer(event["address"])
        for _, at, nbytes in words(event["pieces"]).reshape(-1, 3).tolist():
            for word in range(at // 4, (at + nbytes) // 4):
                known = owner.get(word, name)
                parts = known.split(" and ")
                owner[word] = known if name in parts or known.startswith("stores") else f"{known} and {name}"
    for event in log.of("barrier"):
        if event["what"] == "init" and event["cta"] == 0:
            owner[event["offset"] // 4] = owner[event["offset"] // 4 + 1] = "mbarriers"
    start = previous = None
    for word in sorted(owner):
        if start is not None and previous is not None and (word != previous + 1 or owner[word] != owner[start]):
            yield owner[start], start * 4, (previous - start + 1) * 4
            start = word
        start = word if start is None else start
        previous = word
    if start is not None and previous is not None:
        yield owner[start], start * 4, (previous - start + 1) * 4


def _roles(log: Log, trace: NDArray[np.void]) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """Warps of the first CTA that executed the same instructions."""
    executed: defaultdict[int, set[int]] = defaultdict(set)
    count: Counter[int] = Counter()
    for warp, pc in zip(*(trace[trace["cta"] == 0][name].tolist() for name in ("warp", "pc")), strict=True):
        executed[warp].add(pc)
        count[warp] += 1
    groups: defaultdict[frozenset[int], list[int]] = defaultdict(list)
    for warp, pcs in sorted(executed.items()):
        alike = next((key for key in groups if len(key & pcs) > ALIKE * len(key | pcs)), None)
        groups[alike or frozenset(pcs)].append(warp)
    live = _live(log)
    for role, warps in groups.items():
        lines = (own_line(log.decoded.sources[pc]) or "?" for pc in role)
        files = Counter(line.partition(":")[0].rpartition("/")[2] for line in lines)
        names = tuple(name for name, _ in files.most_common(2))
        yield warps_named(warps), max((live[pc] for pc in role), default=0), count[warps[0]], names


def _live(log: Log) -> list[int]:
    """By pc: the 32-bit words of PTX registers that hold a value that is read later."""
    records = [_core.record_of(log.decoded.program, pc) for pc in range(len(log.decoded.sources))]
    ret = _core.OPS["ret"], _core.OPS["bra"]
    width = {}
    for r in records:
        for unit in r["dst"]:
            if unit >= 0:
                width[unit] = 0 if r["width_dst"] == 1 else max(1, r["width_dst"] // 32)
    live: list[set[int]] = [set() for _ in range(len(records) + 1)]
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(len(records))):
            r = records[pc]
            always = r["guard"] < 0
            out: set[int] = set()
            if not (always and r["op"] in ret):
                out |= live[pc + 1]
            if r["target"] >= 0:
                out |= live[r["target"]]
            if always:
                out -= set(r["dst"])
            now = out | {unit for unit in r["src"] if unit in width} | ({r["guard"]} & width.keys())
            if now != live[pc]:
                live[pc], changed = now, True
    return [sum(width[unit] for unit in units) for units in live[:-1]]


def lines_of(budget: Budget, what_if: Mapping[str, int]) -> Iterator[str]:
    """The budget in words; `what_if` replaces fields of its needs."""
    yield f"{budget.name}, {budget.arch}"
    yield "shared memory of a CTA"
    for what, first, size in budget.shared:
        yield f"  0x{first:05x}  {size:7d}  {what}"
    used = sum(size for _, _, size in budget.shared)
    yield f"  {budget.needs.shared} bytes asked for, {used} of them touched by this launch"
    if budget.tensor:
        yield "tensor memory of a CTA, columns"
        for what, first, size in budget.tensor:
            yield f"  {first:3d}-{first + size - 1:3d}  {size:4d}  {what}"
        taken = len({c for _, first, size in budget.tensor for c in range(first, first + size)})
        yield f"  {budget.needs.columns} columns allocated, {taken} of them used"
    yield "registers by role (32-bit words of PTX registers that are live at once, at most)"
    for warps, live, count, files in budget.roles:
        yield f"  {warps:12} {live:4d}  {count} instructions, most in {', '.join(files)}"
    if budget.needs.registers:
        yield f"  ptxas gives every thread {budget.needs.registers}"
    for limits in ARCHITECTURES.values():
        yield from _fit(budget.needs, limits)
    if what_if:
        changed = replace(budget.needs, **what_if)
        yield "what if " + ", ".join(f"{name} were {value}" for name, value in what_if.items())
        for limits in ARCHITECTURES.values():
            yield from _fit(changed, limits)


def _fit(needs: Needs, limits: Limits) -> Iterator[str]:
    if needs.columns and not limits.columns:
        yield f"{limits.name}: has no tensor memory"
        return
    found = occupancy(needs, limits)
    allowed = ", ".join(f"{name} {ctas}" for name, ctas in found.bounds)
    yield f"{limits.name}: {found.ctas} CTAs a multiprocessor, bound by {' and '.join(found.limiting)} ({allowed})"
    for what, now, at_most in most(needs, limits, found.ctas + 1):
        yield f"  for {found.ctas + 1}: at most {at_most} {what}, now {now}"


def check_what_if(given: Sequence[str]) -> dict[str, int]:
    """`registers=128` and the like."""
    fields = ("threads", "registers", "shared", "columns")
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in fields or not value.isdigit() or (name == "threads" and int(value) < 1):
            raise UserError(f"--what-if: {text!r} is not one of {', '.join(f'{field}=N' for field in fields)}")
        found[name] = int(value)
    return found
