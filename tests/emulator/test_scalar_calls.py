"""Device functions, indexed branches, printf, assert, trap: compiled by nvcc, and by hand for forms it never emits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from tests.compiled import nvcc

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> emulator.Module:
    out = tmp_path_factory.mktemp("ptx") / "calls.ptx"
    return emulator.load_ptx(nvcc(out, HERE / "calls.cu", "-arch=sm_100a", "-ptx"))


def _choose(x: int) -> int:
    table = [x * 7 + 1, x ^ 0x55, 100 // (x + 1), -x, x << 5, (x * 12345).bit_count(), 42, x**3]
    return table[x] if x < 8 else -1


def _helper(a: int, b: int) -> tuple[int, int]:
    return (a - b, a) if a > b else (b * 3, b)


@pytest.mark.nvcc
def test_calls_local_arrays_and_switches(compiled: emulator.Module) -> None:
    device = emulator.Device()
    out, data, fout = device.alloc(512, "out"), device.alloc(20, "in"), device.alloc(256, "fout")
    values = np.array([1, 2, 3, 4, 5], np.float32)
    device.write(data.address, values)
    arguments = [out.address, data.address, fout.address]
    report = device.launch(compiled, "calls", (1, 1, 1), (32, 1, 1), arguments)
    assert not report.findings
    got = device.read(out.address, 512).view(np.int32).reshape(32, 4)
    floats = device.read(fout.address, 256).view(np.float32)
    table = [float(values[i % 5]) * i for i in range(8)]
    for t in range(32):
        r, o = _helper(t, 10)
        assert got[t].tolist() == [r, o, _choose(t % 10), sum(_helper(t, 5)) + _choose(t & 7)]
        assert floats[t] == table[t & 7] + table[t + 3 & 7]
        v = [t + i + (t if i == t % 6 else 0) for i in range(6)]
        assert floats[32 + t] == sum(x * (i + 1) for i, x in enumerate(v)) + 2 * t


@pytest.mark.nvcc
def test_printf_is_a_warning_with_its_text(compiled: emulator.Module) -> None:
    report = emulator.Device().launch(compiled, "prints", (1, 1, 1), (32, 1, 1), [7, 2.5])
    (finding,) = report.findings
    assert report.ok
    assert (finding.rule, finding.severity, finding.count) == ("printf", "warning", 2)
    lines = [finding.message, *(text for _, text in finding.details)]
    assert lines == [f"t={t} n=    7 d=2.500 text ff {7 << 33}%" for t in (0, 1)]


@pytest.mark.nvcc
def test_a_failed_assertion_is_an_error_with_its_place(compiled: emulator.Module) -> None:
    device = emulator.Device()
    assert not device.launch(compiled, "asserts", (1, 1, 1), (32, 1, 1), [4]).findings
    (finding,) = device.launch(compiled, "asserts", (1, 1, 1), (32, 1, 1), [5]).findings
    assert (finding.rule, finding.severity) == ("assert", "error")
    line = next(n for n, x in enumerate((HERE / "calls.cu").read_text().splitlines(), 1) if "too large" in x)
    assert f'calls.cu:{line}: void asserts(int): assertion `n < 5 && "too large"` failed' in finding.message


@pytest.mark.nvcc
def test_an_indirect_call_finds_its_callee_a_lane(compiled: emulator.Module) -> None:
    device = emulator.Device()
    out = device.alloc(128, "out")
    report = device.launch(compiled, "indirect", (1, 1, 1), (32, 1, 1), [out.address, 3])
    assert not report.findings
    want = [t + 1 if t % 3 else t * 2 for t in range(32)]
    assert device.read(out.address, 128).view(np.int32).tolist() == want


@pytest.mark.nvcc
def test_tables_of_addresses(compiled: emulator.Module) -> None:
    device = emulator.Device()
    out = device.alloc(128, "out")
    assert not device.launch(compiled, "tables", (1, 1, 1), (32, 1, 1), [out.address]).findings
    want = [3 + 20 * t if t & 1 else 1 + 10 * (t + 1) for t in range(32)]
    assert device.read(out.address, 128).view(np.int32).tolist() == want


@pytest.mark.nvcc
def test_local_memory_by_the_way(compiled: emulator.Module) -> None:
    device = emulator.Device()
    out = device.alloc(128, "out")
    assert not device.launch(compiled, "frames", (1, 1, 1), (32, 1, 1), [out.address, 1, 10]).findings

    def frames(t: int) -> int:
        total = 0
        for i in range(1000):
            total ^= sum(k * t << k for k in range(1 + (i + t) % 10))
        return total

    assert device.read(out.address, 128).view(np.int32).tolist() == [frames(t) for t in range(32)]
    (finding,) = device.launch(compiled, "frames", (1, 1, 1), (32, 1, 1), [out.address, 2500, 10]).findings
    assert finding.rule == "local-out-of-bounds"


@pytest.mark.parametrize("ty", ["u32", "u64", "b64"])
def test_stack_instructions(ty: str) -> None:
    wide = ty.endswith("64")
    r = "%d" if wide else "%r"
    body = f"""
    {".reg .b64 %d<9>;" if wide else ""}
    mov.b{ty[1:]} {r}1, 24;
    stacksave.{ty} {r}2;
    alloca.{ty} {r}3, {r}1, 32;
    alloca.{ty} {r}4, {r}1;
    stackrestore.{ty} {r}2;
    alloca.{ty} {r}5, {r}1, 32;
    st.local.b32 [{r}4], %i;
    ld.local.b32 %r6, [{r}3+24];
    sub.u{ty[1:]} {r}7, {r}5, {r}3;
    and.b{ty[1:]} {r}8, {r}3, 31;
    or.b{ty[1:]} {r}7, {r}7, {r}8;
    {"cvt.u32.u64 %r7, %d7;" if wide else ""}
    add.u32 %r1, %r6, %r7;
    """
    report, out = _run(body)
    assert not report.findings
    assert out == list(range(64))  # the second lies behind the first, the third in its place


@pytest.mark.nvcc
def test_atomics_of_a_histogram(compiled: emulator.Module) -> None:
    device = emulator.Device()
    data = np.random.default_rng(1).integers(0, 256, 1000).astype(np.uint8)
    source, bins = device.alloc(1000, "in"), device.alloc(64, "bins", zeroed=True)
    done, last = device.alloc(4, "done", zeroed=True), device.alloc(4, "last")
    device.write(source.address, data)
    arguments = [source.address, 1000, bins.address, done.address, last.address]
    report = device.launch(compiled, "histogram", (1, 1, 1), (128, 1, 1), arguments)
    assert not report.findings
    assert device.read(bins.address, 64).view(np.uint32).tolist() == np.bincount(data & 15, minlength=16).tolist()
    assert device.read(done.address, 4).view(np.uint32)[0] == 0  # incremented past its limit, it wraps


_MODULE = """.version 9.0
.target sm_100a
.address_size 64
{functions}
.visible .entry k(.param .b64 out)
{{
.reg .b64 %out, %at, %f; .reg .b32 %i, %r<9>; .reg .pred %p<5>;
ld.param.b64 %out, [out]; mov.u32 %i, %tid.x; mad.wide.u32 %at, %i, 4, %out;
{body}
st.global.b32 [%at], %r1;
ret;
}}
"""


def _run(body: str, functions: str = "", threads: int = 64) -> tuple[emulator.Report, list[int]]:
    device = emulator.Device()
    out = device.alloc(4 * threads, "out", zeroed=True)
    module = emulator.load_ptx(_MODULE.format(functions=functions, body=body))
    report = device.launch(module, "k", (1, 1, 1), (threads, 1, 1), [out.address])
    return report, device.read(out.address, 4 * threads).view(np.uint32).tolist()


_SWITCH = """mov.b32 %r1, 99; and.b32 %r2, %i, 3; setp.ge.u32 %p1, %i, 8;
table: .branchtargets A, B, A, C;
@%p1 brx.idx %r2, table;
bra END;
A: mov.b32 %r1, 1; bra END;
B: mov.b32 %r1, 2; bra END;
C: mov.b32 %r1, 3;
END: bar.warp.sync -1; add.u32 %r1, %r1, 10;"""


def test_an_indexed_branch_diverges_and_meets_again() -> None:
    report, out = _run(_SWITCH)
    assert not report.findings
    assert out == [109 if t < 8 else 10 + [1, 2, 1, 3][t & 3] for t in range(64)]


def test_an_index_beyond_the_table_is_a_fault() -> None:
    report, _ = _run(_SWITCH.replace("and.b32 %r2, %i, 3", "and.b32 %r2, %i, 7"))
    assert [f.rule for f in report.findings] == ["branch-index"]


_FUNCTIONS = """
.func (.reg .b32 %o) square(.reg .b32 %x) { mul.lo.u32 %o, %x, %x; ret; }
.func (.param .b32 o) early(.param .b32 x)
{
.reg .b32 %v; .reg .pred %p;
ld.param.b32 %v, [x];
st.param.b32 [o], 7;
setp.lt.u32 %p, %v, 5;
@%p ret;
st.param.b32 [o], %v;
ret;
}
.func leave(.param .b32 x) { .reg .b32 %v; .reg .pred %p; ld.param.b32 %v, [x]; setp.eq.u32 %p, %v, 3; @%p exit; ret; }
.func (.param .b32 o) counter()
{ .shared .b32 cell; .reg .b32 %v; atom.shared.exch.b32 %v, [cell], 5; st.param.b32 [o], %v; ret; }
"""


def test_register_parameters_and_guarded_calls() -> None:
    body = "mov.b32 %r1, 1000; setp.lt.u32 %p1, %i, 20; @%p1 call (%r1), square, (%i);"
    report, out = _run(body, _FUNCTIONS)
    assert not report.findings
    assert out == [t * t if t < 20 else 1000 for t in range(64)]


def test_an_early_return_leaves_the_callee_only() -> None:
    body = """.param .b32 a; .param .b32 r;
