"""Whatever the text, the parser returns a module or raises PtxError: no other exception, no hang."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmha.emulator import Device, LaunchError, load_ptx
from fmha.emulator.ptx import ParsedModule, PtxError, parse
from fmha.emulator.ptx.cfg import reconvergence

# One of each construct.
SAMPLE = """\
//
// A module
//
.version 8.8
.target sm_100a, debug
.address_size 64

.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.global .align 4 .b8 table[16] = {1, 0, 0xFF, -1, 017, 0b11, 7U};
.global .align 8 .u64 pointers[3] = {generic(table)+4, table, 0xff00(table)};
.const .f32 floats[2] = {0f3F800000, -1.5};
.global .align 1 .b8 $str[4] = "hi\\n";
.extern .shared .align 1024 .b8 smem[];

.weak .func  (.param .align 16 .b8 func_retval0[32]) _Z6helperfi(
	.param .b32 _Z6helperfi_param_0,
	.param .b32 _Z6helperfi_param_1
)
.noreturn
{
	.reg .b32 	%r<12>;
	.loc	1 8 0
	ld.param.b32 	%r8, [_Z6helperfi_param_1];
	st.param.v2.b32 	[func_retval0+8], {%r8, %r8};
	ret;

}
.visible .entry kernel(
	.param .align 64 .b8 kernel_param_0[128],
	.param .u64 .ptr .global .align 16 kernel_param_1
)
.reqntid 192, 1, 1
.minnctapersm 1
.pragma "global";
{
	.local .align 8 .b8 	__local_depot2[8];
	.reg .b64 	%SP, %SPL;
	.reg .pred 	%p<14>;
	.reg .b32 	%r<24>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<32>;
	.shared .align 8 .u64 _ZZ1kE3bar[2][4];
	.loc	1 20 3
	mov.u32 	%r7, %tid.x;
	mov.u32 	%r2, _ZZ1kE3bar+8;
	mov.b64 	%rd4, kernel_param_0;
	.loc	1 13 3, function_name $L__info_string0+1, inlined_at 1 20 3
	// begin inline asm
	{
.reg .pred P1;
LAB_WAIT:
mbarrier.try_wait.parity.shared::cta.b64 P1, [%r2+-8], %r3;
@P1 bra DONE;
bra LAB_WAIT;
DONE:
}
	// end inline asm
	{ .reg .pred %px; elect.sync _|%px, 0xffffffff; @!%px bra $L__BB2_2; }
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd4, {%r2, %r3}], [%r4], %rd5;
	tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r1, {%r3,%r3,_,%r3}, %p1;
	setp.lt.and.s32 	%p1|%p2, %r1, (1 + 2) * 3 << 1, !%p3; /* both
	results */
	fma.rn.f32 	%f1, %f2, 0f3F800000, 2.5e-3;
	{ // callseq 0, 0
	.param .b32 param0;
	st.param.b32 	[param0], %r1;
	.param .align 16 .b8 retval0[32];
	prototype_3 : .callprototype (.param .align 16 .b8 _[32]) _ (.param .b32 _, .param .b32 _);
	call (retval0),
	%rd31,
	(
	param0,
	param0
	)
	, prototype_3;
	call.uni (retval0), _Z6helperfi, (param0, 5);
	} // callseq 0
	$targets: .branchtargets $L__BB2_2, $L__BB2_3;
	@%p4 brx.idx %r1, $targets;
$L__BB2_2:
	.pragma "nounroll";
	bar.sync 	0;
	@%p5 bra.uni 	$L__BB2_2;
$L__BB2_3:
	ret;

}
.visible .func alias1;
.alias alias1, _Z6helperfi;
	.file	1 "/src/a.cu", 1700000000, 99
	.section	.debug_str
	{
$L__info_string0:
.b8 95,90
.b8 0
	}
	.section .debug_macinfo { { } }
