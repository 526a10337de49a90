"""multimem over a team of one device: every form against NumPy, and addresses that are none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.emulator import Device, PtxError, load_ptx

WORDS = 64  # 16 bytes a lane in 16 lanes
BITS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64} | {
    f"{name}{n}": 8 * int(n[1:] or 1) for name in ("e4m3", "e5m2") for n in ("", "x2", "x4")
}
VECTORS = [(name, n) for name, n in itertools.product(BITS, (1, 2, 4, 8)) if BITS[name] * n in (32, 64, 128)]
VECTORS = [(name, n) for name, n in VECTORS if name != "f64" or n == 1]
INTEGERS = ("b32", "b64", "u32", "u64", "s32", "s64")


def run(body: str, plain: bool = False, target: str = "sm_100a", block: int = 16) -> tuple[list[str], list[NDArray]]:
    """`body` in each of `block` lanes: %m, the multimem address of its 16 bytes, %a, the plain one of 16 others."""
    device = Device()
    rng = np.random.default_rng(4)
    data = rng.integers(0, 1 << 32, (2, WORDS), dtype=np.uint64).astype(np.uint32) & np.uint32(0x3F3F3F3F)
    first, second = (device.alloc(4 * WORDS, name) for name in ("first", "second"))
    for buffer, x in zip((first, second), data, strict=True):
        device.write(buffer.address, x)
    text = f""".version 9.1
