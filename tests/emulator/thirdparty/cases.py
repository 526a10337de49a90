"""What each kernel is run on, and what it must give: the case of a kernel by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tests.emulator.thirdparty.formats import Array, decode, random, round_up_error, small_float
from tests.emulator.thirdparty.oracle import STORAGE, Case, Expected, U, ceil, filled, output, product, rng_of
from tests.probes.sums import truncated_sum

# Elementwise, rows and reductions


def _vector_add(fmt: str) -> Case:
    rng, n = rng_of("add" + fmt), 3001
    x, y = random(rng, (n,), fmt), random(rng, (n,), fmt)
    total = decode(x, fmt) + decode(y, fmt)
    return Case(
        (ceil(n, 1024), 1, 1),
        {"x": x, "y": y, "out": filled((n,), STORAGE[fmt])},
        {"out": output(fmt, total, 0.0)},
        {"n": n},
    )


def _softmax(fmt: str, columns: int, stride: int) -> Case:
    x = random(rng_of("softmax"), (5, stride), fmt) * 4
    values = decode(x, fmt)[:, :columns]
    p = np.exp(values - values.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    # ex2.approx: 2**-22 relative, its argument, up to 40, is off by 2**-24 of itself; the sum adds `columns` roundings.
    whole = filled((5, stride), STORAGE[fmt])
    values_out = decode(whole, fmt)
    values_out[:, :columns] = p
    bound = np.zeros((5, stride))
    bound[:, :columns] = p * (2.0**-18 + columns * U) + round_up_error(p, fmt)
    return Case(
        (5, 1, 1),
        {"in": x, "out": whole},
        {"out": Expected(fmt, values_out, bound)},
        {"stride": stride, "columns": columns},
    )


def _layer_norm() -> Case:
    rng, rows, n = rng_of("norm"), 6, 1130
    x, w, b = (random(rng, s, "bf16") for s in ((rows, n), (n,), (n,)))
    values = decode(x, "bf16")
    mean, rstd = values.mean(1), 1 / np.sqrt(values.var(1) + 1e-5)
    y = (values - mean[:, None]) * rstd[:, None] * decode(w, "bf16") + decode(b, "bf16")
    near = (np.abs(y) + np.abs(decode(w, "bf16")) + np.abs(decode(b, "bf16"))) * n * U
    outputs = {
        "out": output("bf16", y, near),
        "mean": output("f32", mean, n * U),
        "rstd": output("f32", rstd, rstd * n * U),
    }
    arrays = {
        "in": x,
        "weight": w,
        "bias": b,
        "out": filled((rows, n), np.uint16),
        "mean": filled((rows,), np.float32),
        "rstd": filled((rows,), np.float32),
    }
    return Case((rows, 1, 1), arrays, outputs, {"columns": n, "eps": 1e-5})


def _exact(fmt: str, values: Array) -> Expected:
    return Expected(fmt, values.astype(np.float64), np.zeros(values.shape))


def _atomic_reduce() -> Case:
    n = 2001
    x = rng_of("atomic").integers(0, 1000, n).astype(np.int32)
    zero, one = np.zeros(1, np.int32), np.zeros(1, np.float32)
    arrays = {"in": x, "sum": one, "max": zero, "bins": np.zeros(32, np.int32), "ticket": zero, "last": one}
    bins = np.bincount(x % 32, minlength=32)
    expected = {
        "sum": _exact("f32", x.sum(keepdims=True)),
        "max": _exact("i32", x.max(keepdims=True)),
        "bins": _exact("i32", bins),
        "last": _exact("f32", x.sum(keepdims=True)),
    }
    return Case((4, 1, 1), arrays, expected, {"n": n})


def _spin_lock() -> Case:
    x = rng_of("lock").integers(-50, 50, (6, 200)).astype(np.float32)
    arrays = {"in": x, "lock": np.zeros(1, np.int32), "out": np.zeros(200, np.float32)}
    return Case((6, 1, 1), arrays, {"out": _exact("f32", x.sum(0)), "lock": _exact("i32", np.zeros(1))}, {"n": 200})


def _sort_scan() -> Case:
    x = rng_of("sort").integers(-1000, 1000, (3, 256)).astype(np.int32)
    outs = {
        "sorted": np.sort(x),
        "scanned": np.cumsum(x, 1),
        "argmax": x.argmax(1),
        "histogram": np.stack([np.bincount(r & 63, minlength=64) for r in x]),
    }
    arrays = {"in": x, **{k: filled(v.shape, np.int32) for k, v in outs.items()}}
    return Case((3, 1, 1), arrays, {k: _exact("i32", v) for k, v in outs.items()})


def _erf(x: Array) -> Array:
    """Abramowitz and Stegun 7.1.5, the series, which is exact to float64 rounding for |x| < 4."""
    total, term = np.zeros_like(x), x.copy()
    for k in range(1, 120):
        total += term / (2 * k - 1)
        term = -term * x * x / k
    value: Array = total * 2 / np.sqrt(np.pi)
    return value


def _pointwise(kind: str, fmt: str, block: int) -> Case:
    n, seed = 1700, 12345
    x = random(rng_of(kind), (n,), fmt)
    v = decode(x, fmt)
    if kind == "gelu":
        values, bound = 0.5 * v * (1 + _erf(v * 0.70710678)), np.abs(v) * 2.0**-20
    elif kind == "trig":
        parts = [np.sin(v) * np.cos(v), np.log(np.abs(v) + 1), np.sqrt(np.abs(v)), np.floor(v), np.exp2(v)]
        values, bound = sum(parts), sum(np.abs(p) for p in parts) * 2.0**-20
    else:
        values, bound = np.where(_triton_rand(seed, n) > 0.5, v * 2, 0.0), np.zeros(n)
    arrays = {"x": x, "out": filled((n,), STORAGE[fmt])}
    return Case((ceil(n, block), 1, 1), arrays, {"out": output(fmt, values, bound)}, {"n": n, "seed": seed})


def _triton_rand(seed: int, n: int) -> Array:
    """Philox 4x32-10 (Salmon et al., 2011) of counter (i, 0, 0, 0), key (seed, 0), as tl.rand maps it."""
    zero: Array = np.zeros(n, np.uint64)
    c: list[Array] = [np.arange(n, dtype=np.uint64), zero, zero, zero]
    key = [seed, 0]
    for _ in range(10):
        high_a, low_a = c[0] * 0xD2511F53 >> 32, c[0] * 0xD2511F53 & 0xFFFFFFFF
        high_b, low_b = c[2] * 0xCD9E8D57 >> 32, c[2] * 0xCD9E8D57 & 0xFFFFFFFF
        c = [high_b ^ c[1] ^ np.uint64(key[0]), low_b, high_a ^ c[3] ^ np.uint64(key[1]), low_a]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    word = c[0].astype(np.uint32).view(np.int32).astype(np.int64)
    return np.where(word < 0, -word - 1, word) * 4.6566127342e-10


def _transpose_gather() -> Case:
    rng = rng_of("gather")
    x = random(rng, (100, 128), "f16")
    index = rng.permutation(64).astype(np.int32)
    columns = np.concatenate([index, 64 + index])
    out = x[:, columns].T
    arrays = {"in": x, "index": index, "out": filled((128, 100), np.float16)}
    return Case((2, 2, 1), arrays, {"out": _exact("f16", out)}, {"rows": 100, "columns": 128})


# Matrix products


def _matmul(fmt: str, out: str, block: tuple[int, int], m: int, n: int, k: int, extra: float = 0.0) -> Case:
    rng = rng_of(f"{fmt}{m}{n}{k}")
    a, b = random(rng, (m, k), fmt), random(rng, (k, n), fmt)
    scalars = {"M": m, "N": n, "K": k, "stride_am": k, "stride_bk": n, "stride_cm": n}
    arrays = {"a": a, "b": b, "c": filled((m, n), STORAGE[out])}
    expected = product(decode(a, fmt), decode(b, fmt), out, extra)
    return Case((ceil(m, block[0]), ceil(n, block[1]), 1), arrays, {"c": expected}, scalars)


def _hopper_fp8(m: int, n: int, k: int) -> Case:
    """Bit for bit what an H200's tensor core gives: sums of 14 bits, which no float64 oracle predicts closely."""
    case = _matmul("e4m3", "f32", (128, 128), m, n, k)
    # Without subnormal inputs, which were not measured.
    a, b = (np.where(case.arrays[x] & 0x78, case.arrays[x], 0).astype(np.uint8) for x in ("a", "b"))
    sums = truncated_sum(a, np.ascontiguousarray(b.T), np.zeros((m, n), np.uint32), "e4m3", 13, 32, 14)
    arrays = {**case.arrays, "a": a, "b": b}
    return replace(
        case, arrays=arrays, expected={"c": Expected("f32", sums.view(np.float32).astype(np.float64), np.zeros((m, n)))}
    )