st.param.b32 [a], %i; call (r), early, (a); ld.param.b32 %r1, [r]; add.u32 %r1, %r1, 1;"""
    report, out = _run(body, _FUNCTIONS)
    assert not report.findings
    assert out == [8 if t < 5 else t + 1 for t in range(64)]


def test_exit_in_a_function_ends_the_thread() -> None:
    body = ".param .b32 a; mov.b32 %r1, 1; st.param.b32 [a], %i; call leave, (a);"
    report, out = _run(body, _FUNCTIONS)
    assert not report.findings
    assert out == [0 if t == 3 else 1 for t in range(64)]


def test_a_function_has_one_shared_variable_for_all_its_calls() -> None:
    body = """.param .b32 r; .param .b32 q; setp.eq.u32 %p1, %i, 0; mov.b32 %r1, 0;
@!%p1 bra END; call (r), counter, (); call (q), counter, (); ld.param.b32 %r1, [q]; END:"""
    _, out = _run(body, _FUNCTIONS, threads=32)
    assert out[0] == 5


def test_a_call_through_an_unknown_address_is_a_fault() -> None:
    body = """p: .callprototype (.param .b32 _) _ (.param .b32 _);
.param .b32 a; .param .b32 r; mov.b64 %f, 12345; mov.b32 %r1, 1; st.param.b32 [a], %i;
call (r), %f, (a), p;"""
    report, _ = _run(body, _FUNCTIONS)
    assert [f.rule for f in report.findings] == ["indirect-call"]


def test_a_function_without_a_body_is_refused() -> None:
    with pytest.raises(emulator.PtxError, match="nowhere"):
        _run("call nowhere, ();", ".extern .func nowhere();")


def test_trap_is_an_error_and_brkpt_nothing() -> None:
    assert not _run("mov.b32 %r1, 1; brkpt; nanosleep.u32 20; pmevent 3;")[0].findings
    assert [f.rule for f in _run("mov.b32 %r1, 1; trap;")[0].findings] == ["trap"]


_WARP = """shr.u32 %r2, %i, 2; and.b32 %r3, %i, 7; setp.lt.u32 %p1, %r3, 5; mov.b32 %r1, 0; @!%p1 bra END;
{line}
END:"""


@pytest.mark.parametrize(("op", "fold"), [("add.u32", sum), ("min.u32", min), ("max.s32", max)])
def test_redux_over_the_lanes_that_take_part(op: str, fold) -> None:
    report, out = _run(_WARP.format(line=f"redux.sync.{op} %r1, %r2, 0x1F1F1F1F;"), threads=32)
    assert not report.findings
    members = [t for t in range(32) if t & 7 < 5]
    assert out == [fold(t >> 2 for t in members) if t in members else 0 for t in range(32)]


def test_redux_of_floats() -> None:
    line = "cvt.rn.f32.u32 %r4, %i; neg.f32 %r4, %r4; redux.sync.max.abs.f32 %r1, %r4, 0x1F1F1F1F;"
    report, out = _run(_WARP.format(line=line), threads=32)
    assert not report.findings
    assert out[0] == int(np.float32(28).view(np.uint32))


def test_match() -> None:
    report, out = _run(_WARP.format(line="match.any.sync.b32 %r1, %r2, 0x1F1F1F1F;"), threads=32)
    members = [t for t in range(32) if t & 7 < 5]
    assert not report.findings
    assert out == [sum(1 << u for u in members if u >> 2 == t >> 2) if t in members else 0 for t in range(32)]
    line = "mov.b32 %r2, 4; match.all.sync.b32 %r1|%p2, %r2, 0x1F1F1F1F; @!%p2 trap;"
    report, out = _run(_WARP.format(line=line), threads=32)
    assert not report.findings
    assert out[0] == 0x1F1F1F1F


def test_special_registers() -> None:
    names = ["%nsmid", "%aggr_smem_size", "%total_smem_size", "%envreg3", "%ntid.w", "%globaltimer_hi", "%clock_hi"]
    for name in names:
        report, _ = _run(f"mov.u32 %r1, {name};")
        assert not report.findings
    assert _run("mov.pred %p1, %is_explicit_cluster; selp.b32 %r1, 1, 2, %p1;")[1][0] == 2
    assert _run("mov.u32 %r1, %pm3;")[1][0] == 0
    assert _run(".reg .b64 %g; mov.u64 %g, %pm7_64; cvt.u32.u64 %r1, %g;")[1][0] == 0
    assert _run(".reg .b64 %g; mov.u64 %g, %current_graph_exec; cvt.u32.u64 %r1, %g;")[1][0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "lop3.b32 _, %r2, %r2, %r2, 0x80;",  # ptxas takes this one, but none of the others
        "add.cc.u32 _, %r2, %r2;",
        "mov.b32 _, %r2;",
        "cvt.u64.u32 _, %r2;",
        "clz.b32 _, %r2;",
        "match.any.sync.b32 _, %r2, -1;",
        "shfl.sync.idx.b32 _|%p1, %r2, 0, 31, -1;",
        "testp.finite.f32 _, 0f3F800000;",
    ],
)
def test_a_result_for_the_sink_goes_nowhere(line: str) -> None:
    """It went to what lies before the registers, which ended the process."""
    report, out = _run(f"mov.b32 %r2, 3; {line} mov.b32 %r1, %r2;", threads=32)
    assert not report.findings
    assert set(out) == {3}


def test_mov_of_vectors() -> None:
    """A special register that is a vector goes to four registers; of registers all are read before one is written."""
    sizes = "mov.v4.u32 {%r1, %r2, _, %r3}, %ntid; mad.lo.u32 %r1, %r2, 100, %r1; mad.lo.u32 %r1, %r3, 1000, %r1;"
    assert _run(sizes, threads=32)[1][0] == 132
    swap = "mov.b32 %r2, 5; mov.b32 %r3, 7; mov.v2.b32 {%r2, %r3}, {%r3, %r2}; mad.lo.u32 %r1, %r2, 100, %r3;"
    assert _run(swap)[1][0] == 705
    halves = ".reg .b16 %h<4>; mov.v4.u16 {%h1, %h2, %h3, _}, %ntid; cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h3;"
    assert _run(f"{halves} mad.lo.u32 %r1, %r2, 100, %r1;", threads=32)[1][0] == 132
    assert _run(".reg .b16 %h1; mov.u16 %h1, %tid.x; cvt.u32.u16 %r1, %h1;", threads=32)[1] == [*range(32)]
    # Of a register that is no vector ptxas makes four elements of its bytes.
    octets = "mov.v4.u32 {%r1, %r2, _, %r3}, %lanemask_le; shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 24;"
    masks = _run(f"{octets} or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;", threads=32)[1]
    assert masks == [(2 << lane) - 1 & 0xFF00FFFF for lane in range(32)]
    for bad in ("mov.v2.u32 {%r1, %r2}, %ntid;", ".reg .b16 %h<4>; mov.v4.u16 {%h1, %h2, %h3, %h2}, %laneid;"):
        with pytest.raises(emulator.PtxError, match="is no vector of"):
            _run(bad)


def test_address_spaces_are_told_apart() -> None:
    body = """.local .b32 mine; .shared .b32 ours; .reg .b64 %a; mov.b32 %r1, 0;
