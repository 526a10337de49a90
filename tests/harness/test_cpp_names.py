"""Names of C++ and the symbols that they mean."""

from __future__ import annotations

import pytest

from fmha.harness.cpp_names import UnknownNameError, readable, short, symbol_of

FLOAT, DOUBLE = "_Z3addIfEvPT_PKS0_i", "_Z3addIdEvPT_PKS0_i"
HIDDEN = "_ZN12_GLOBAL__N_11kILb1ELj4ELi3EEEvPf"
INNER = "_ZN2ns5inner1kEv"
HALF = "_Z1hI6__halfEvPT_"
SYMBOLS = (FLOAT, DOUBLE, HIDDEN, INNER, HALF, "plain")


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("plain", "plain"),
        (FLOAT, FLOAT),
        ("add<float>", FLOAT),
        ("add< double >", DOUBLE),
        ("add<float>(float*, float const*, int)", FLOAT),
        ("k<true, 4, 3>", HIDDEN),
        ("ns::inner::k", INNER),
        ("inner::k", INNER),
        ("h<at::Half>", HALF),
        ("h<c10::Half>(c10::Half*)", HALF),
    ],
)
def test_a_name_means_a_symbol(name: str, symbol: str) -> None:
    assert symbol_of(name, SYMBOLS) == symbol


def test_what_is_no_name_or_several() -> None:
    with pytest.raises(UnknownNameError, match=r"add is the name of several: add<float>\(.*, add<double>\("):
        symbol_of("add", SYMBOLS)
    with pytest.raises(UnknownNameError, match=r"there is no mul; there are add<float>\("):
        symbol_of("mul", SYMBOLS)
    with pytest.raises(UnknownNameError, match="there are none"):
        symbol_of("mul", ())


def test_names_as_they_are_shown() -> None:
    assert readable(FLOAT) == "add<float>(float*, float const*, int)"
    assert (short(FLOAT), short(INNER), short("plain")) == ("add<float>", "ns::inner::k", "plain")
    assert readable("_Zno symbol") == "_Zno symbol"