"""

PIECES = re.findall(r"\s+|//[^\n]*|\.?[\w$%:]+|.", SAMPLE, re.DOTALL)
FRAGMENTS = [
    *dict.fromkeys(piece for piece in PIECES if not piece.isspace()),
    *("", "{", "}", "(", ")", "[", "]", ";", ",", ":", "::", "|", "||", "!", "@", "=", "<", ">", ">>", "?", "+", "-"),
    *("/*", "*/", "//", '"', "\\", "'", "\0", "\x1a", "é", "%", "_", "$", ".", "..", "0", "0x", "0f", "1e400", "-1"),
    *("99999999999999999999", "1e5", "%r4294967295", "%r24", ".b128", ".pred", ".v4", ".align", ".branchtargets"),
    *(
        ".callprototype",
        ".reg",
        ".param",
        ".loc",
        ".file",
        ".section",
        ".entry",
        ".func",
        ".extern",
        ".version",
        "call",
    ),
]


def check(text: str) -> ParsedModule | None:
    lines = text.rstrip("\0").split("\n")
    try:
        module = parse(text)
    except PtxError as caught:
        error = caught
    else:
        check_module(module, len(lines))
        return module
    assert error.line is not None
    assert 1 <= error.line <= len(lines)
    assert error.text == lines[error.line - 1].strip()
    assert str(error) == f"line {error.line}: {error.message}" + (f": `{error.text}`" if error.text else "")
    return None


def check_module(module: ParsedModule, lines: int) -> None:
    for function in module.functions.values():
        assert len(reconvergence(function)) == len(function.body)
        assert all(0 <= index <= len(function.body) for index in function.labels.values())
        for instruction in function.body:
            assert str(instruction)
            assert 1 <= instruction.line <= lines
    for variable in module.variables.values():
        assert variable.initializer is None or len(variable.initializer) == variable.nbytes


def test_the_sample_itself_parses() -> None:
    module = check(SAMPLE)
    assert module is not None
    assert list(module.functions) == ["vprintf", "_Z6helperfi", "kernel", "alias1"]


@given(st.integers(0, len(SAMPLE)), st.integers(0, len(SAMPLE)))
def test_truncated(first: int, last: int) -> None:
    check(SAMPLE[:last])
    check(SAMPLE[:first] + SAMPLE[last:])


EDITS = st.lists(
    st.tuples(st.integers(0, len(PIECES) - 1), st.sampled_from(["replace", "insert", "delete", "double", "swap"])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=400)
@given(EDITS, st.data())
def test_mutated(edits: list[tuple[int, str]], data: st.DataObject) -> None:
    pieces = list(PIECES)
    for index, kind in edits:
        if kind == "replace":
            pieces[index] = data.draw(st.sampled_from(FRAGMENTS))
        elif kind == "insert":
            pieces[index] += data.draw(st.sampled_from(FRAGMENTS))
        elif kind == "delete":
            pieces[index] = ""
        elif kind == "double":
            pieces[index] *= 2
        else:
            other = data.draw(st.integers(0, len(PIECES) - 1))
            pieces[index], pieces[other] = pieces[other], pieces[index]
    check("".join(pieces))


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30), st.sampled_from(["", " "]), st.booleans())
def test_shuffled(fragments: list[str], between: str, in_body: bool) -> None:
    text = between.join(fragments)
    start = ".version 8.8\n.target sm_100a\n"
    check(start + (".entry k() { .reg .b32 %r<9>; .reg .pred %p<9>; " + text + " }" if in_body else text))


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    check(text)
    check(".version 8.8\n.target sm_100a\n" + text)


MANY = 30_000
HOSTILE = {
    "open comment": "/* " * MANY,
    "comments": "/* */" * MANY,
    "line comments": "//\n" * MANY,
    "quotes": '"' * MANY,
    "escaped quotes": '"\\' * MANY,
    "dots": "." * MANY,
    "colons": "a::" * MANY,
    "blanks": " " * MANY + "x",
    "lines": "\n" * MANY,
    "pragmas": '.pragma "x";' * MANY,
    "directives": ".entry k() " + ".maxntid 1 " * MANY + "{ ret; }",
    "dimensions": ".global .b8 a" + "[1]" * MANY + ";",
    "braces of an initializer": ".global .b8 a[1]" + "[1]" * 15 + " = " + "{" * MANY,
    "values": ".global .b8 a[] = {" + "1," * MANY + "};",
    "a large array": ".global .b8 a[99999999999] = {1};",
    "strings": ".section .debug_str {" + "S: .b8 1,0\n" * MANY + "}",
}
HOSTILE_BODIES = {
    "blocks": "{" * MANY,
    "blocks with the same names": "{.reg .pred P; .reg .b32 %r<3>; L: @P mov.b32 %r1, 1; bra L; }\n" * MANY,
    "branches to a far label": "{" * 100 + "bra X;\n" * MANY + "}" * 100 + "X:",
    "labels": "".join(f"L{i}: @%p1 bra L{i};\n" for i in range(MANY)),
    "parentheses": "mov.b32 %r1, " + "(" * MANY,
    "signs": "mov.b32 %r1, " + "-" * MANY + "1;",
    "sums": "mov.b32 %r1, 1" + "+1" * MANY + ";",
    "questions": "mov.b32 %r1, " + "1?" * MANY,
    "shift": "mov.b32 %r1, 1 << 999999999999;",
    "digits": "mov.b32 %r1, " + "9" * MANY + ";",
    "fraction": "mov.f32 %r1, 1." + "9" * MANY + ";",
    "exponent": "mov.f32 %r1, 1e" + "9" * MANY + ";",
    "name": "mov.b32 " + "a" * MANY + ", 1;",
    "name in a range": ".reg .b32 a<5>; mov.b32 a" + "1" * MANY + ", 1;",
    "modifiers": "mov" + ".b32" * MANY + " %r1;",
    "vector": "mov.b32 {" + "%r1," * MANY + "%r1}, %r2;",
    "nested vectors": "mov.b32 " + "{" * MANY,
    "arguments": "call k, (" + "%r1," * MANY + "%r1);",
    "targets": "T: .branchtargets " + "A," * MANY + "A; brx.idx %r1, T; A: ret;",
    "locations": ".loc 1 2 3, function_name f, inlined_at 1 2 3\n" * MANY + "ret;",
    "guards": "@" * MANY,
}


@pytest.mark.parametrize("name", [*HOSTILE, *HOSTILE_BODIES])
def test_hostile_text_takes_time_in_proportion_to_its_length(name: str) -> None:
    """What takes time in proportion to the square of its length takes minutes here, and runs into the test's limit."""
    start = ".version 8.8\n.target sm_100a\n"
    if name in HOSTILE:
        check(start + HOSTILE[name])
    else:
        check(start + ".entry k() { .reg .b32 %r<9>; .reg .pred %p<9>;\n" + HOSTILE_BODIES[name] + "\n}")


