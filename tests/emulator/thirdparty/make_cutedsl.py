"""Compiles cutedsl_kernels.py to PTX with no GPU, and writes beside each .ptx how it is launched (.json).

    pip install nvidia-cutlass-dsl==4.8.1 numpy && python tests/emulator/thirdparty/make_cutedsl.py [NAME...]

The files in this directory were made with nvidia-cutlass-dsl 4.8.1 and Python 3.11.

The host code that the DSL compiles makes the tensor maps and passes the kernel's parameters. What it passes is read off
its intermediate representation: tensor maps from the operations that make them, the rest from the launch.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

DUMPS = Path(tempfile.mkdtemp())
os.environ |= {"CUTE_DSL_ARCH": "sm_100a", "CUTE_DSL_KEEP": "ptx,ir", "CUTE_DSL_DUMP_DIR": str(DUMPS)}

import cutedsl_kernels as kernels  # noqa: E402
from cutlass import BFloat16, Float8E4M3FN, Float16, Float32, TFloat32, cute  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402

HERE = Path(__file__).parent
ROWS, COLUMNS = (1, 0), (0, 1)  # which stride is the smallest: of the last dimension, of the first
SWIZZLES = {"S<3,4,3>": "128B", "S<2,4,3>": "64B", "S<1,4,3>": "32B", "S<0,4,3>": "none"}
FORMATS = {"F16_RN": "f16", "BF16_RN": "bf16", "TF32_RN": "tf32", "F32_RN": "f32", "U8": "u8"}


def _tensor(element, shape, order=ROWS):
    return make_fake_compact_tensor(
        element, shape, stride_order=order[: len(shape)] if len(shape) > 1 else None, assumed_align=16
    )


def _gemm(m, n, k, order_a=ROWS, order_b=ROWS, **options):
    config = kernels.Gemm(**options)
    tensors = {
        "a": _tensor(config.element, (m, k), order_a),
        "b": _tensor(config.element, (n, k), order_b),
        "c": _tensor(config.result, (m, n)),
    }
    return config, tensors, config.shared_bytes


def _axpy():
    return (
        kernels.axpy,
        {"x": _tensor(Float16, (100, 300)), "y": _tensor(Float16, (100, 300)), "alpha": Float32(1.5)},
        0,
    )


def _row_norm():
    return kernels.row_norm, {"x": _tensor(BFloat16, (5, 777)), "out": _tensor(Float32, (5,))}, 16


F8, T32 = Float8E4M3FN, TFloat32
PAIR = {"cluster": (2, 1), "pair": True}
KERNELS = {
    "dsl_axpy": _axpy,
    "dsl_row_norm": _row_norm,
    "dsl_gemm": lambda: _gemm(256, 256, 320, tile=(128, 128, 64)),
    "dsl_gemm_unaligned": lambda: _gemm(128, 256, 256, tile=(128, 128, 64), align=128),
    "dsl_gemm_mn_major": lambda: _gemm(
        256, 128, 256, COLUMNS, COLUMNS, tile=(128, 128, 64), element=BFloat16, result=Float32
    ),
    "dsl_gemm_tf32": lambda: _gemm(256, 64, 128, tile=(128, 64, 32), element=T32, result=Float32),
    "dsl_gemm_fp8": lambda: _gemm(128, 256, 512, tile=(128, 128, 128), element=F8),
    "dsl_gemm_m64": lambda: _gemm(128, 64, 256, tile=(64, 64, 64), load="16x256b"),
    "dsl_gemm_16x64b": lambda: _gemm(128, 128, 128, tile=(128, 128, 64), load="16x64b", result=Float32),
    "dsl_gemm_16x128b": lambda: _gemm(128, 128, 128, tile=(128, 128, 64), load="16x128b"),
    "dsl_gemm_tma_store": lambda: _gemm(256, 256, 256, tile=(128, 128, 64), tma_store=True),
    "dsl_gemm_multicast": lambda: _gemm(512, 256, 256, tile=(128, 128, 64), cluster=(2, 2)),
    "dsl_gemm_pair": lambda: _gemm(512, 256, 320, tile=(256, 128, 64), **PAIR),
    "dsl_gemm_pair_m128": lambda: _gemm(256, 256, 256, tile=(128, 128, 64), **PAIR),
    "dsl_gemm_pair_n256_store": lambda: _gemm(512, 256, 256, tile=(256, 256, 64), tma_store=True, **PAIR),
    "dsl_gemm_pair_multicast": lambda: _gemm(1024, 256, 256, tile=(256, 128, 64), cluster=(4, 2), pair=True),
    "dsl_gemm_pair_bf16_mn": lambda: _gemm(
        256, 256, 256, COLUMNS, COLUMNS, tile=(256, 256, 64), element=BFloat16, **PAIR
    ),
}


def _tensor_maps(ir, names):
    """{SSA name of an atom: the arguments of its tensor map}; dimensions are named by the tensor's own modes."""
    maps = {}
    pattern = re.compile(
        r"%([\w$]+), %[\w$]+ = cute_nvgpu\.atom\.make_non_exec_tiled_tma_(?:load|store)\(%arg(\d+), .*?\)"
        r"(?: <\{kind = <\w+> num_multicast = (\d+)\}>)?.*?"
        r"(S<\d,4,3>).*?tma_gbasis = <\"\(([\d,]+)\):\(([\d@,]+)\)\">, tma_format = (\w+)>"
    )
    for atom, arg, multicast, swizzle, box, modes, fmt in pattern.findall(ir):
        sizes = [int(x) for x in box.split(",")]
        sizes[-1] //= int(multicast or 1)  # each CTA loads its part of the box for all
        maps[atom] = {
            "type": "tensor_map",
            "tensor": list(names)[int(arg)],
            "format": FORMATS[fmt],
            "modes": [int(m.split("@")[1]) for m in modes.split(",")],
            "box": sizes,
            "swizzle": SWIZZLES[swizzle],
        }
    return maps


