"""Operands and constants, one construct a case."""

import struct

import pytest

from fmha.emulator.ptx import (
    Address,
    CallOperands,
    GuardPredicate,
    Immediate,
    Instruction,
    LabelRef,
    Negated,
    Operand,
    PredicatePair,
    PtxError,
    Register,
    Sink,
    Special,
    SymbolRef,
    TensorAddress,
    Vector,
    parse,
)

REGISTERS = ".reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<20>; .reg .pred %p<20>; .reg .b128 %q<4>;"
R1, R2, R3, R4 = (Register(f"%r{i}", "b32") for i in range(1, 5))
RD1, RD2 = (Register(f"%rd{i}", "b64") for i in (1, 2))
P1, P2 = (Register(f"%p{i}", "pred") for i in (1, 2))


def body(text: str) -> tuple[Instruction, ...]:
    module = parse(
        ".version 8.8\n.target sm_100a\n.address_size 64\n"
        ".global .align 4 .b8 table[64];\n.extern .shared .align 1024 .b8 smem[];\n"
        ".func (.param .b32 result) callee (.param .b32 a, .param .b64 b);\n"
        ".visible .entry kernel(.param .u64 pointer, .param .align 64 .b8 map[128])\n{\n" + REGISTERS + text + "\n}\n"
    )
    return module.functions["kernel"].body


def only(text: str) -> Instruction:
    (instruction,) = body(text)
    return instruction


def operand(text: str) -> Operand:
    return only(f"mov.b32 %r0, {text};").operands[1]


def integer(text: str) -> int:
    value = operand(text)
    assert isinstance(value, Immediate)
    assert value.kind == "int"
    return value.bits


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("0x1F", 0x1F),
        ("0X1f", 0x1F),
        ("017", 0o17),
        ("0b101", 0b101),
        ("7U", 7),
        ("0xFFU", 0xFF),
        ("0xffffffff", 0xFFFFFFFF),
        ("18446744073709551615", (1 << 64) - 1),
        ("0xFFFFFFFFFFFFFFFF", (1 << 64) - 1),
        ("1+2", 3),
        ("-(3)", -3),
        ("4*8", 32),
        ("(1+2)*3", 9),
        ("1+2*3", 7),
        ("5-8", -3),
        ("5 - 2 - 1", 2),
        ("7/2", 3),
        ("-7/2", -3),
        ("7 % 4", 3),
        ("-7 % 4", -3),
        ("1<<4|3", 19),
        ("1<<63", -1 << 63),
        ("1<<64", 0),
        ("-8>>1", -4),
        ("0xFFFFFFFFFFFFFFF8>>1", 0x7FFFFFFFFFFFFFFC),
        ("~0", -1),
        ("~0U", (1 << 64) - 1),
        ("!0", 1),
        ("!7", 0),
        ("6&3", 2),
        ("6^3", 5),
        ("1<2", 1),
        ("-1<0", 1),
        ("-1<0U", 0),
        ("1==2", 0),
        ("1!=2", 1),
        ("2>=2&&0", 0),
        ("0||3", 1),
        ("1?2:3", 2),
        ("(0)?(2):(3)", 3),
        ("(.s64)5", 5),
        ("(.u64)-1", (1 << 64) - 1),
        ("(.s64)0xFFFFFFFFFFFFFFFF", -1),
        ("0x7FFFFFFFFFFFFFFF+1", -1 << 63),
    ],
)
def test_integer_constants_fold_as_64_bit_numbers(text: str, value: int) -> None:
    assert integer(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0f3F800000", Immediate(0x3F800000, "f32")),
        ("0FbF800000", Immediate(0xBF800000, "f32")),
        ("-0f3F800000", Immediate(0xBF800000, "f32")),
        ("0f7FC00000", Immediate(0x7FC00000, "f32")),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, "f64")),
        ("-0D3ff0000000000000", Immediate(0xBFF0000000000000, "f64")),
        ("1.5", Immediate(struct.unpack("<Q", struct.pack("<d", 1.5))[0], "f64")),
        ("-2.0", Immediate(struct.unpack("<Q", struct.pack("<d", -2.0))[0], "f64")),
        ("1e5", Immediate(struct.unpack("<Q", struct.pack("<d", 1e5))[0], "f64")),
        ("1.", Immediate(struct.unpack("<Q", struct.pack("<d", 1.0))[0], "f64")),
        ("2.5e-3", Immediate(struct.unpack("<Q", struct.pack("<d", 2.5e-3))[0], "f64")),
    ],
)
def test_floating_point_constants_keep_their_bits(text: str, expected: Immediate) -> None:
    assert operand(text) == expected


