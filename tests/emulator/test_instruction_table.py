"""The table of operations: what the syntax of a row says is what decodes, and each operation has a handler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator import _core
from fmha.emulator._core import MODS, OPS, TYPES
from fmha.emulator.decode import decode_entry
from fmha.emulator.decode.__main__ import page
from fmha.emulator.decode.program import FAMILIES, FUNCTIONS
from fmha.emulator.decode.supported import supported
from fmha.emulator.decode.table import LINES, TABLE, Form, Taken, line_of, read
from tests.emulator.opcode_samples import HEADER, sample
from tests.emulator.test_opcode_coverage import MISSING, OPCODES


def program(statements: list[str]) -> _core.Program:
    text = HEADER.replace("%s", "\n  ".join(statements))
    return decode_entry(emulator.load_ptx(text).parsed, "k", {}).program


@pytest.mark.parametrize("form", TABLE, ids=lambda form: form.text)
def test_every_spelling_of_a_row_is_its_operation_and_has_a_handler(form: Form) -> None:
    statements = [sample(spelling) for spelling in form.spellings()]
    decoded = program(statements)  # refused without a handler
    assert {_core.record_of(decoded, pc)["op"] for pc in range(len(statements))} == {OPS[form.operation]}


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("prmt.b32", {"op": "prmt", "type": "b32", "mods": 0, "immediate": 0}),
        ("prmt.b32.rc8", {"op": "prmt", "type": "b32", "mods": 0, "immediate": 3}),
        ("shf.r.wrap.b32", {"op": "shf_r", "mods": 0, "immediate": 1}),
        ("shf.r.clamp.b32", {"op": "shf_r", "mods": 0, "immediate": 0}),
        ("lg2.approx.ftz.f32", {"op": "lg2", "mods": MODS["approx"] | MODS["ftz"], "immediate": 0}),
        ("lg2.approx.f32", {"op": "lg2", "mods": MODS["approx"], "immediate": 0}),
        ("mad24.hi.s32", {"op": "mad24_hi", "type": "s32", "mods": 0}),
        ("mad24.hi.sat.s32", {"op": "mad24_hi", "type": "s32", "mods": MODS["sat"]}),
        ("bfind.shiftamt.u64", {"type": "u64", "immediate": 1, "width_dst": 32, "width_src": 64}),
        ("testp.normal.f64", {"type": "f64", "immediate": 4, "width_dst": 1, "width_src": 64}),
        ("abs.ftz.f16x2", {"op": "abs", "type": "f16x2", "mods": MODS["ftz"]}),
        ("slct.ftz.f64.f32", {"type": "f64", "mods": MODS["ftz"]}),
        ("lop3.b32", {"type": "b32", "immediate": 5, "width_src": 32}),
        ("mbarrier.init.shared::cta.b64", {"type": "b64", "mods": 0, "immediate": 0, "width_src": 32}),
        ("cp.async.bulk.wait_group.read", {"mods": MODS["bulk_read"], "immediate": 1}),
        ("barrier.cluster.arrive.relaxed.aligned", {"mods": MODS["cluster_relaxed"], "immediate": 0}),
        ("barrier.cluster.arrive.release", {"mods": 0, "immediate": 0}),
        ("elect.sync", {"type": "b32", "width_dst": 32}),
        ("tcgen05.dealloc.cta_group::2.sync.aligned.b32", {"mods": MODS["tc_pair"], "type": "b32"}),
        ("tcgen05.alloc.cta_group::1.sync.aligned.b32", {"mods": 0, "width_src": 64}),
    ],
)
def test_a_record_is_what_the_row_says(opcode: str, expected: dict[str, object]) -> None:
    record = _core.record_of(program([sample(opcode)]), 0)
    numbers = {"op": OPS, "type": TYPES}
    assert {key: record[key] for key in expected} == {
        key: numbers[key][value] if key in numbers else value
        for key, value in expected.items()  # type: ignore[index]
    }


@pytest.mark.parametrize(
    ("opcode", "modifiers", "expected"),
    [
        ("barrier", ("cluster", "arrive", "aligned"), Taken(("none",), 0, 0, aligned=True)),
        ("barrier", ("cluster", "arrive"), Taken(("none",), 0, 0, aligned=False)),
        ("slct", ("s32", "f32"), Taken(("s32", "f32"), 0, 0, aligned=False)),
        ("slct", ("f32", "f32"), Taken(("f32", "f32"), 0, 0, aligned=False)),
    ],
)
def test_an_instruction_is_decoded_by_the_line_that_has_its_modifiers(
    opcode: str, modifiers: tuple[str, ...], expected: Taken
) -> None:
    found = line_of(opcode, modifiers)
    assert found
    assert found[1] == expected


def test_a_function_gets_what_no_line_says() -> None:
    assert line_of("mad", ("lo", "u32"))
    assert line_of("mad", ("lo", "cc", "u32")) is None
    assert _core.record_of(program(["mad.lo.cc.u32 %r1, %r2, %r3, %r4;"]), 0)["op"] == OPS["carry_mad_lo"]


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("mul24.s32 %r1, %r2, %r3;", "one of .hi, .lo is missing in mul24.s32"),
        ("mad24.hi.sat.u32 %r1, %r2, %r3, %r4;", "modifier .sat is unknown or not modelled in mad24.hi.sat.u32"),
        ("bmsk.b32 %r1, %r2, %r3;", "one of .clamp, .wrap is missing in bmsk.b32"),
        ("szext.wrap.u64 %d1, %d2, %r3;", "type .u64 is not modelled here in szext.wrap.u64"),
        ("fns.b32 %r1, %r2, %r3;", "4 operands are expected, not 3"),
        ("abs.ftz.s32 %r1, %r2;", "modifier .ftz is unknown or not modelled in abs.ftz.s32"),
        ("slct.ftz.u32.s32 %r1, %r2, %r3, %r4;", "modifier .ftz is unknown or not modelled in slct.ftz.u32.s32"),
        ("mad.lo.cc.f32 %r1, %r2, %r3, %r4;", "type .f32 is not modelled here"),
        ("mad.lo.cc.u32 %r1, %r2, %r3;", "4 operands are expected, not 3"),
        ("div.f32 %r1, %r2, %r3;", "div of floating-point numbers is .approx, .full, .rn"),
        ("cp.async.wait_group %r1;", "a constant that is not negative is expected"),
        ("cp.async.wait_group -1;", "a constant that is not negative is expected"),
        ("mbarrier.init.shared::cluster.b64 [%r1], %r2;", "modifier .shared::cluster is unknown or not modelled"),
        ("tcgen05.wait::ld.sync;", "modifier .aligned is missing in tcgen05.wait::ld.sync"),
    ],
)
def test_what_no_row_says_is_refused_by_name(statement: str, complaint: str) -> None:
    with pytest.raises(emulator.PtxError) as refused:
        program([statement])
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("add{.ftz|.b32} d, a", "names of several kinds in one place"),
        ("add.f32 d, a:f33", "an operand of type 'f33'"),
        ("add{.u32}{.s32 d, a", "modifiers are expected"),
        ("add{.u32}{.u32}{.u32} d, a", "more than two types"),
        ("add.x=heavy d, a", "has 'heavy', which are no bits"),
        ("add [a:nowhere], b", "an address in 'nowhere'"),
        ("add [a:shared], #n", "more than one address or constant"),
        ("add d, a+b", "an operand is expected"),
    ],
)
def test_a_row_that_says_nothing_sensible_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read("add", text)


def test_the_page_of_instructions_is_current(repository: Path) -> None:
    assert (repository / "docs/reference/instructions.md").read_text() == page()


ROW = '#define PTXM_OPS_{0}(X) \\\n    X({0}, integer, {0}, "{0}.b32 d")\n'


def collected(repository: Path, core: Path) -> subprocess.CompletedProcess[str]:
    script = repository / "emulator/core/isa/collect.py"
    command = [sys.executable, "-IS", script, core / "core", core / "made/operations.hpp"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"core/{name}.cpp").write_text(f"before\n{ROW.format(name)}after\n")
    return tmp_path


def test_rows_are_collected_as_they_stand(rows: Path, repository: Path) -> None:
    assert collected(repository, rows).returncode == 0
    text = (rows / "made/operations.hpp").read_text()
    assert [ROW.format(name) in text for name in ("one", "two")] == [True, True]
    assert text.endswith("#define PTXM_OPS(X) \\\n    PTXM_OPS_one(X) \\\n    PTXM_OPS_two(X)\n")
    assert "before" not in text
    assert "after" not in text


def test_rows_that_did_not_change_compile_nothing_again(rows: Path, repository: Path) -> None:
    collected(repository, rows)
    os.utime(rows / "made/operations.hpp", (1, 1))
    (rows / "core/one.cpp").write_text(f"another handler\n{ROW.format('one')}")
    assert collected(repository, rows).returncode == 0
    assert (rows / "made/operations.hpp").stat().st_mtime == 1


def test_two_sources_have_no_rows_of_one_name(rows: Path, repository: Path) -> None:
    (rows / "core/three.cpp").write_text(ROW.format("two"))
    assert "PTXM_OPS_two is defined in" in collected(repository, rows).stderr
    assert not (rows / "made").exists()


@pytest.mark.parametrize("opcode", sorted(set(OPCODES) - MISSING))
def test_a_walk_through_a_decoder_finds_what_public_kernels_have(opcode: str) -> None:
    name, *modifiers = opcode.split(".")
    if name == "call":  # decoded where it is called
        return
    ways = _names_of(name)
    assert {m for m in modifiers if m not in ways} == set()


@cache
def _names_of(opcode: str) -> frozenset[str]:
    of_lines = {name for form in LINES.get(opcode, ()) for part in form.parts for name in part.names}
    ways = supported(opcode, FUNCTIONS[opcode]).ways if opcode in FUNCTIONS else ()
    return frozenset(of_lines.union(*ways))


def test_an_opcode_is_decoded_in_one_place() -> None:
    places = Counter(opcode for family in FAMILIES for opcode in family.FORMS)
    assert [opcode for opcode, count in places.items() if count > 1] == []
