"""Functions that call themselves: compiled by nvcc, and by hand for forms it never emits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator.decode.control.frames import STACK_BYTES
from tests.compiled import nvcc

HERE = Path(__file__).parent
# One worker compiles what all tests of this file run.
pytestmark = [pytest.mark.nvcc, pytest.mark.xdist_group("recursion")]


@pytest.fixture(scope="module", params=["", "-G"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> emulator.Module:
    out = tmp_path_factory.mktemp("ptx") / "recursion.ptx"
    options = [request.param] if request.param else []
    return emulator.load_ptx(nvcc(out, HERE / "recursion.cu", "-arch=sm_100a", "-ptx", *options))


def launch(
    module: emulator.Module, entry: str, *arguments: int, threads: int = 64, words: int = 1, profile: str = "strict"
) -> tuple[list[str], np.ndarray]:
    """Rules that were broken, and what `threads` threads have written, `words` each."""
    device = emulator.Device(profile=profile)
    out = device.alloc(4 * words * threads, "out")
    report = device.launch(module, entry, (1, 1, 1), (threads, 1, 1), [out.address, *arguments])
    return [f.rule for f in report.findings], device.read(out.address, 4 * words * threads)


@cache
def fibonacci(n: int) -> int:
    return 1 if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_lanes_of_one_warp_are_at_depths_of_their_own(compiled: emulator.Module) -> None:
    rules, out = launch(compiled, "fibonaccis")
    assert not rules
    assert out.view(np.int32).tolist() == [fibonacci(t % 11) for t in range(64)]


def test_a_frame_keeps_its_arrays_and_takes_what_callees_write(compiled: emulator.Module) -> None:
    rules, out = launch(compiled, "solutions", threads=32)
    assert not rules
    assert out.view(np.int32).tolist() == [[1, 0, 0, 2, 10, 4][t % 6] for t in range(32)]


Span = tuple[str, int, int, list[np.float32]]


def left_of(s: Span, scale: float) -> Span:
    _, first, last, (a, b, c) = s
    if last - first < 2:
        return s
    middle, one = (first + last) // 2, np.float32(1)
    left = right_of(("l", first, middle, [a + one, b, c]), scale * 2)
    right = right_of(("r", middle, last, [a, b + one, c]), scale / 2)
    weight = [x + y * np.float32(i + 1) for i, (x, y) in enumerate(zip(left[3], right[3], strict=True))]
    weight[2] = np.float32(weight[2] + scale)
    return left[0], left[1], right[2], weight


def right_of(s: Span, scale: float) -> Span:
    tag, first, last, weight = left_of(s, scale + 1)
    return tag, first, last, [weight[0], weight[1] + np.float32(tag == "l"), weight[2]]


def test_structs_pass_by_value_between_functions_that_call_each_other(compiled: emulator.Module) -> None:
    rules, out = launch(compiled, "spans", threads=32, words=6)
    assert not rules
    zero, one = np.float32(0), np.float32(1)
    b = right_of(("l", 3, 7, [one] * 3), 3.0)[3]
    want = [[*left_of(("x", 0, t % 13, [zero] * 3), 1.0)[3], *b] for t in range(32)]
    np.testing.assert_allclose(out.view(np.float32).reshape(32, 6), want, rtol=1e-6)


def test_one_recursion_within_another(compiled: emulator.Module) -> None:
    def tree(n: int) -> int:
        return n.bit_length() + tree(n // 3) * 2 + (n + tree(n // 4)).bit_length() if n else 1

    rules, out = launch(compiled, "trees")
    assert not rules
    assert out.view(np.int32).tolist() == [tree(5 * t) for t in range(64)]


def test_functions_that_call_one_another_by_address(compiled: emulator.Module) -> None:
    def step(which: int, n: int) -> int:
        if which:
            return 3 * step(n // 2 & 1, n // 2) + 1 if n else 7
        return step(n // 2 & 1, n // 2) + n if n else 5

    rules, out = launch(compiled, "parities")
    assert not rules
    assert out.view(np.int32).tolist() == [step(t & 1, t) for t in range(64)]


def test_a_warp_shuffles_in_every_frame(compiled: emulator.Module) -> None:
    rules, out = launch(compiled, "sums", threads=32)
    assert not rules
    assert out.view(np.int32).tolist() == [sum(t * t for t in range(32))] * 32


def test_a_stack_that_is_too_small_is_a_fault(compiled: emulator.Module) -> None:
    rules, out = launch(compiled, "ackermanns", 2, 3, threads=32)
    assert not rules
    assert out.view(np.int32).tolist() == [9] * 32
    assert launch(compiled, "ackermanns", 3, 20, threads=32)[0] == ["local-out-of-bounds"]


def test_a_frame_holds_nothing_of_the_one_before(compiled: emulator.Module) -> None:
    assert not launch(compiled, "remembered", 1, threads=32)[0]
    assert launch(compiled, "remembered", 3, threads=32)[0] == ["uninitialised-local"]


_BY_HAND = """.version 8.8
.target sm_100a
.address_size 64
.func (.reg .b32 g) gcd (.reg .b32 a, .reg .b32 b, .reg .pred odd, .reg .b64 far, .reg .b16 near)
{
.reg .pred %p<4>; .reg .b32 %m<5>; .reg .b64 %w; .reg .b16 %h;
setp.ne.u32 %p1, b, 0;
@%p1 bra MORE;
mov.b32 g, a;
ret;
MORE:
rem.u32 %m1, a, b;
not.pred %p2, odd;
add.u64 %w, far, 1;
add.u16 %h, near, 2;
@%p1 call (%m2), gcd, (b, %m1, %p2, %w, %h);
// What this frame had is still there.
@!odd bra EVEN;
xor.b32 %m2, %m2, 1;
EVEN:
cvt.u32.u64 %m3, far;
cvt.u32.u16 %m4, near;
mad.lo.u32 %m3, %m3, 1000, %m4;
add.u32 g, %m2, %m3;
ret;
}
.visible .entry k(.param .u64 out)
{
.reg .b64 %o, %e; .reg .b32 %i, %a, %b, %r; .reg .pred %p;
ld.param.u64 %o, [out];
mov.u32 %i, %tid.x;
mul.lo.u32 %a, %i, 12; mul.lo.u32 %b, %i, 5; add.u32 %b, %b, 3;
setp.ne.u32 %p, %i, 0;
call (%r), gcd, (%a, %b, %p, 7, 9);
mad.wide.u32 %e, %i, 4, %o;
st.global.u32 [%e], %r;
ret;
}"""


def test_parameters_in_registers() -> None:
    """Each is the next one's argument, of every width; a call is under a guard."""

    def gcd(a: int, b: int, odd: bool, far: int, near: int) -> int:
        if not b:
            return a
        inner = gcd(b, a % b, not odd, far + 1, near + 2) ^ odd
        return inner + far * 1000 + near

    rules, out = launch(emulator.load_ptx(_BY_HAND), "k", threads=32)
    assert not rules
    assert out.view(np.uint32).tolist() == [gcd(12 * t, 5 * t + 3, t != 0, 7, 9) for t in range(32)]


def test_the_depth_that_fits() -> None:
    """A frame has 16 bytes here: the number of the call, and nothing else."""
    text = """.version 8.8
.target sm_100a
.address_size 64
.func down (.reg .b32 n)
{
.reg .pred %p; .reg .b32 %m;
setp.eq.u32 %p, n, 0;
@%p ret;
sub.u32 %m, n, 1;
call down, (%m);
ret;
}
.visible .entry k(.param .u64 out, .param .u32 n)
{
.reg .b64 %o; .reg .b32 %n;
ld.param.u64 %o, [out];
ld.param.u32 %n, [n];
call down, (%n);
st.global.u32 [%o], %n;
ret;
}"""
    module = emulator.load_ptx(text)
    deepest = STACK_BYTES // 16 - 1
    assert launch(module, "k", deepest, threads=1)[0] == []
    assert launch(module, "k", deepest + 1, threads=1)[0] == ["local-out-of-bounds"]
