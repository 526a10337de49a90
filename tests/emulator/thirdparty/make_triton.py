"""Compiles triton_kernels.py to PTX with no GPU, and writes beside each .ptx how it is launched (.json).

    pip install triton==3.9.0 numpy && python tests/emulator/thirdparty/make_triton.py [NAME...]

The files in this directory were made with triton 3.9.0 and Python 3.11.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import triton
import triton_kernels as kernels
from triton.backends.compiler import GPUTarget
from triton.backends.driver import expand_signature
from triton.compiler import ASTSource

HERE = Path(__file__).parent
SM100, SM90 = 100, 90


@dataclass(frozen=True)
class Variant:
    name: str
    kernel: str
    types: str  # of the arguments that are no constants, in order; "!16" after one: divisible by 16
    constants: dict = field(default_factory=dict)
    arch: int = SM100
    warps: int = 4
    stages: int = 3
    ctas: int = 1


def _matmul(name, a, c, bm, bn, bk, precision="tf32", aligned=True, **rest):
    stride = "i32!16" if aligned else "i32"
    types = f"*{a}!16 *{a}!16 *{c}!16 i32 i32 i32 {stride} {stride} {stride}"
    return Variant(name, "matmul", types, {"BM": bm, "BN": bn, "BK": bk, "PRECISION": precision}, **rest)


def _descriptors(a, c, bm, bn, bk):
    return f"tensordesc<{a}[{bm},{bk}]> tensordesc<{a}[{bn},{bk}]> tensordesc<{c}[{bm},{bn}]>"


def _tma(name, kernel, a, c, bm, bn, bk, ints="i32", extra=None, **rest):
    types = f"{_descriptors(a, c, bm, bn, bk)} {ints}"
    return Variant(name, kernel, types, {"BM": bm, "BN": bn, "BK": bk, **(extra or {})}, **rest)


def _persistent(name, specialise, flatten, **rest):
    extra = {"CTAS": 2, "GROUP": 2, "FLATTEN": flatten, "WARP_SPECIALIZE": specialise}
    return _tma(name, "matmul_persistent", "fp16", "fp16", 128, 128, 64, "i32 i32 i32", extra, **rest)


def _attention(name, causal, bm=128, bn=64, d=64, **rest):
    types = "*fp16!16 *fp16!16 *fp16!16 *fp16!16 *fp32!16 i32 i32 fp32"
    return Variant(name, "attention", types, {"BM": bm, "BN": bn, "D": d, "CAUSAL": causal}, **rest)


def _attention_tma(name, specialise, dtype="bf16", bm=128, bn=64, d=64, **rest):
    shapes = " ".join(f"tensordesc<{dtype}[{rows},{d}]>" for rows in (bm, bn, bn, bm))
    constants = {"BM": bm, "BN": bn, "D": d, "WARP_SPECIALIZE": specialise}
    return Variant(name, "attention_tma", f"{shapes} *fp32!16 i32!16 i32!16 fp32", constants, **rest)


def _scaled(name, element, fmt, pack, bk=128, **rest):
    types = f"*{element}!16 *u8!16 *{element}!16 *u8!16 *fp32!16 i32!16 i32!16 i32!16"
    constants = {"BM": 128, "BN": 128, "BK": bk, "FORMAT": fmt, "PACK": pack, "GROUP": 32}
    return Variant(name, "matmul_scaled", types, constants, **rest)


VARIANTS = [
    Variant("vector_add", "vector_add", "*fp32!16 *fp32!16 *fp32!16 i32", {"BLOCK": 1024}),
    Variant("vector_add_bf16", "vector_add", "*bf16!16 *bf16!16 *bf16!16 i32", {"BLOCK": 1024}),
    Variant("softmax_rows", "softmax_rows", "*fp32!16 *fp32!16 i32 i32", {"BLOCK": 1024}),
    Variant("softmax_rows_fp16", "softmax_rows", "*fp16!16 *fp16!16 i32!16 i32", {"BLOCK": 2048}, warps=8),
    Variant(
        "layer_norm", "layer_norm", "*bf16!16 *bf16!16 *bf16!16 *bf16!16 *fp32!16 *fp32!16 i32 fp32", {"BLOCK": 512}
    ),
    Variant(
        "atomic_reduce",
        "atomic_reduce",
        "*i32!16 *fp32!16 *i32!16 *i32!16 *i32!16 *fp32!16 i32",
        {"BINS": 32, "BLOCK": 512},
    ),
    Variant("spin_lock_sum", "spin_lock_sum", "*fp32!16 *i32!16 *fp32!16 i32", {"BLOCK": 256}),
    Variant("sort_scan", "sort_scan", "*i32!16 *i32!16 *i32!16 *i32!16 *i32!16", {"BLOCK": 256}),
    Variant("gelu", "pointwise", "*fp16!16 *fp16!16 i32 i32", {"KIND": "gelu", "BLOCK": 512}),
    Variant("trig", "pointwise", "*fp32!16 *fp32!16 i32 i32", {"KIND": "trig", "BLOCK": 256}),
    Variant("dropout", "pointwise", "*fp32!16 *fp32!16 i32 i32", {"KIND": "dropout", "BLOCK": 256}),
    Variant("transpose_gather", "transpose_gather", "*fp16!16 *fp16!16 *i32!16 i32 i32", {"BM": 64, "BN": 64}),
    _matmul("matmul_bf16", "bf16", "fp32", 128, 128, 64),
    _matmul("matmul_fp16_odd", "fp16", "fp16", 128, 64, 32, aligned=False),
    _matmul("matmul_fp16_m64", "fp16", "fp32", 64, 64, 64),
    _matmul("matmul_fp16_n256", "fp16", "fp16", 128, 256, 64, warps=8, stages=2),
    _matmul("matmul_tf32", "fp32", "fp32", 128, 64, 32),
    _matmul("matmul_tf32x3", "fp32", "fp32", 64, 64, 32, "tf32x3"),
    _matmul("matmul_ieee", "fp32", "fp32", 32, 32, 32, "ieee"),
    _matmul("matmul_fp16_small", "fp16", "fp32", 32, 32, 32),
    _matmul("matmul_fp8", "fp8e4nv", "fp32", 128, 64, 64, stages=2),
    _matmul("matmul_fp8e5", "fp8e5", "fp16", 128, 64, 64, stages=2),
    Variant("matmul_int8", "matmul_integer", "*i8!16 *i8!16 *i32!16 i32!16", {"BM": 64, "BN": 64, "BK": 64}),
    _tma("matmul_tma", "matmul_tma", "fp16", "fp16", 128, 128, 64),
    _tma("matmul_tma_bf16_n64", "matmul_tma", "bf16", "fp32", 128, 64, 32),
    _tma("matmul_tma_fp8", "matmul_tma", "fp8e4nv", "fp16", 128, 128, 128),
    Variant(
        "matmul_device_tma",
        "matmul_device_tma",
        "*fp16!16 *fp16!16 *fp16!16 i32!16 i32!16 i32!16",
        {"BM": 128, "BN": 128, "BK": 64},
    ),
    _tma("matmul_tma_cluster", "matmul_tma", "fp16", "fp16", 256, 128, 64, ctas=2),
    _persistent("matmul_persistent", False, False),
    _persistent("matmul_persistent_flat", False, True),
    _persistent("matmul_persistent_ws", True, True),
    _tma("matmul_ws", "matmul_specialised", "fp16", "fp16", 128, 128, 64),
    _tma("matmul_split_k", "matmul_split_k", "fp16", "fp32", 128, 64, 64, "i32", {"SPLIT": 2}),
    Variant(
        "gather_scatter",
        "gather_scatter",
        "tensordesc<fp16[1,64]> tensordesc<fp16[1,64]> *i32!16 *i32!16",
        {"BM": 32, "BN": 64},
    ),
    _attention("attention", False, stages=2),
    _attention("attention_causal_d128", True, bn=128, d=128, warps=8, stages=1),
    _attention_tma("attention_tma", False),
    _attention_tma("attention_tma_d128", False, "fp16", 128, 128, 128, warps=8, stages=2),
    _attention_tma("attention_ws", True),
    _attention_tma("attention_ws_d128", True, "fp16", 128, 128, 128, stages=2),
    _scaled("matmul_mxfp8", "fp8e4nv", "e4m3", 1),
    _scaled("matmul_mxfp4", "u8", "e2m1", 2, 256),
    _matmul("hopper_matmul", "fp16", "fp16", 128, 128, 64, arch=SM90),
    _matmul("hopper_matmul_tf32", "fp32", "fp32", 64, 64, 32, arch=SM90),
    _tma("hopper_matmul_tma", "matmul_tma", "bf16", "bf16", 128, 128, 64, arch=SM90, warps=8),
    _persistent("hopper_persistent_ws", True, True, arch=SM90),
    _matmul("hopper_matmul_fp8", "fp8e4nv", "fp32", 128, 128, 64, arch=SM90, stages=2),
    _tma("hopper_matmul_cluster", "matmul_tma", "fp16", "fp16", 128, 256, 64, ctas=2, arch=SM90),
    _attention("hopper_attention", True, arch=SM90),
    _attention_tma("hopper_attention_tma", False, arch=SM90, warps=8),
]


def _signature(fn, variant):
    """Triton's signature, its attributes, and the names of the arguments that are passed."""
    signature, attributes, passed = {}, {}, []
    types = iter(variant.types.split())
    for index, name in enumerate(fn.arg_names):
        if name in variant.constants:
            signature[name] = "constexpr"
            continue
        kind, _, divisible = next(types).partition("!")
        signature[name] = kind
        passed.append((name, kind))
        if divisible:
            attributes[(index,)] = [["tt.divisibility", int(divisible)]]
    assert next(types, None) is None, variant.name
    return signature, attributes, passed