@pytest.mark.parametrize(
    "text",
    ["08", "0xG", "12abc", "0f123", "0d12", "1/0", "5%0", "18446744073709551616", "9" * 5000, "1.5+2.0", "~1.5", "()"],
)
def test_bad_constants_are_refused(text: str) -> None:
    with pytest.raises(PtxError, match="line 9"):
        operand(text)


def test_deep_parentheses_are_refused_without_exhausting_the_stack() -> None:
    with pytest.raises(PtxError, match="nested too deeply"):
        operand("(" * 100_000 + "1" + ")" * 100_000)
    with pytest.raises(PtxError, match="nested too deeply"):
        operand("-" * 100_000 + "1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%r1", R1),
        ("%tid.x", Special("%tid.x")),
        ("%laneid", Special("%laneid")),
        ("%clock64", Special("%clock64")),
        ("%cluster_ctarank", Special("%cluster_ctarank")),
        ("%dynamic_smem_size", Special("%dynamic_smem_size")),
        ("%lanemask_lt", Special("%lanemask_lt")),
        ("%envreg31", Special("%envreg31")),
        ("WARP_SZ", Special("WARP_SZ")),
        ("table", SymbolRef("table", 0)),
        ("table+4", SymbolRef("table", 4)),
        ("table+4*2", SymbolRef("table", 8)),
        ("smem+-8", SymbolRef("smem", -8)),
        ("pointer", SymbolRef("pointer", 0)),
        ("map+64", SymbolRef("map", 64)),
        ("callee", SymbolRef("callee", 0)),
        ("{%r1, %r2}", Vector((R1, R2))),
        ("{%r1, 5}", Vector((R1, Immediate(5)))),
        ("{_, %r2}", Vector((Sink(), R2))),
        ("{ %r1 }", Vector((R1,))),
        ("!%p1", Negated(P1)),
        ("! %p1", Negated(P1)),
        ("[%rd1]", Address(RD1, 0)),
        ("[%rd1+16]", Address(RD1, 16)),
        ("[%rd1 + 16]", Address(RD1, 16)),
        ("[%r1+-8]", Address(R1, -8)),
        ("[%r1-8]", Address(R1, -8)),
        ("[%r1+2*4+1]", Address(R1, 9)),
        ("[table]", Address(SymbolRef("table"), 0)),
        ("[table+4]", Address(SymbolRef("table"), 4)),
        ("[smem+-4]", Address(SymbolRef("smem"), -4)),
        ("[pointer]", Address(SymbolRef("pointer"), 0)),
        ("[4096]", Address(Immediate(4096), 0)),
        ("[16+16]", Address(Immediate(32), 0)),
        ("[%rd1, {%r1}]", TensorAddress(Address(RD1), (R1,))),
        ("[%rd1, {%r1, %r2, %r3}]", TensorAddress(Address(RD1), (R1, R2, R3))),
        ("[%rd1+64, {0, -1}]", TensorAddress(Address(RD1, 64), (Immediate(0), Immediate(-1)))),
        ("[map, {%r1, %r2}]", TensorAddress(Address(SymbolRef("map")), (R1, R2))),
        ("[%rd1, {%r1, %r2, %r3, %r4, 5}]", TensorAddress(Address(RD1), (R1, R2, R3, R4, Immediate(5)))),
    ],
)
def test_source_operands(text: str, expected: Operand) -> None:
    assert operand(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("setp.lt.s32 %p1|%p2, %r1, %r2;", PredicatePair(P1, P2)),
        ("setp.lt.s32 %p1 | %p2, %r1, %r2;", PredicatePair(P1, P2)),
        ("setp.lt.s32 %p1|_, %r1, %r2;", PredicatePair(P1, Sink())),
        ("elect.sync _|%p1, -1;", PredicatePair(Sink(), P1)),
        ("elect.sync %r1|%p1, 0xffffffff;", PredicatePair(R1, P1)),
        ("mbarrier.arrive.shared::cluster.b64 _, [%r1];", Sink()),
        ("mov.b64 {%r1,%r2}, %rd1;", Vector((R1, R2))),
    ],
)
def test_destination_operands(text: str, expected: Operand) -> None:
    assert only(text).operands[0] == expected


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("table[5]", SymbolRef("table", 5, element=True)),
        ("words[3]", SymbolRef("words", 12, element=True)),
        ("words[-1]", SymbolRef("words", -4, element=True)),
        ("words[1 + 2 * 2]", SymbolRef("words", 20, element=True)),
        ("square[2]", SymbolRef("square", 4, element=True)),
        ("map[7]", SymbolRef("map", 7, element=True)),
        ("pointer[1]", SymbolRef("pointer", 8, element=True)),
        ("mine[2]", SymbolRef("mine", 16, element=True)),
    ],
)
def test_elements_of_arrays(text: str, element: SymbolRef) -> None:
    """ptxas counts scalars, whatever the dimensions are; there is no further offset behind the bracket."""
    declared = ".shared .b32 words[8]; .shared .b16 square[4][4]; .local .b64 mine[4];"
    moved, loaded, stored = body(f"{declared} mov.b64 %rd1, {text}; ld.b32 %r1, {text}; st.b32 {text}, %r1;")
    assert (moved.operands[1], loaded.operands[1], stored.operands[0]) == (element, element, element)