HEADER_LINES = (".version 9.0", ".target sm_100a", ".address_size 64")
NESTED = 40


def test_calls_that_only_call() -> None:
    """Each function calls the next one twice: two to the power of 40 calls, and not one instruction."""
    functions = [f".func f{NESTED}() {{ ret; }}"]
    functions += [f".func f{n}() {{ call f{n + 1}; call f{n + 1}; ret; }}" for n in reversed(range(NESTED))]
    text = "\n".join([*HEADER_LINES, *functions, ".visible .entry kernel() { call f0; ret; }"])
    with pytest.raises(PtxError, match="calls expand to more than"):
        Device().launch(load_ptx(text), "kernel", 1, 1, [])


def test_calls_that_nest_too_deeply() -> None:
    functions = [".func f200() { ret; }", *(f".func f{n}() {{ call f{n + 1}; ret; }}" for n in reversed(range(200)))]
    text = "\n".join([*HEADER_LINES, *functions, ".visible .entry kernel() { call f0; ret; }"])
    with pytest.raises(PtxError, match="nest more than 100 deep"):
        Device().launch(load_ptx(text), "kernel", 1, 1, [])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (".shared .align 4 .b8 big[99999999999];", "99999999999 bytes of shared memory"),
        (".shared .align 4 .b8 big[4294967296];", "4294967296 bytes of shared memory"),
        (".local .align 4 .b8 big[99999999999];", "bytes of local memory a thread"),
        (".global .align 4 .b8 big[99999999999999];", "no room for the 99999999999999 bytes of big"),
    ],
)
def test_sizes_beyond_32_bits(declared: str, said: str) -> None:
    outside, inside = ("", declared) if ".local" in declared else (declared, "")
    body = f"{{ .reg .b64 %d; {inside} mov.u64 %d, big; ret; }}"
    module = load_ptx("\n".join([*HEADER_LINES, outside, f".visible .entry kernel() {body}"]))
    with pytest.raises((PtxError, LaunchError), match=said):
        Device().launch(module, "kernel", 1, 1, [])


def test_parameters_beyond_32_bits() -> None:
    module = load_ptx("\n".join([*HEADER_LINES, ".visible .entry kernel(.param .b8 p[99999999999]) { ret; }"]))
    with pytest.raises(PtxError, match="99999999999 bytes of parameters"):
        Device().launch(module, "kernel", 1, 1, [b""])