.target {target}
.address_size 64
.visible .entry k(.param .u64 pm, .param .u64 pa)
{{ .reg .b64 %m, %a, %at, %l<4>; .reg .b32 %r<8>, %i; .reg .b16 %h<8>; .reg .pred %p<2>;
.shared .align 16 .b8 tile[64];
ld.param.u64 %m, [pm]; ld.param.u64 %a, [pa]; mov.u32 %i, %tid.x; mul.wide.u32 %at, %i, 16;
add.s64 %m, %m, %at; add.s64 %a, %a, %at;
{body}
ret; }}"""
    address = first.address if plain else first.multimem_address
    report = device.launch(load_ptx(text), "k", 1, block, [address, second.address])
    after = [device.read(b.address, b.nbytes).view(np.uint32) for b in (first, second)]
    return [f.rule for f in report.findings], [*data, *after]


def _registers(name: str, count: int) -> tuple[str, str, str]:
    """A vector of registers, and how a plain ld or st names the same bits."""
    bits = BITS.get(name) or int(name[1:])
    letter = {8: "h", 16: "h", 32: "r", 64: "l"}[bits]
    listed = ", ".join(f"%{letter}{k}" for k in range(count))
    return (f"{{{listed}}}" if count > 1 else listed), f".v{count}" * (count > 1), f"b{bits}"


@pytest.mark.parametrize("order", ["", ".weak", ".relaxed.gpu", ".acquire.sys.global"])
def test_a_load_brings_the_value_of_the_one_place(order: str) -> None:
    forms = [("add", name, n) for name, n in VECTORS] + [("xor", x, 1) for x in ("b32", "b64")] + [("min", "s64", 1)]
    for operation, name, n in forms:
        registers, vector, bits = _registers(name, n)
        plain = {"b8": ".v4.b8"}.get(bits, "") if n == 8 else ""
        if plain:  # eight bytes: two stores of four
            stores = f"st.global.v4.b8 [%a], {{{', '.join(f'%h{k}' for k in range(4))}}};"
            stores += f"st.global.v4.b8 [%a+4], {{{', '.join(f'%h{k}' for k in range(4, 8))}}};"
        elif n == 8:
            stores = f"st.global.v4.b16 [%a], {{{', '.join(f'%h{k}' for k in range(4))}}};"
            stores += f"st.global.v4.b16 [%a+8], {{{', '.join(f'%h{k}' for k in range(4, 8))}}};"
        else:
            stores = f"st.global{vector}.{bits} [%a], {registers};"
        rules, (first, second, *after) = run(
            f"multimem.ld_reduce{order}.{operation}{vector}.{name} {registers}, [%m];{stores}"
        )
        assert not rules, (name, n)
        size = (BITS.get(name) or int(name[1:])) * n // 8
        expected = second.view(np.uint8).reshape(16, 16).copy()
        expected[:, :size] = first.view(np.uint8).reshape(16, 16)[:, :size]
        np.testing.assert_array_equal(after[1].view(np.uint8).reshape(16, 16), expected, err_msg=f"{name} {n}")


@pytest.mark.parametrize("order", ["", ".weak.global", ".relaxed.gpu", ".release.cta.global"])
def test_a_store_reaches_the_one_place(order: str) -> None:
    for name, n in (*VECTORS, *((x, 1) for x in INTEGERS)):
        if n == 8:
            continue  # below
        registers, vector, bits = _registers(name, n)
        rules, (first, second, *after) = run(
            f"ld.global{vector}.{bits} {registers}, [%a]; multimem.st{order}{vector}.{name} [%m], {registers};"
        )
        assert not rules
        size = (BITS.get(name) or int(name[1:])) * n // 8
        expected = first.view(np.uint8).reshape(16, 16).copy()
        expected[:, :size] = second.view(np.uint8).reshape(16, 16)[:, :size]
        np.testing.assert_array_equal(after[0].view(np.uint8).reshape(16, 16), expected, err_msg=f"{name} {n}")


def test_a_store_of_eight_elements() -> None:
    registers = ", ".join(f"%h{k}" for k in range(8))
    body = "ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [%a]; ld.global.v4.b16 {%h4, %h5, %h6, %h7}, [%a+8];"
    rules, (_, second, *after) = run(body + f"multimem.st.v8.bf16 [%m], {{{registers}}};")
    assert not rules
    np.testing.assert_array_equal(after[0], second)


def _sum(name: str, x: NDArray, y: NDArray) -> NDArray:
    if name.startswith("bf16"):
        a, b = ((v.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for v in (x, y))
        raw = (a + b).view(np.uint32).astype(np.uint64)
        return ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint32)
    dtype = {"f16": np.float16, "f16x2": np.float16, "f32": np.float32, "f64": np.float64}[name]
    return (x.view(dtype) + y.view(dtype)).view(np.uint32)


@pytest.mark.parametrize("order", ["", ".relaxed.gpu.global", ".release.sys"])
def test_a_reduction_of_floats(order: str) -> None:
    for name, n in ((name, n) for name, n in VECTORS if name in ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")):
        registers, vector, bits = _registers(name, n)
        loads = f"ld.global{vector}.{bits} {registers}, [%a];"
        if n == 8:
            loads = "ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [%a]; ld.global.v4.b16 {%h4, %h5, %h6, %h7}, [%a+8];"
        rules, (first, second, *after) = run(f"{loads} multimem.red{order}.add{vector}.{name} [%m], {registers};")
        assert not rules, (name, n, rules)
        size = BITS[name] * n // 8
        expected = first.reshape(16, 4).copy()
        expected[:, : size // 4] = _sum(name, first, second).reshape(16, 4)[:, : size // 4]
        np.testing.assert_array_equal(after[0].reshape(16, 4), expected, err_msg=f"{name} {n}")


@pytest.mark.parametrize("name", ["f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_the_smaller_and_the_larger_of_vectors(op: str, name: str) -> None:
    for count in (n for other, n in VECTORS if other == name and n > 1):
        registers, vector, bits = _registers(name, count)
        loads = f"ld.global{vector}.{bits} {registers}, [%a];"
        if count == 8:
            loads = "ld.global.v4.b16 {%h0, %h1, %h2, %h3}, [%a]; ld.global.v4.b16 {%h4, %h5, %h6, %h7}, [%a+8];"
        rules, (first, second, *after) = run(f"{loads} multimem.red.{op}{vector}.{name} [%m], {registers};")
        assert not rules, (name, count, rules)
        x, y = first.view(np.uint16).reshape(16, 8), second.view(np.uint16).reshape(16, 8)
        smaller = _values(name, x) < _values(name, y)
        both = np.where(smaller == (op == "min"), x, y)
        size = BITS[name] * count // 16
        expected = x.copy()
        expected[:, :size] = both[:, :size]
        np.testing.assert_array_equal(after[0].view(np.uint16).reshape(16, 8), expected, err_msg=f"{name} {count}")


def _values(name: str, bits: NDArray) -> NDArray:
    return bits.view(np.float16) if name.startswith("f") else (bits.astype(np.uint32) << 16).view(np.float32)


def test_a_reduction_of_integers_is_atomic() -> None:
    rules, (first, _, *after) = run(
        "cvt.u64.u32 %at, %i; mul.lo.u64 %at, %at, 16; sub.s64 %m, %m, %at;"
        "multimem.red.relaxed.gpu.add.u32 [%m], %i; multimem.red.max.s64 [%m+8], 5;",
        block=64,
    )
    assert not rules
    assert after[0][0] == first[0] + 64 * 63 // 2
    assert after[0][2:4].view(np.int64)[0] == max(first[2:4].view(np.int64)[0], 5)


def test_bulk_copies() -> None:
    body = """
    setp.ne.u32 %p0, %i, 0; @%p0 bra END; mov.u32 %r0, tile;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a]; st.shared.v4.u32 [%r0], {%r1, %r2, %r3, %r4};
    fence.proxy.async.shared::cta;
    multimem.cp.async.bulk.global.shared::cta.bulk_group [%m], [%r0], 16;
    multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%m+16], [%r0], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    END:"""
    rules, (first, second, *after) = run(body)
    assert not rules
    np.testing.assert_array_equal(after[0][:4], second[:4])
    np.testing.assert_array_equal(after[0][4:8], first[4:8] + second[:4])
    np.testing.assert_array_equal(after[0][8:], first[8:])


def test_other_addresses_are_none() -> None:
    assert run("multimem.st.u32 [%m], %i;", plain=True)[0] == ["global-out-of-bounds"]
    assert run("multimem.ld_reduce.add.u32 %r0, [%m];", plain=True)[0] == ["global-out-of-bounds"]
    assert run("ld.global.u32 %r0, [%m];")[0] == ["global-out-of-bounds"]
    assert run("multimem.red.add.u32 [%m+1024], %i;")[0] == ["global-out-of-bounds"]


def test_a_race_is_seen() -> None:
    body = "cvt.u64.u32 %at, %i; mul.lo.u64 %at, %at, 16; sub.s64 %m, %m, %at; multimem.st.u32 [%m], %i;"
    assert run(body, block=64)[0] == ["race"]
    assert not run(body.replace("multimem.st", "multimem.st.relaxed.gpu"), block=64)[0]


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("multimem.red.add.f16 [%m], %h0;", "has no 1 elements of .f16"),
        ("multimem.red.min.f16x2 [%m], %r0;", "takes a vector"),
        ("multimem.red.and.v2.f16 [%m], {%h0, %h1};", "no such operation"),
        ("multimem.red.add.v2.f64 [%m], {%l0, %l1};", "has no 2 elements"),
        ("multimem.ld_reduce.u32 %r0, [%m];", "needs its operation"),
        ("multimem.ld_reduce.add.acc::f32.f32 %r0, [%m];", ".acc::f32 does not go with .f32"),
        ("multimem.ld_reduce.xor.u32 %r0, [%m];", "no such operation"),
        ("multimem.st.v4.u32 [%m], {%r0, %r1, %r2, %r3};", "has no 4 elements of .u32"),
        ("multimem.red.acquire.gpu.add.u32 [%m], %r0;", "acquire"),
    ],
)
def test_what_is_refused(form: str, complaint: str) -> None:
    with pytest.raises(PtxError, match=complaint):
        run(form)