def test_an_inner_array_hides_the_outer() -> None:
    (inner, outer) = body("{ .shared .b64 table[4]; mov.b64 %rd1, table[1]; } mov.b64 %rd1, table[1];")
    assert inner.operands[1] == SymbolRef("table$2", 8, element=True)
    assert outer.operands[1] == SymbolRef("table", 1, element=True)


@pytest.mark.parametrize(
    "text",
    [
        "mov.b32 %r1, %r20;",
        "mov.b32 %r1, nothing;",
        "mov.b32 %r1, %tid.q;",
        "mov.b32 %r1, %r2.x;",
        "mov.b32 %r1, {};",
        "mov.b32 %r1, {{%r1, %r2}, %r3};",
        "mov.b32 %r1, {%r1, nothing};",
        "mov.b32 %r1 %r2;",
        "mov.b32 %r1,;",
        "mov.b32 %r1, %r2,;",
        "mov.b32 , %r2;",
        "mov. %r1, %r2;",
        "mov.b32 %r1, [nothing];",
        "mov.b32 %r1, [%rd1+%rd2];",
        "mov.b32 %r1, [%rd1;",
        "mov.b32 %r1, [%rd1, %r1];",
        "mov.b32 %r1, [0f3F800000];",
        "mov.b32 %r1, [%tid.x];",
        "mov.b32 %r1, table[%r2];",
        "mov.b32 %r1, table[1]+4;",
        "mov.b32 %r1, table[1;",
        "mov.b32 %r1, %r2[1];",
        "mov.b32 %r1, !table;",
        "mov.b32 %r1, %p1|table;",
        "@table mov.b32 %r1, 1;",
        "@%p1 { mov.b32 %r1, 1; }",
        "@%p1 L: mov.b32 %r1, 1;",
        "%r1 = 5;",
        "mov.b32 %r1, `;",
        "mov.b32 %r1, 'a';",
    ],
)
def test_bad_operands_name_the_line(text: str) -> None:
    with pytest.raises(PtxError) as caught:
        body("\n" + text)
    assert caught.value.line == 10
    assert caught.value.text == text
    assert str(caught.value) == f"line 10: {caught.value.message}: `{text}`"


def test_a_component_of_a_vector_register_has_its_own_message() -> None:
    with pytest.raises(PtxError, match="components of vector registers"):
        operand("%r1.x")


def test_guards() -> None:
    plain, guarded, negated = body("mov.b32 %r1, 1; @%p1 mov.b32 %r1, 2; @!%p2 mov.b32 %r1, 3;")
    assert plain.guard is None
    assert guarded.guard == GuardPredicate(P1, negated=False)
    assert negated.guard == GuardPredicate(P2, negated=True)


def test_opcode_and_modifiers() -> None:
    instruction = only("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {%r1, %r2, %r3, %r4}, %p1;")
    assert instruction.opcode == "tcgen05"
    assert instruction.modifiers == ("mma", "cta_group::1", "kind::f16")
    assert instruction.mnemonic == "tcgen05.mma.cta_group::1.kind::f16"
    assert instruction.operands == (Address(R1), RD1, RD2, R2, Vector((R1, R2, R3, R4)), P1)


