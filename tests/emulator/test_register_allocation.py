"""Registers share units of the register file, and nobody notices."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import pytest

from fmha.emulator import Device, load_ptx
from fmha.emulator.decode import allocation, program
from fmha.emulator.decode.builder import Emitted
from tests.emulator.micro import micro_ptx, run_micro

Allocated = tuple[dict[str, allocation.RegisterPlace], int]

# Lane 0 goes ahead and writes a word while the others still need the predicate, which is dead where lane 0 is.
DIVERGED = """
setp.ne.u32 %p2, %lane, 0;
mov.b32 %r2, 0;
@!%p2 bra AHEAD;
L:
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, 300;
@%p1 bra L;
@%p2 mov.b32 %r2, 7;
bra.uni END;
AHEAD:
mov.b32 %r3, 0;
add.u32 %r4, %r3, 5;
add.u32 %r2, %r4, %r3;
END:
shl.b32 %r5, %thread, 2;
cvt.u64.u32 %d1, %r5;
add.u64 %d1, %d1, %out;
st.global.b32 [%d1], %r2;
"""


@pytest.mark.parametrize("seed", range(4))
def test_lanes_at_different_places_keep_their_values(seed: int) -> None:
    report, device, out = run_micro(DIVERGED, schedule="random", seed=seed)
    assert report.findings == ()
    values = device.read(out.address, 128).view(np.uint32)
    assert values.tolist() == [5] + [7] * 31


# %r4 could have the place of %r3, which is dead, and whose value it would then seem to have.
UNWRITTEN = """
mov.b32 %r3, 1;
st.shared.b32 [tile], %r3;
st.shared.b32 [tile+4], %r4;
"""


def test_a_register_that_nothing_writes_has_no_value() -> None:
    report, _, _ = run_micro(UNWRITTEN)
    assert "uninitialised-register" in {finding.rule for finding in report.findings}


def test_registers_of_one_value_after_another_share(monkeypatch: pytest.MonkeyPatch) -> None:
    units: list[tuple[int, int]] = []
    allocate = program.allocate

    def counted(builder: program.Builder, start: dict[int, int]) -> Allocated:
        before = builder.units
        placed = allocate(builder, start)
        units.append((before, builder.units))
        return placed

    monkeypatch.setattr(program, "allocate", counted)
    chain = "".join(f"add.u32 %r{k + 1}, %r{k}, 1;\n" for k in range(1, 30))
    run_micro("mov.b32 %r1, 0;\n" + chain + "st.shared.b32 [tile], %r30;\n")
    ((before, after),) = units
    assert after <= before - 25


def test_a_program_whose_instructions_are_ordered_anew_has_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is beside the one that is run, whose registers share."""
    packed: list[int] = []
    pack = program._pack

    def seen(emitted: list[Emitted], start: Mapping[int, int], meet: list[int]) -> tuple[bytes, bytes]:
        packed.append(len({unit for e in emitted for unit in e.dst}))
        return pack(emitted, start, meet)

    monkeypatch.setattr(program, "_pack", seen)
    chain = "".join(f"add.u32 %r{k + 1}, %r{k}, 1;\n" for k in range(1, 30))
    ptx = micro_ptx("mov.b32 %r1, 0;\n" + chain + "st.shared.b32 [tile], %r30;\n")
    for reordered, programs in ((False, 1), (True, 2)):
        packed.clear()
        decoded = Device(timing="b200", reordered=reordered).decoded(load_ptx(ptx), "kernel")
        assert (decoded.apart is not None, len(packed)) == (reordered, programs)
        assert packed[-1] <= 5
        assert max(packed) >= 30 or not reordered


def _random_function(seed: int, blocks: int, registers: int) -> str:
    """A body of blocks in a random graph, whose registers live within one or across many."""
    draw = np.random.default_rng(seed)
    body = [f"mov.b32 %x{k}, {k};" for k in range(0, registers, 2)]
    for block in range(blocks):
        body.append(f"L{block}:")
        for _ in range(draw.integers(1, 6)):
            d, a, b = draw.integers(0, registers, 3)
            guard = "@%p1 " if draw.random() < 0.2 else ""
            body.append(f"{guard}add.u32 %x{d}, %x{a}, %x{b};")
        if draw.random() < 0.6:
            body.append(f"setp.ne.u32 %p1, %x{draw.integers(0, registers)}, 0;\n@%p1 bra L{draw.integers(0, blocks)};")
    return f".reg .b32 %x<{registers}>;\n" + "\n".join(body)


def _live_pcs(emitted: list[Emitted], start: dict[int, int]) -> dict[int, tuple[int, int]]:
    """The intervals by definition: a unit is live before pc if a path leads from there to a read, over no write."""
    count = len(emitted)
    after: list[list[int]] = []
    for pc, e in enumerate(emitted):
        goes = [start[t] for t in (e.target, *e.targets) if t >= 0]
        falls = e.op not in ("ret", "bra") or e.guard >= 0
        after.append([n for n in (*goes, *([pc + 1] if falls else [])) if n < count])
    reads = [{*(u for u in e.src if u >= 0), *([e.guard] if e.guard >= 0 else [])} for e in emitted]
    kills = [{u for u in e.dst if u >= 0} if e.guard < 0 else set() for e in emitted]
    into: list[set[int]] = [set() for _ in emitted]
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(count)):
            out = set().union(*(into[n] for n in after[pc]))
            now = reads[pc] | (out - kills[pc])
            changed, into[pc] = changed or now != into[pc], now
    found: dict[int, tuple[int, int]] = {}
    for pc, e in enumerate(emitted):
        out = set().union(*(into[n] for n in after[pc]))
        for unit in into[pc] | out | {u for u in e.dst if u >= 0}:
            found[unit] = found.get(unit, (pc, pc))[0], pc
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_register_is_kept_while_it_may_be_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(builder: program.Builder, start: dict[int, int]) -> Allocated:
        expected = _live_pcs(builder.emitted, start)
        assert allocation._intervals(builder.emitted, start) == expected
        compared.append(len(expected))
        return allocation.allocate(builder, start)

    monkeypatch.setattr(program, "allocate", compare)
    Device().decoded(load_ptx(micro_ptx(_random_function(seed, 24, 40))), "kernel")
    assert compared[0] > 40


def _calls_of_allocation(blocks: int) -> int:
    """How often Python calls or resumes anything while it allocates a function of so many blocks, through which a tenth
    as many registers live."""
    alive = blocks // 10
    body = [f"mov.b32 %x{k}, {k};" for k in range(alive)]
    for block in range(blocks):
        body.append(
            f"add.u32 %y{block}, %x{block % alive}, 1;\nst.shared.b32 [tile], %y{block};@%off bra L{block};\nL{block}:"
        )
    body += [f"st.shared.b32 [tile], %x{k};" for k in range(alive)]
    ptx = micro_ptx(f".reg .b32 %x<{alive}>, %y<{blocks}>;\n" + "\n".join(body))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    def counted(builder: program.Builder, start: dict[int, int]) -> Allocated:
        sys.setprofile(count)
        try:
            return allocation.allocate(builder, start)
        finally:
            sys.setprofile(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "allocate", counted)
        Device().decoded(load_ptx(ptx), "kernel")
    return calls


def test_the_work_grows_as_the_function_does() -> None:
    assert _calls_of_allocation(800) < 2.2 * _calls_of_allocation(400)
