"""What a launch takes of a multiprocessor: shared memory by who fills it, tensor memory, registers by role."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Final

import numpy as np

from fmha.emulator import _core
from fmha.emulator.debug.barrier_phases import warps_named
from fmha.emulator.debug.layouts import UsedMemory
from fmha.emulator.debug.observe import (
    ACCESSES,
    BARRIERS,
    BEFORE,
    EXECUTED,
    OPERANDS,
    TRACE,
    Log,
    Seen,
    lanes_of,
    own_line,
    words,
)
from fmha.emulator.device import Device, Module

ALIKE: Final = 0.9  # warps of one role execute so much of what either executes


class Usage:
    """Looks on at the first launch, for what the functions below tell of its log. `columns` of tensor memory are those
    that its first CTA allocates; threads and dynamic shared memory are what it asks for. Later launches run unseen."""

    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.target = ""
        self.columns = self.threads = self.shared_bytes = 0

    @contextmanager
    def __call__(self, device: Device, module: Module, entry: str) -> Iterator[None]:
        log = Log(entry, device.decoded(module, entry), device=device)
        allocates = [i.mnemonic.startswith("tcgen05.alloc") for i in log.sources]

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
            assert device.latest is not None
            self.threads, self.shared_bytes = math.prod(device.latest.block), device.latest.shared_bytes
            self.target = module.target
            log.executed = np.frombuffer(observer.trace, EXECUTED)


def regions(memory: UsedMemory, log: Log) -> Iterator[tuple[str, int, int]]:
    """Shared memory by who fills it: copies by their buffer, threads by their line, mbarriers; in runs: (what, first
    byte, bytes)."""
    owner: dict[int, str] = {}
    for event in memory.stores:
        line = log.line(event["pc"])
        for _, at in lanes_of(event):
            for byte in range(at, at + event["size"], 4):
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
    for _, run in groupby(enumerate(sorted(owner)), lambda item: (item[1] - item[0], owner[item[1]])):
        run_words = [word for _, word in run]
        yield owner[run_words[0]], run_words[0] * 4, len(run_words) * 4


def roles(log: Log) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    """Of warps of the first CTA that executed the same instructions: (warps, live registers at most, instructions,
    files). `log` has TRACE."""
    own = log.executed[log.executed["cta"] == 0]
    executed: defaultdict[int, set[int]] = defaultdict(set)
    count: Counter[int] = Counter()
    for warp, pc in zip(*(own[name].tolist() for name in ("warp", "pc")), strict=True):
        executed[warp].add(pc)
        count[warp] += 1
    groups: defaultdict[frozenset[int], list[int]] = defaultdict(list)
    for warp, pcs in sorted(executed.items()):
        alike = next((key for key in groups if len(key & pcs) > ALIKE * len(key | pcs)), None)
        groups[alike or frozenset(pcs)].append(warp)
    live = _live(log)
    for role, warps in groups.items():
        lines = (own_line(log.sources[pc]) or "?" for pc in role)
        files = Counter(line.partition(":")[0].rpartition("/")[2] for line in lines)
        names = tuple(name for name, _ in files.most_common(2))
        yield warps_named(warps), max((live[pc] for pc in role), default=0), count[warps[0]], names


def _live(log: Log) -> list[int]:
    """By pc: the 32-bit words of PTX registers that hold a value that is read later."""
    records = [_core.record_of(log.decoded.program, pc) for pc in range(len(log.sources))]
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