def _arguments(passed, meta):
    """What the launcher passes, in order: a tensor map, then its sizes and strides; last two scratch pointers."""
    arguments = []
    maps = iter(meta or [])
    for name, kind in passed:
        if not kind.startswith("tensordesc"):
            arguments.append({"name": name, "type": kind})
            continue
        made = next(maps)
        arguments.append(
            {
                "name": name,
                "type": "tensor_map",
                **{k: made[k] for k in ("swizzle", "elem_size", "elem_type", "block_size")},
            }
        )
        expanded = expand_signature((kind,), [made], "nvTmaDesc")[1:]
        rank = len(expanded) // 2
        arguments += [{"name": f"{name}.shape{i}", "type": t} for i, t in enumerate(expanded[:rank])]
        arguments += [{"name": f"{name}.stride{i}", "type": t} for i, t in enumerate(expanded[rank:])]
    return arguments


def _strip(ptx):
    """Leaves out debug lines and sections, which the machine does not need and which are most of the text."""
    ptx = re.sub(r"^\s*\.(loc|file)\s.*\n", "", ptx, flags=re.M)
    ptx = re.sub(r"^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}\n", "", ptx, flags=re.M | re.S)
    ptx = re.sub(r"^\$L__(tmp|func_begin|func_end|info_string)\w*:\n", "", ptx, flags=re.M)
    ptx = re.sub(r"[ \t]*//[^\n]*$", "", ptx, flags=re.M)
    return (
        "// Compiled by triton "
        + triton.__version__
        + " from triton_kernels.py; see make_triton.py.\n"
        + re.sub(r"\n{2,}", "\n", ptx)
    )


