"""Variables: state spaces, types, arrays, initializers."""

import struct

import pytest

from fmha.emulator.ptx import PtxError, Relocation, Variable, parse

HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"


def variables(text: str) -> dict[str, Variable]:
    return parse(HEADER + text).variables


def only(text: str) -> Variable:
    (variable,) = variables(text).values()
    return variable


@pytest.mark.parametrize(
    ("text", "space", "type_", "elements", "nbytes", "align"),
    [
        (".global .b32 x;", "global", "b32", 1, 4, 4),
        (".global .align 16 .b8 x[64];", "global", "b8", 64, 64, 16),
        (".shared .align 8 .u64 x;", "shared", "u64", 1, 8, 8),
        (".shared .b32 x[8][4];", "shared", "b32", 32, 128, 4),
        (".shared .b64 x[0];", "shared", "b64", 0, 0, 8),
        (".extern .shared .align 1024 .b8 x[];", "shared", "b8", 0, 0, 1024),
        (".extern .shared .align 16 .b8 x[][4];", "shared", "b8", 0, 0, 16),
        (".const .f64 x[2+2];", "const", "f64", 4, 32, 8),
        (".local .f16x2 x;", "local", "f16x2", 1, 4, 4),
        (".global .b128 x;", "global", "b128", 1, 16, 16),
        (".global .attribute(.managed) .align 4 .s32 x;", "global", "s32", 1, 4, 4),
        (".global .align 4 .attribute(.unified(19, 95)) .bf16 x;", "global", "bf16", 1, 2, 4),
    ],
)
def test_shapes(text: str, space: str, type_: str, elements: int, nbytes: int, align: int) -> None:
    variable = only(text)
    assert (variable.name, variable.space, variable.type) == ("x", space, type_)
    assert (variable.elements, variable.nbytes, variable.align) == (elements, nbytes, align)
    assert variable.initializer is None
    assert variable.extern == (".extern" in text)


def test_several_in_one_declaration() -> None:
    found = variables(".visible .shared .align 8 .b32 a, b[4], c;")
    assert [(v.name, v.nbytes, v.align, v.visible) for v in found.values()] == [
        ("a", 4, 8, True),
        ("b", 16, 8, True),
        ("c", 4, 8, True),
    ]
    assert found["a"].line == 4


def test_a_definition_wins_over_external_declarations() -> None:
    found = only(
        ".extern .global .b32 g;\n.extern .global .b32 g;\n.visible .global .b32 g = 5;\n.extern .global .b32 g;"
    )
    assert not found.extern
    assert found.initializer == struct.pack("<I", 5)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (".global .b32 x = 5;", struct.pack("<i", 5)),
        (".global .b32 x = {5};", None),
        (".global .s32 x = -5;", struct.pack("<i", -5)),
        (".global .u32 x = 0xFFFFFFFF;", b"\xff" * 4),
        (".global .u8 x = 1+2;", b"\x03"),
        (".global .b64 x = (.u64)-1;", b"\xff" * 8),
        (".const .align 4 .b8 x[8] = {1, 2, 3};", bytes([1, 2, 3, 0, 0, 0, 0, 0])),
        (".global .b8 x[] = {1, 2, 3};", bytes([1, 2, 3])),
        (".global .b8 x[2] = {1, 2,};", bytes([1, 2])),
        (".global .b8 x[4] = {};", bytes(4)),
        (".global .b16 x[2][2] = {{1, 2}, {3, 4}};", struct.pack("<4H", 1, 2, 3, 4)),
        (".global .b16 x[2][2] = {{1}, {3, 4}};", struct.pack("<4H", 1, 0, 3, 4)),
        (".global .b16 x[2][2] = {1, 2, 3};", struct.pack("<4H", 1, 2, 3, 0)),
        (".global .b16 x[][2] = {{1}, {3, 4}};", struct.pack("<4H", 1, 0, 3, 4)),
        (".global .f32 x = 1.5;", struct.pack("<f", 1.5)),
        (".global .f32 x = -1.5;", struct.pack("<f", -1.5)),
        (".global .f32 x = 0;", bytes(4)),
        (".const .f32 x[2] = {0f3F800000, 2e3};", struct.pack("<2f", 1, 2000)),
        (".global .f64 x = 1.5;", struct.pack("<d", 1.5)),
        (".global .b64 x = 0d3FF0000000000000;", struct.pack("<d", 1)),
        ('.global .b8 x[6] = "abc";', b"abc\0\0\0"),
        ('.global .b8 x[] = {"ab", 0};', b"ab\0"),
    ],
)
def test_initializers(text: str, data: bytes | None) -> None:
    if data is None:
        with pytest.raises(PtxError, match="more braces"):
            only(text)
        return
    variable = only(text)
    assert variable.initializer == data
    assert variable.nbytes == len(data)
    assert variable.relocations == ()


