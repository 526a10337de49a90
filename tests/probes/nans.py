"""Probes of NaNs: what instructions of each format make of quiet and signalling ones, and of their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.probes.case import Array, Case, In, Out, hashed
from tests.probes.scalar import CTYPE, DTYPE, Row, letter, source_of

_BITS = {"f64": (np.uint64, 52, 11), "f32": (np.uint32, 23, 8), "f16": (np.uint16, 10, 5), "bf16": (np.uint16, 7, 8)}
ROWS: list[Row] = []
# Results of atomics are what they leave in memory: kernels of their own.
_ATOMICS = {"f64": "add.f64", "f32": "add.f32", "f16x2": "add.noftz.f16x2", "bf16x2": "add.noftz.bf16x2"}


def _patterns(kind: str) -> Array:
    """NaNs of both signs, quiet and signalling, with the first, the last, some and all bits of payload; and numbers."""
    dtype, mantissa, exponent = _BITS[kind.removesuffix("x2")]
    infinity, quiet = ((1 << exponent) - 1) << mantissa, 1 << mantissa - 1
    some = 0x5A5A5A5A5A5A5A5A & (quiet - 1)
    nans = [infinity | quiet | p for p in (0, 1, some, quiet - 1)] + [infinity | p for p in (1, some, quiet >> 1)]
    one = ((1 << exponent - 1) - 1) << mantissa
    positive = [*nans, infinity, 0, 1, one, one + quiet]
    sign = 1 << mantissa + exponent
    return np.array([p | s for p in positive for s in (0, sign)], dtype)


def _add(asm: str, result: str, inputs: str, nan: str | None) -> None:
    kinds = tuple(inputs.split())
    operands = ", ".join(f"%{i}" for i in range(len(kinds) + 1))
    ROWS.append(Row("nan_" + asm.replace(".", "_"), f"{asm} {operands};", result, kinds, nan))


def _fill() -> None:
    for form in (
        "add.rn",
        "add.rm",
        "sub.rn",
        "sub.rz",
        "mul.rn",
        "mul.rp",
        "div.rn",
        "div.rz",
        "min",
        "max",
        "copysign",
    ):
        _add(f"{form}.f64", "l", "f64 f64", "f64")
    for form in ("fma.rn", "fma.rz"):
        _add(f"{form}.f64", "l", "f64 f64 f64", "f64")
    for form in (
        "abs.f64",
        "neg.f64",
        "sqrt.rn.f64",
        "sqrt.rp.f64",
        "rcp.rn.f64",
        "rcp.rz.f64",
        "rcp.approx.ftz.f64",
        "rsqrt.approx.f64",
        "rsqrt.approx.ftz.f64",
        "cvt.rni.f64.f64",
        "cvt.rzi.f64.f64",
        "cvt.sat.f64.f64",
    ):
        _add(form, "l", "f64", "f64")
    for form in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat", "rn.ftz.sat"):
        _add(f"cvt.{form}.f32.f64", "r", "f64", "f32")
    for t in ("f16", "bf16"):
        _add(f"cvt.rn.{t}.f64", "h", "f64", t)
        _add(f"cvt.f64.{t}", "l", t, "f64")
        _add(f"cvt.f32.{t}", "r", t, "f32")
        for form in ("rn", "rz", "rn.relu"):
            _add(f"cvt.{form}.{t}.f32", "h", "f32", t)
    for form in ("cvt.f64.f32", "cvt.ftz.f64.f32", "cvt.sat.f64.f32", "cvt.ftz.sat.f64.f32"):
        _add(form, "l", "f32", "f64")
    for form in (
        "add.rn",
        "add.rn.ftz",
        "add.rn.sat",
        "sub.rz",
        "mul.rn",
        "mul.rp.ftz",
        "div.rn",
        "min",
        "max",
        "min.NaN",
        "max.NaN",
        "min.ftz",
        "max.NaN.xorsign.abs",
        "copysign",
    ):
        _add(f"{form}.f32", "r", "f32 f32", "f32")
    for form in ("fma.rn", "fma.rz.ftz"):
        _add(f"{form}.f32", "r", "f32 f32 f32", "f32")
    for form in (
        "abs.f32",
        "abs.ftz.f32",
        "neg.f32",
        "neg.ftz.f32",
        "sqrt.rn.f32",
        "rcp.rn.f32",
        "ex2.approx.f32",
        "tanh.approx.f32",
        "cvt.rni.f32.f32",
        "cvt.sat.f32.f32",
        "cvt.ftz.f32.f32",
        "cvt.rn.tf32.f32",
    ):
        _add(form, "r", "f32", "f32")
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        width = "r" if t.endswith("x2") else "h"
        for form in ("add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN", "min.xorsign.abs"):
            _add(f"{form}.{t}", width, f"{t} {t}", t)
        for form in ("fma.rn", "fma.rn.relu"):
            _add(f"{form}.{t}", width, f"{t} {t} {t}", t)
        for form in ("abs", "neg"):
            _add(f"{form}.{t}", width, t, t)
    for form in ("add.rn.sat", "mul.rn.ftz"):
        _add(f"{form}.f16", "h", "f16 f16", "f16")


_fill()


def _atomic_rows() -> list[Row]:
    return [
        Row(f"nan_atom_{form.replace('.', '_')}", f"atom.global.{form}", letter(kind), (kind, kind), kind)
        for kind, form in _ATOMICS.items()
    ]


def _atomic_source(row: Row) -> str:
    kind, width = CTYPE[row.result], row.result
    return (
        f'extern "C" __global__ void {row.name}(const {kind}* a, const {kind}* b, {kind}* out) {{\n'
        f"    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n    {kind} old;\n    out[i] = a[i];\n"
        f'    asm volatile("{row.asm} %0, [%1], %2;" : "={width}"(old) : "l"(out + i), "{width}"(b[i]) : "memory");\n'
        f"    if (old != a[i]) out[i] = 0;\n}}\n"
    )


def source() -> str:
    return source_of(ROWS, "nans.py") + "\n".join(map(_atomic_source, _atomic_rows()))


def _operands(kinds: tuple[str, ...], salt: int) -> list[Array]:
    """Each pattern against each; of three operands 2048 combinations. The two halves of a word differ."""
    patterns = [_patterns(kind) for kind in kinds]
    rows = list(product(*(range(len(p)) for p in patterns)))
    if len(kinds) == 3:
        rows = [rows[int(n) % len(rows)] for n in hashed(2048, salt)]
    rows += rows[:1] * (-len(rows) % 128)
    index = np.array(rows).T
    found = []
    for kind, p, chosen in zip(kinds, patterns, index, strict=True):
        values = p[chosen]
        if kind.endswith("x2"):
            values = values.astype(np.uint32) | np.roll(values, 77).astype(np.uint32) << 16
        found.append(values)
    return found


def cases() -> Iterator[Case]:
    for salt, row in enumerate([*ROWS, *_atomic_rows()]):
        values = _operands(row.inputs, salt)
        n = values[0].size
        out = Out(np.zeros(n, DTYPE[row.result]))
        yield Case(
            f"nans/{row.name.removeprefix('nan_')}", "nans", row.name, (*map(In, values), out), nan=row.nan,
            grid=(n // 128, 1, 1), block=(128, 1, 1),
        )  # fmt: skip