def test_modifiers_may_stand_apart_and_start_with_digits() -> None:
    assert only("mov .b32 %r1, 5;").mnemonic == "mov.b32"
    assert only("add\n\t.s32\n%r1,%r2,%r3;").mnemonic == "add.s32"
    assert only("tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r2], 2;").modifiers[-3:] == ("16x32bx2", "x1", "b32")


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile [%r1+128], [%rd1, {%r2, %r3}], [%r4+8], %r5, %rd2;",
            (
                Address(R1, 128),
                TensorAddress(Address(RD1), (R2, R3)),
                Address(R4, 8),
                Register("%r5", "b32"),
                RD2,
            ),
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col [%r1], [map, {%r2, %r3, %r4}], [smem+8], {%r1};",
            (
                Address(R1),
                TensorAddress(Address(SymbolRef("map")), (R2, R3, R4)),
                Address(SymbolRef("smem"), 8),
                Vector((R1,)),
            ),
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd1, {0, 1, 2, 3, 4}], [%r1];",
            (TensorAddress(Address(RD1), tuple(Immediate(i) for i in range(5))), Address(R1)),
        ),
        ("applypriority.global.L2::evict_normal [%rd1], 128;", (Address(RD1), Immediate(128))),
        ("mbarrier.try_wait.parity.b64 %p1, [%r1], %r2, 0x989680;", (P1, Address(R1), R2, Immediate(0x989680))),
        ("createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0;", (RD1, Immediate(0x3FF0000000000000, "f64"))),
        ("mov.b128 %q1, {%rd1, %rd2};", (Register("%q1", "b128"), Vector((RD1, RD2)))),
        ("fence.proxy.async.shared::cta;", ()),
        ("ret;", ()),
        ("bar.sync 0, 128;", (Immediate(0), Immediate(128))),
    ],
)
def test_whole_instructions(text: str, operands: tuple[Operand, ...]) -> None:
    assert only(text).operands == operands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call (%r1), callee, (%r2, %rd1);", CallOperands((R1,), SymbolRef("callee"), (R2, RD1))),
        ("call.uni (_), callee, (5, %rd1);", CallOperands((Sink(),), SymbolRef("callee"), (Immediate(5), RD1))),
        ("call callee, (%r1);", CallOperands((), SymbolRef("callee"), (R1,))),
        ("call callee, ();", CallOperands((), SymbolRef("callee"), ())),
        ("call callee;", CallOperands((), SymbolRef("callee"), ())),
        ("call.uni (%r1),\n\tcallee,\n\t(\n\t%r2\n\t)\n\t;", CallOperands((R1,), SymbolRef("callee"), (R2,))),
    ],
)
def test_direct_calls(text: str, expected: CallOperands) -> None:
    assert only(text).operands == (expected,)


def test_indirect_calls_keep_their_prototype() -> None:
    text = "P: .callprototype (.param .b32 _) _ (.param .b64 _); call (%r1), %rd1, (%rd2), P;"
    assert only(text).operands == (CallOperands((R1,), RD1, (RD2,), "P"),)
    assert only("P: .callprototype _; call %rd1, P;").operands == (CallOperands((), RD1, (), "P"),)


@pytest.mark.parametrize(
    "text", ["call nothing;", "call %rd1, (%r1), P;", "call (%r1), ;", "call (%r1;", "call callee"]
)
def test_bad_calls_are_refused(text: str) -> None:
    with pytest.raises(PtxError, match="line"):
        body(text)


def test_branches_refer_to_labels() -> None:
    assert only("L: bra.uni L;").operands == (LabelRef("L"),)
    assert only("%L: bra %L;").operands == (LabelRef("%L"),)


def test_an_instruction_prints_as_ptx_that_parses_back_to_it() -> None:
    texts = [
        "@!%p1 ld.global.v2.b32 {%r1, %r2}, [%rd1+16];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1+64, {%r1, -3}];",
        "setp.lt.and.s32 %p1|%p2, %r1, -5, !%p1;",
        "mov.f32 %r1, 0f3F800000;",
        "elect.sync _|%p1, 4294967295;",
        "ld.shared.b32 %r1, [smem-4];",
        "call (%r1), callee, (%r2, %rd1);",
    ]
    for text in texts:
        instruction = only(text)
        assert str(instruction) == text
        assert instruction.text == text[:-1]


def test_the_text_of_an_instruction_over_several_lines_has_no_comments() -> None:
    instruction = only("mov.b32 // first\n\t%r1, /* second */\n\t5 ;")
    assert instruction.text == "mov.b32 %r1, 5"
    assert instruction.line == 9