mov.b64 %a, mine; cvta.local.u64 %a, %a; isspacep.local %p1, %a; isspacep.shared %p2, %a;
@%p1 add.u32 %r1, %r1, 1; @%p2 add.u32 %r1, %r1, 2;
mov.b64 %a, ours; cvta.shared.u64 %a, %a; isspacep.shared::cta %p1, %a; isspacep.global %p2, %a;
@%p1 add.u32 %r1, %r1, 4; @%p2 add.u32 %r1, %r1, 8;
isspacep.global %p1, %out; @%p1 add.u32 %r1, %r1, 16;"""
    report, out = _run(body)
    assert not report.findings
    assert set(out) == {1 + 4 + 16}


@pytest.mark.parametrize(("conversion", "rule"), [("%", "printf"), ("q", "printf-format"), ("", "printf-format")])
def test_an_unknown_conversion_of_printf_is_a_fault(conversion: str, rule: str) -> None:
    text = [*b"%", *conversion.encode(), 0]
    functions = f"""
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 list);
.global .align 1 .b8 text[{len(text)}] = {{{", ".join(map(str, text))}}};"""
    body = """.param .b64 a; .param .b64 b; .param .b32 r; mov.b32 %r1, 1; mov.b64 %f, text; cvta.global.u64 %f, %f;
st.param.b64 [a], %f; st.param.b64 [b], 0; call (r), vprintf, (a, b);"""
    report, _ = _run(body, functions, threads=32)
    assert [f.rule for f in report.findings] == [rule]


@pytest.mark.parametrize("width", ["2000000000", "-2000000000", ".2000000000", "99999999999999999999"])
def test_a_width_of_printf_beyond_any_line(width: str) -> None:
    """What is printed is cut to a line; it took seconds, and all of the memory that there was."""
    text = [*f"<%{width}d>".encode(), 0]
    functions = f"""
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 list);
.global .align 1 .b8 text[{len(text)}] = {{{", ".join(map(str, text))}}};"""
    body = """.param .b64 a; .param .b64 b; .param .b32 r; mov.b32 %r1, 1; mov.b64 %f, text; cvta.global.u64 %f, %f;
st.param.b64 [a], %f; st.param.b64 [b], %f; call (r), vprintf, (a, b);"""
    report, _ = _run(body, functions, threads=1)
    assert [f.rule for f in report.findings] == ["printf"]
    assert len(report.findings[0].message) == 1002
