"""Modules that are linked: whose name is whose."""

from __future__ import annotations

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator.ptx import link
from fmha.emulator.ptx.parsed_module import ParsedModule

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def linked(*bodies: str) -> ParsedModule:
    return link([HEAD + body for body in bodies])


def values(module: ParsedModule, words: int) -> list[int]:
    device = emulator.Device()
    out = device.alloc(4 * words, "out")
    report = device.launch(emulator.Module(module), "go", 1, 1, [out.address])
    assert not report.findings
    return device.read(out.address, 4 * words).view(np.int32).tolist()


GO = """
.extern .func (.reg .b32 d) other();
.extern .global .align 4 .b32 shared_word;
.global .align 4 .b32 own[1] = {11};
.global .align 8 .b64 place = own;
.visible .entry go(.param .b64 out) {
    .reg .b64 %a, %own;
    .reg .b32 %v<4>;
    ld.param.b64 %a, [out];
    ld.global.b64 %own, [place];
    ld.global.b32 %v0, [%own];
    st.global.b32 [%a], %v0;
    call (%v1), other, ();
    st.global.b32 [%a+4], %v1;
    ld.global.b32 %v2, [shared_word];
    st.global.b32 [%a+8], %v2;
}
"""
OTHER = """
.global .align 4 .b32 own[1] = {22};
.visible .global .align 4 .b32 shared_word = 33;
.visible .func (.reg .b32 d) other() {
    ld.global.b32 d, [own];
}
"""


@pytest.mark.parametrize("turned", [False, True])
def test_a_modules_own_names_stay_its_own(turned: bool) -> None:
    units = (OTHER, GO) if turned else (GO, OTHER)
    assert values(linked(*units), 3) == [11, 22, 33]


def test_a_name_that_another_begins_with_is_another() -> None:
    first = ".global .b32 own = 1; .global .b32 own2 = 2; .global .b32 %own = 3; .visible .func f() { ret; }"
    names = linked(first, ".global .b32 own = 4;").variables
    assert {name: v.initializer[0] for name, v in names.items() if v.initializer} == {
        "own$unit0": 1,
        "own2": 2,
        "%own": 3,
        "own$unit1": 4,
    }


@pytest.mark.parametrize("turned", [False, True])
def test_a_weak_definition_gives_way(turned: bool) -> None:
    weak = ".weak .func (.reg .b32 d) f() { mov.b32 d, 1; }"
    strong = ".visible .func (.reg .b32 d) f() { mov.b32 d, 2; }"
    assert not linked(*((strong, weak) if turned else (weak, strong))).functions["f"].weak


def test_two_weak_ones_are_one() -> None:
    weak = ".weak .func f() { ret; }"
    assert linked(weak, weak).functions["f"].defined


def test_two_strong_ones_are_too_many() -> None:
    strong = ".visible .func f() { ret; }"
    with pytest.raises(emulator.PtxError, match="f is defined by two modules that are linked"):
        linked(strong, strong)


def test_dynamic_shared_memory_has_the_stricter_alignment() -> None:
    array = ".extern .shared .align {} .b8 memory[];"
    assert linked(array.format(4), array.format(128)).variables["memory"].align == 128
