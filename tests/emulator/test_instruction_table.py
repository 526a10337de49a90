"""The table of operations: what the syntax of a row says is what decodes, and each operation has a handler."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator import _core
from fmha.emulator._core import MODS, OPS, TYPES
from fmha.emulator.decode import decode_entry
from fmha.emulator.decode.__main__ import page
from fmha.emulator.decode.program import FAMILIES, FORMS
from fmha.emulator.decode.supported import supported
from fmha.emulator.decode.table import TABLE, Form, read
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
    ("statement", "complaint"),
    [
        ("mul24.s32 %r1, %r2, %r3;", "one of .hi, .lo is missing in mul24.s32"),
        ("mad24.hi.sat.u32 %r1, %r2, %r3, %r4;", "modifier .sat is unknown or not modelled in mad24.hi.sat.u32"),
        ("bmsk.b32 %r1, %r2, %r3;", "one of .clamp, .wrap is missing in bmsk.b32"),
        ("szext.wrap.u64 %d1, %d2, %r3;", "type .u64 is not modelled here in szext.wrap.u64"),
        ("fns.b32 %r1, %r2, %r3;", "4 operands are expected, not 3"),
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
    ],
)
def test_a_row_that_says_nothing_sensible_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read("add", text)


def test_the_page_of_instructions_is_current(repository: Path) -> None:
    assert (repository / "docs/reference/instructions.md").read_text() == page()


@pytest.mark.parametrize("opcode", sorted(set(OPCODES) - MISSING))
def test_a_walk_through_a_decoder_finds_what_public_kernels_have(opcode: str) -> None:
    name, *modifiers = opcode.split(".")
    if name == "call":  # decoded where it is called
        return
    ways = _names_of(name)
    assert {m for m in modifiers if m not in ways} == set()


@cache
def _names_of(opcode: str) -> frozenset[str]:
    return frozenset(name for way in supported(opcode, FORMS[opcode]).ways for name in way)


def test_an_opcode_is_decoded_in_one_place() -> None:
    places = Counter(opcode for family in FAMILIES for opcode in family.FORMS)
    assert [opcode for opcode, count in places.items() if count > 1] == []