def make(variant):
    fn = getattr(kernels, variant.kernel)
    signature, attributes, passed = _signature(fn, variant)
    source = ASTSource(fn, signature, variant.constants, attributes)
    options = {"num_warps": variant.warps, "num_stages": variant.stages, "num_ctas": variant.ctas}
    compiled = triton.compile(source, target=GPUTarget("cuda", variant.arch, 32), options=options)
    meta = compiled.metadata
    launch = {
        "compiler": f"triton {triton.__version__}",
        "entry": meta.name,
        "block": [32 * getattr(meta, "total_num_warps", meta.num_warps), 1, 1],
        "cluster": [variant.ctas, 1, 1],
        "shared_bytes": meta.shared,
        "tmem_columns": meta.tmem_size,
        "global_scratch": meta.global_scratch_size,
        "profile_scratch": meta.profile_scratch_size,
        "constants": variant.constants,
        "args": _arguments(passed, getattr(meta, "tensordesc_meta", None)),
    }
    ptx = _strip(compiled.asm["ptx"])
    (HERE / f"{variant.name}.ptx").write_text(ptx)
    (HERE / f"{variant.name}.json").write_text(json.dumps(launch, indent=1) + "\n")
    return len(ptx)


def main(names):
    for variant in VARIANTS:
        if not names or variant.name in names:
            print(f"{variant.name}: {make(variant)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
