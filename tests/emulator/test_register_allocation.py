"""Registers share units of the register file, and nobody notices."""

from __future__ import annotations

import numpy as np
import pytest

from fmha.emulator.decode import program
from tests.emulator.micro import run_micro

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

    def counted(builder: program.Builder, start: dict[int, int]) -> None:
        before = builder.units
        allocate(builder, start)
        units.append((before, builder.units))

    monkeypatch.setattr(program, "allocate", counted)
    chain = "".join(f"add.u32 %r{k + 1}, %r{k}, 1;\n" for k in range(1, 30))
    run_micro("mov.b32 %r1, 0;\n" + chain + "st.shared.b32 [tile], %r30;\n")
    ((before, after),) = units
    assert after <= before - 25