def _arguments(ir, ptx, names):
    """The kernel's parameters in order. An MMA atom's state is zeros: it accumulates nothing and masks no lane yet."""
    maps = _tensor_maps(ir, names)
    passed = re.search(r"cuda\.launch_ex @[^(]*?<%\w+> \(([^)]*)\)", ir)[1].split(", ")
    sizes = re.findall(r"^\s*\.param (?:\.align \d+ )?\.(\w+)\s+\w+_param_\d+(?:\[(\d+)\])?", ptx, flags=re.M)
    declared = iter([int(n) if n else int(t[1:]) // 8 for t, n in sizes])
    arguments = []
    if not maps:  # views of the tensors are passed, in their order
        return [
            {"type": "pointer", "name": n} if pointer else {"type": "value", "name": n} for n, pointer in names.items()
        ]
    for name in (p.lstrip("%") for p in passed):
        if name in maps:
            arguments.append(maps[name])
        elif re.search(rf"%{name} = cute\.make_tiled_mma\(", ir):
            arguments.append({"type": "zeros"})
        elif name.startswith("arg"):
            arguments.append({"type": "pointer", "name": list(names)[int(name[3:])]})
        else:
            continue  # layouts and coordinates that are known when compiling: no parameter
        arguments[-1]["nbytes"] = next(declared)
    assert next(declared, None) is None, ptx[:3000]
    return arguments


def _dimensions(ir):
    constants = dict(re.findall(r"%(\w+) = arith\.constant (\d+) : i32", ir))
    found = {}
    for key in ("gridDim", "blockDim"):
        found[key] = [int(constants[x]) for x in re.search(key + r" = \(%(\w+), %(\w+), %(\w+)\)", ir).groups()]
    cluster = re.search(r"cluster_dim\[%\w+\] \(%(\w+), %(\w+), %(\w+)\)", ir)
    return found["gridDim"], found["blockDim"], [int(constants[x]) for x in cluster.groups()] if cluster else [1, 1, 1]


def _strip(ptx, name):
    ptx = re.sub(r"kernel_cutlass_\w+?(_param_\d+)?\b", lambda m: name + (m[1] or ""), ptx)
    ptx = re.sub(r"^\s*\.(loc|file)\s.*\n", "", ptx, flags=re.M)
    ptx = re.sub(r"[ \t]*//[^\n]*$", "", ptx, flags=re.M)
    compiler = f"nvidia-cutlass-dsl {version('nvidia-cutlass-dsl')}"
    made = f"// Compiled by {compiler} from cutedsl_kernels.py; see make_cutedsl.py.\n"
    return made + re.sub(r"\n{2,}", "\n", ptx).lstrip("\n")


def make(name):
    entry, tensors, shared = KERNELS[name]()
    for old in DUMPS.iterdir():
        old.unlink()
    cute.compile(entry, *tensors.values())
    ptx = next(DUMPS.glob("*.ptx")).read_text()
    ir = next(DUMPS.glob("*.mlir")).read_text()
    host = ir[ir.index("func.func @cutlass") :]
    grid, block, cluster = _dimensions(host)
    launch = {
        "compiler": f"nvidia-cutlass-dsl {version('nvidia-cutlass-dsl')}",
        "entry": name,
        "grid": grid,
        "block": block,
        "cluster": cluster,
        "shared_bytes": shared,
        "tensors": {k: {"type": t.element_type.__name__, "shape": list(t.shape), "strides": list(t.stride)}
                    for k, t in tensors.items() if hasattr(t, "stride")},
        "args": _arguments(host, ptx, {k: hasattr(t, "stride") for k, t in tensors.items()}),
    }  # fmt: skip
    ptx = _strip(ptx, name)
    (HERE / f"{name}.ptx").write_text(ptx)
    (HERE / f"{name}.json").write_text(json.dumps(launch, indent=1) + "\n")
    return len(ptx)


def main(names):
    for name in KERNELS:
        if not names or name in names:
            print(f"{name}: {make(name)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
