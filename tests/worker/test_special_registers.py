"""Where PTX looks at the machine."""

from __future__ import annotations

import pytest

from fmha.harness.worker.compilers.special_registers import MOST, special_registers

HEAD = '.version 8.8\n.target sm_100a\n.file 1 "kernel/a.cu"\n.file 2 "kernel/b.cuh"\n'


@pytest.mark.parametrize(
    ("line", "register"),
    [
        ("mov.u32 %r1, %clock;", "%clock"),
        ("mov.u64 %rd1, %clock64;", "%clock64"),
        ("mov.u32 %r1, %clock_hi;", "%clock_hi"),
        ("mov.u64 %rd1, %globaltimer;", "%globaltimer"),
        ("mov.u32 %r1, %globaltimer_lo;", "%globaltimer_lo"),
        ("mov.u32 %r1, %smid;", "%smid"),
        ("mov.u32 %r1, %nsmid;", "%nsmid"),
        ("mov.u32 %r1, %warpid;", "%warpid"),
        ("mov.u32 %r1, %nwarpid;", "%nwarpid"),
        ("mov.u64 %rd1, %gridid;", "%gridid"),
        ("mov.b32 %r1, %envreg3;", "%envreg3"),
        ("mov.u32 %r1, %pm0;", "%pm0"),
        ("mov.u64 %rd1, %pm7_64;", "%pm7_64"),
    ],
)
def test_a_register_is_told_with_its_place(line: str, register: str) -> None:
    text = f"{HEAD}\t.loc\t2 31 9\n\tadd.s32 %r2, %r3, 1;\n\t{line}\n"
    assert special_registers(text.encode()) == (f"{register} (kernel/b.cuh:31)",)
    assert special_registers(f"{HEAD}{line}".encode()) == (register,)


@pytest.mark.parametrize(
    "line", ["mov.u32 %r1, %smiddle;", "// reads %clock", "mov.u32 %r1, %tid.x;", "mov.u32 %r1, %clock$1;"]
)
def test_what_only_looks_like_one_is_none(line: str) -> None:
    assert special_registers(f"{HEAD}{line}\n".encode()) == ()


def test_each_place_is_told_once_and_not_too_many() -> None:
    lines = "".join(f"\t.loc\t1 {n} 1\n\tmov.u32 %r1, %smid;\n\tmov.u32 %r1, %smid;\n" for n in range(1, 40))
    found = special_registers((HEAD + lines).encode())
    assert len(found) == MOST
    assert found[:2] == ("%smid (kernel/a.cu:1)", "%smid (kernel/a.cu:2)")