def _integer(m: int, n: int, k: int) -> Case:
    rng = rng_of("integer")
    a, b = random(rng, (m, k), "i8"), random(rng, (n, k), "i8")
    values = a.astype(np.int64) @ b.astype(np.int64).T
    return Case(
        (m // 64, n // 64, 1), {"a": a, "b": b, "c": filled((m, n), np.int32)}, {"c": _exact("i32", values)}, {"K": k}
    )


def _transposed(
    fmt: str, out: str, m: int, n: int, k: int, grid: tuple[int, int, int], start: float | None = None
) -> Case:
    """C = A B^T through tensor maps: TMA fills and clips what is no multiple of the tile."""
    rng = rng_of(f"{fmt}{m}{n}{k}t")
    a, b = random(rng, (m, k), fmt), random(rng, (n, k), fmt)
    c = filled((m, n), STORAGE[out]) if start is None else np.full((m, n), start, np.float32)
    expected = product(decode(a, fmt), decode(b, fmt).T, out)
    if start is not None:
        expected = output(out, expected.values + start, expected.bound + abs(start) * 4 * U)
    return Case(grid, {"a": a, "b": b, "c": c}, {"c": expected}, {"M": m, "N": n, "K": k})


def _scaled(kind: str) -> Case:
    """Elements times 2**(scale - 127), a scale for 32 of them; e2m1 lies two a byte, the first in the low half."""
    rng, m, n, k = rng_of(kind), 128, 256, 512
    arrays: dict[str, Array] = {"c": filled((m, n), np.float32)}
    values = []
    for name, rows in (("a", m), ("b", n)):
        scale = rng.integers(120, 134, (rows, k // 32)).astype(np.uint8)
        if kind == "e2m1":
            bits = rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
            elements = small_float(np.stack([bits & 15, bits >> 4], -1).reshape(rows, k), 2, 1, 1)
        else:
            bits = random(rng, (rows, k), kind)
            elements = decode(bits, kind)
        arrays |= {name: bits, name + "_scale": scale}
        values.append(elements * np.repeat(np.exp2(scale.astype(np.float64) - 127), 32, axis=1))
    return Case((1, 2, 1), arrays, {"c": product(values[0], values[1].T, "f32")}, {"M": m, "N": n, "K": k})


def _gather_scatter() -> Case:
    rng, rows, columns = rng_of("rows"), 96, 128
    x = random(rng, (rows, columns), "f16")
    picked, to = rng.integers(0, rows, 64).astype(np.int32), rng.permutation(rows)[:64].astype(np.int32)
    out = filled((rows, columns), np.float16)
    values = out.copy()
    values[to] = x[picked] * 2
    return Case((2, 2, 1), {"a": x, "rows": picked, "to": to, "out": out}, {"out": _exact("f16", values)})


# Attention


def _attention(fmt: str, heads: int, t: int, s: int, d: int, block_m: int, causal: bool) -> Case:
    """The score's error e shifts a probability by e^(2e), and the probabilities are rounded to the operand format."""
    rng = rng_of(f"attention{t}{s}{d}{causal}")
    q, k, v = (random(rng, (heads, n, d), fmt) for n in (t, s, s))
    fq, fk, fv = (decode(x, fmt) for x in (q, k, v))
    scale = d**-0.5
    scores = fq @ fk.transpose(0, 2, 1) * scale
    wrong = (np.abs(fq) @ np.abs(fk).transpose(0, 2, 1) * scale).max() * (d + 8) * U
    if causal:
        scores = np.where(np.arange(s)[None, :] <= np.arange(t)[:, None], scores, -np.inf)
    top = scores.max(2, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(2, keepdims=True)
    o, lse = p @ fv / total, (top + np.log(total))[..., 0]
    rounding = round_up_error(np.ones(1), fmt)[0] + 2 * wrong + (s + 32) * U
    bound = p @ np.abs(fv) / total * rounding + np.abs(o) * rounding
    expected = {"o": output(fmt, o, bound), "lse": output("f32", lse, 2 * wrong + (s + 32) * U + np.abs(lse) * 4 * U)}
    arrays = {"q": q, "k": k, "v": v, "o": filled((heads, t, d), STORAGE[fmt]), "lse": filled((heads, t), np.float32)}
    return Case((ceil(t, block_m), heads, 1), arrays, expected, {"T": t, "S": s, "scale": scale})


# CuTe DSL: shapes are constants of the kernel; the .json says which


def _dsl_gemm(launch: Mapping[str, Any]) -> Case:
    names = {"Float16": "f16", "BFloat16": "bf16", "Float32": "f32", "TFloat32": "tf32", "Float8E4M3FN": "e4m3"}
    tensors, rng = launch["tensors"], rng_of(launch["entry"])
    arrays, values = {}, []
    for name in "ab":
        fmt = names[tensors[name]["type"]]
        bits = random(rng, tuple(tensors[name]["shape"]), fmt)
        values.append(decode(bits, fmt))
        arrays[name] = bits.T if tensors[name]["strides"][0] == 1 else bits  # in the order of memory
    out = names[tensors["c"]["type"]]
    arrays["c"] = filled(tuple(tensors["c"]["shape"]), STORAGE[out])
    return Case(tuple(launch["grid"]), arrays, {"c": product(values[0], values[1].T, out)})


def _dsl_axpy(launch: Mapping[str, Any]) -> Case:
    rng = rng_of("axpy")
    x, y = random(rng, (100, 300), "f16"), random(rng, (100, 300), "f16")
    values = 1.5 * decode(x, "f16") + decode(y, "f16")
    return Case(
        tuple(launch["grid"]), {"x": x, "y": y}, {"y": output("f16", values, np.abs(values) * U)}, {"alpha": 1.5}
    )


def _dsl_row_norm(launch: Mapping[str, Any]) -> Case:
    x = random(rng_of("row"), (5, 777), "bf16")
    values = np.sqrt((decode(x, "bf16") ** 2).sum(1))
    return Case(
        tuple(launch["grid"]),
        {"x": x, "out": filled((5,), np.float32)},
        {"out": output("f32", values, values * 400 * U)},
    )


TRITON: dict[str, Callable[[], Case]] = {
    "vector_add": lambda: _vector_add("f32"),
    "vector_add_bf16": lambda: _vector_add("bf16"),
    "softmax_rows": lambda: _softmax("f32", 781, 800),
    "softmax_rows_fp16": lambda: _softmax("f16", 1999, 2000),
    "layer_norm": _layer_norm,
    "atomic_reduce": _atomic_reduce,
    "spin_lock_sum": _spin_lock,
    "sort_scan": _sort_scan,
    "gelu": lambda: _pointwise("gelu", "f16", 512),
    "trig": lambda: _pointwise("trig", "f32", 256),
    "dropout": lambda: _pointwise("dropout", "f32", 256),
    "transpose_gather": _transpose_gather,
    "matmul_bf16": lambda: _matmul("bf16", "f32", (128, 128), 200, 136, 192),
    "matmul_fp16_odd": lambda: _matmul("f16", "f16", (128, 64), 131, 67, 101),
    "matmul_fp16_m64": lambda: _matmul("f16", "f32", (64, 64), 100, 72, 128),
    "matmul_fp16_n256": lambda: _matmul("f16", "f16", (128, 256), 128, 272, 128),
    "matmul_tf32": lambda: _matmul("tf32", "f32", (128, 64), 144, 64, 100),
    "matmul_tf32x3": lambda: _matmul("f32", "f32", (64, 64), 64, 100, 96, 2.0**-19),
    "matmul_ieee": lambda: _matmul("f32", "f32", (32, 32), 33, 36, 68),
    "matmul_fp16_small": lambda: _matmul("f16", "f32", (32, 32), 40, 40, 72),
    "matmul_fp8": lambda: _matmul("e4m3", "f32", (128, 64), 144, 64, 160),
    "matmul_fp8e5": lambda: _matmul("e5m2", "f16", (128, 64), 144, 64, 160),
    "matmul_int8": lambda: _integer(128, 64, 256),
    "matmul_tma": lambda: _transposed("f16", "f16", 200, 136, 328, (2, 2, 1)),
    "matmul_tma_bf16_n64": lambda: _transposed("bf16", "f32", 256, 100, 96, (2, 2, 1)),
    "matmul_tma_fp8": lambda: _transposed("e4m3", "f16", 128, 256, 512, (1, 2, 1)),
    "matmul_device_tma": lambda: _transposed("f16", "f16", 200, 136, 256, (2, 2, 1)),
    "matmul_tma_cluster": lambda: _transposed("f16", "f16", 300, 136, 192, (2, 2, 1)),
    "matmul_persistent": lambda: _transposed("f16", "f16", 384, 200, 128, (2, 1, 1)),
    "matmul_persistent_flat": lambda: _transposed("f16", "f16", 384, 200, 128, (2, 1, 1)),
    "matmul_persistent_ws": lambda: _transposed("f16", "f16", 384, 200, 128, (2, 1, 1)),
    "matmul_ws": lambda: _transposed("f16", "f16", 200, 136, 320, (2, 2, 1)),
    "matmul_split_k": lambda: _transposed("f16", "f32", 128, 100, 320, (1, 2, 2), 3.5),
    "gather_scatter": _gather_scatter,
    "attention": lambda: _attention("f16", 2, 150, 170, 64, 128, False),
    "attention_causal_d128": lambda: _attention("f16", 1, 200, 200, 128, 128, True),
    "attention_tma": lambda: _attention("bf16", 2, 128, 256, 64, 128, False),
    "attention_tma_d128": lambda: _attention("f16", 1, 256, 384, 128, 128, False),
    "attention_ws": lambda: _attention("bf16", 2, 128, 256, 64, 128, False),
    "attention_ws_d128": lambda: _attention("f16", 1, 256, 384, 128, 128, False),
    "matmul_mxfp8": lambda: _scaled("e4m3"),
    "matmul_mxfp4": lambda: _scaled("e2m1"),
    "hopper_matmul": lambda: _matmul("f16", "f16", (128, 128), 200, 136, 192),
    "hopper_matmul_tf32": lambda: _matmul("tf32", "f32", (64, 64), 100, 68, 100),
    "hopper_matmul_tma": lambda: _transposed("bf16", "bf16", 200, 136, 328, (2, 2, 1)),
    "hopper_persistent_ws": lambda: _transposed("f16", "f16", 384, 200, 128, (2, 1, 1)),
    "hopper_matmul_fp8": lambda: _hopper_fp8(144, 128, 160),
    "hopper_matmul_cluster": lambda: _transposed("f16", "f16", 136, 304, 192, (2, 2, 1)),
    "hopper_attention": lambda: _attention("f16", 2, 150, 150, 64, 128, True),
    "hopper_attention_tma": lambda: _attention("bf16", 2, 128, 256, 64, 128, False),
}


def case_of(name: str, launch: Mapping[str, Any]) -> Case:
    if name == "dsl_axpy":
        return _dsl_axpy(launch)
    if name == "dsl_row_norm":
        return _dsl_row_norm(launch)
    return _dsl_gemm(launch) if name.startswith("dsl_") else TRITON[name]()