def test_addresses_in_initializers() -> None:
    found = variables(
        ".func f() { ret; }\n.global .b32 a = 5;\n"
        ".global .u64 p = a;\n.global .u64 q[4] = {7, a+4, generic(a), generic(a)+8};\n.global .u64 r = f;\n"
        ".global .u32 s = a-4;\n.global .u8 t[] = {0xff(a), 0xff00(a), 0xff0000(a)};"
    )
    assert found["p"].relocations == (Relocation(0, 8, "a"),)
    assert found["q"].initializer == struct.pack("<4Q", 7, 0, 0, 0)
    assert found["q"].relocations == (
        Relocation(8, 8, "a", 4),
        Relocation(16, 8, "a", 0, generic=True),
        Relocation(24, 8, "a", 8, generic=True),
    )
    assert found["r"].relocations == (Relocation(0, 8, "f"),)
    assert found["s"].relocations == (Relocation(0, 4, "a", -4),)
    assert [(r.offset, r.nbytes, r.mask) for r in found["t"].relocations] == [
        (0, 1, 0xFF),
        (1, 1, 0xFF00),
        (2, 1, 0xFF0000),
    ]


def test_an_initializer_may_refer_to_what_follows_but_not_to_nothing() -> None:
    assert variables(".global .u64 p = a;\n.global .b32 a;")["p"].relocations == (Relocation(0, 8, "a"),)
    with pytest.raises(PtxError, match="line 4: 'a' is not declared"):
        variables(".global .u64 p = a;")


@pytest.mark.parametrize(
    "text",
    [
        ".global x;",
        ".global .b33 x;",
        ".global .pred x;",
        ".global .b32;",
        ".global .b32 x",
        ".global .b32 x y;",
        ".global .b32 5;",
        ".global .align 3 .b32 x;",
        ".global .align 0 .b32 x;",
        ".global .align -4 .b32 x;",
        ".global .b32 x[-1];",
        ".global .b32 x[1;",
        ".global .b32 x[2][];",
        ".global .b32 x[999999999999999999999];",
        ".global .b32 x[0xFFFFFFFF][0xFFFFFFFF];",
        ".global .b32 x[1.5];",
        ".global .b8 x = 256;",
        ".global .b8 x = -129;",
        ".global .b8 x[2] = {1, 2, 3};",
        ".global .b16 x[2][2] = {{1, 2, 3}, {4}};",
        ".global .b16 x[2][2] = {{{1}}};",
        ".global .b8 x[2] = {1 2};",
        ".global .b8 x[2] = {1, 2;",
        ".global .b32 x = ;",
        '.global .b32 x[1] = "abc";',
        ".global .f32 x = 5;",
        ".global .f64 x = 0f3F800000;",
        ".global .f32 x = 1e300;",
        ".global .b8 x[281474976710656] = {1};",
        ".global .b64 x[1700000000] = 1;",
        ".shared .b32 x = 5;",
        ".global .b32 x;\n.global .b32 x;",
        ".global .texref x;",
        ".global .v4 .f32 x;",
        ".const[2] .b32 x;",
        ".param .b32 x;",
    ],
)
def test_bad_declarations_are_refused(text: str) -> None:
    with pytest.raises(PtxError, match=r"^line \d: "):
        variables(text)


@pytest.mark.parametrize(
    "text",
    [
        ".reg .b32 %r<;",
        ".reg .b32 %r<x>;",
        ".reg .b32 %r<1+1>;",
        ".reg .b32 %r<99999999999>;",
        ".reg .b32 %r<4;",
        ".reg b32 %r;",
        ".reg .v4 .f32 x;",
        ".reg .b32 %r",
        ".reg .b32 ;",
        ".param .b32 x = 5;",
        ".const .b32;",
        ".pragma nounroll;",
        ".pragma;",
    ],
)
def test_bad_declarations_in_a_body_are_refused(text: str) -> None:
    with pytest.raises(PtxError, match=r"^line 5: "):
        parse(HEADER + ".entry k() {\n" + text + "\n}")


@pytest.mark.parametrize(
    "parameters",
    [
        ".param",
        ".param .b32",
        "b32 x",
        ".param .b32 x,",
        ".param .b32 x y",
        ".param .b32 x, .param .b64 x",
        ".param .v2 .b32 x",
    ],
)
def test_bad_parameters_are_refused(parameters: str) -> None:
    with pytest.raises(PtxError):
        parse(HEADER + f".entry k({parameters}) {{ ret; }}")


def test_variables_of_a_function_are_its_own() -> None:
    parsed = parse(
        HEADER + ".entry k() { .shared .align 128 .b8 tile[256]; .local .align 8 .b8 __local_depot0[8];\n"
        ".reg .b32 %r<2>; mov.u32 %r1, tile; }\n.entry l() { .shared .b32 tile; ret; }"
    )
    assert parsed.variables == {}
    assert list(parsed.functions["k"].variables) == ["tile", "__local_depot0"]
    assert parsed.functions["k"].variables["tile"].nbytes == 256
    assert parsed.functions["l"].variables["tile"].nbytes == 4
