"""What `fmha init --kernel` writes: the adapter of a kernel that is there already, as far as its signature says it.

The file is read and not compiled. What the signature does not say raises in the adapter, with what is to be written
there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmha.harness.errors import UserError
from fmha.harness.stages.begin_triton import JitKernel, jit_adapter, jit_kernels

MOST_NAMED: Final = 12
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL: Final = re.compile(
    r"(template\s*<(?P<template>[^;{}]*?)>\s*)?(?:extern\s*\"C\"\s*)?(?:static\s+|inline\s+)*__global__\s+"
    r"(?P<head>[^;{}()]*?(?:__launch_bounds__\s*\([^)]*\)\s*)?[^;{}()]*?)(?P<name>\w+)\s*\((?P<parameters>[^{};]*?)\)\s*\{",
    re.DOTALL,
)
_DTYPES: Final[Mapping[str, str]] = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "at::Half": "f16", "c10::Half": "f16",
    "nv_bfloat16": "bf16", "__nv_bfloat16": "bf16", "at::BFloat16": "bf16", "c10::BFloat16": "bf16",
    "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "char": "i8", "int8_t": "i8", "unsigned char": "u8",
    "uint8_t": "u8", "short": "i16", "int16_t": "i16", "uint16_t": "u16", "int": "i32", "int32_t": "i32",
    "unsigned": "u32", "unsigned int": "u32", "uint32_t": "u32", "long": "i64", "long long": "i64", "int64_t": "i64",
    "size_t": "u64", "uint64_t": "u64", "unsigned long long": "u64",
}  # fmt: skip
_NUMPY: Final = {"f16": "float16", "f32": "float32", "f64": "float64"}
_VALUES: Final[Mapping[str, str]] = {  # of a parameter that is passed by value
    "f32": "1.0", "i32": "case.size", "f64": "np.float64(1.0)", "i64": "np.int64(case.size)",
    "u64": "np.uint64(case.size)", "u32": "np.uint32(case.size)",
}  # fmt: skip
_MATRIX: Final = """# What is run and what it must reach; fmha's docs/use/kernels.md explains every word.

kernels:
  {name}: fmha_kernels.py:{label}

default_suite: small
seed: 0

suites:
  small:
    axes: {{size: [1, 64, 100, 256]}}

# Those of float32; docs/use/kernels.md has a table for other types.
gates:
  default: {{cosine: 0.999999, relative_l2: 1e-5, max_error: 1e-5}}

# Runs before all others; where it fails, nothing else is run.
guard: {{case: {name}_size64}}

limits: {{build_seconds: 300, configuration_silence_seconds: 60, configuration_total_seconds: 300}}

hosts:
  emulator: {{kind: emulator, arch: sm_90a, schedule: realistic}}
"""


@dataclass(frozen=True, slots=True)
class SourceParameter:
    """One of a kernel. `dtype` is what fmha calls its type, or that of its elements; empty where that is none."""

    name: str
    type: str
    dtype: str
    pointer: bool
    read: bool  # const


@dataclass(frozen=True, slots=True)
class SourceKernel:
    """A __global__ function: what C++ calls it, its template arguments filled in, and its parameters."""

    name: str
    entry: str
    parameters: tuple[SourceParameter, ...]


def kernels(text: str) -> list[SourceKernel]:
    """The __global__ functions that a source defines, in order."""
    plain = _COMMENT.sub(" ", text)
    found = []
    for match in _KERNEL.finditer(plain):
        types, arguments = _template(match["template"])
        entry = f"{match['name']}<{', '.join(arguments)}>" if arguments else match["name"]
        parameters = tuple(_parameter(item, types) for item in _split(match["parameters"]) if item.strip() != "void")
        found.append(SourceKernel(match["name"], entry, parameters))
    return found


def files(root: Path, where: str) -> dict[str, str]:
    """By name, for `where`, which is FILE.cu or FILE.cu:KERNEL, or Triton's FILE.py. UserError for a file that is not
    below the root, and where no one kernel is meant."""
    source, _, wanted = where.partition(":")
    path = (root / source).resolve()
    if not path.is_file() or not path.is_relative_to(root.resolve()):
        raise UserError(f"there is no file {source} in the repository", where=str(root), next_step="copy it there")
    text = path.read_text(encoding="utf-8", errors="replace")
    python = source.endswith(".py")
    there: Sequence[SourceKernel | JitKernel] = jit_kernels(text, source) if python else kernels(text)
    names = list(dict.fromkeys(found.name for found in there))
    if not there:
        lacking = "@triton.jit function that stores anything" if python else "__global__ function with a body"
        raise UserError(f"it has no {lacking}", where=source, next_step="name the file that has")
    if not wanted and len(names) > 1:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        step = f"name one: --kernel {source}:{names[0]}"
        raise UserError(
            f"it has {len(names)} kernels: {', '.join(names[:MOST_NAMED])}{more}", where=source, next_step=step
        )
    kernel = next((found for found in there if found.name == (wanted or names[0])), None)
    if kernel is None:
        raise UserError(f"it has no kernel {wanted}", where=source, next_step=f"it has {', '.join(names[:MOST_NAMED])}")
    label = "".join(word.title() for word in kernel.name.split("_") if word)
    label = label if label[:1].isalpha() else f"K{label}"
    name = re.sub(r"[^a-z0-9]+", "", kernel.name.lower())
    name = name if name[:1].isalpha() else f"k{name}"
    matrix = _MATRIX.format(name=name, label=label)
    if isinstance(kernel, JitKernel):
        adapter = jit_adapter(source, kernel, label)
    else:
        adapter = _adapter(source, kernel, label, text)
    return {"fmha_kernels.py": adapter, "matrix.yaml": matrix}


def _template(text: str | None) -> tuple[dict[str, str], list[str]]:
    """What the types among a template's parameters stand for, and all arguments: `float`, 128 and false to begin
    with."""
    types, arguments = {}, []
    for item in _split(text or ""):
        declared, _, default = item.partition("=")
        kind, _, name = declared.strip().rpartition(" ")
        if kind.strip() in ("typename", "class"):
            types[name] = default.strip() or "float"
            arguments.append(types[name])
        else:
            arguments.append(default.strip() or ("false" if kind.strip() == "bool" else "128"))
    return types, arguments


def _split(text: str) -> list[str]:
    """At commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([") - (character in ">)]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def _parameter(text: str, types: Mapping[str, str]) -> SourceParameter:
    plain = re.sub(r"__restrict__|__restrict|__grid_constant__|\brestrict\b|\bvolatile\b", " ", text.partition("=")[0])
    pointer = "*" in plain or "[" in plain
    name = re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", plain))[-1]
    before = plain[: plain.rindex(name)]
    read = bool(re.search(r"\bconst\b", before))
    kind = " ".join(re.sub(r"\bconst\b|[*&]", " ", before).split())
    return SourceParameter(name, kind, _DTYPES.get(types.get(kind, kind), ""), pointer, read)


def _adapter(source: str, kernel: SourceKernel, label: str, text: str) -> str:
    read = [item for item in kernel.parameters if item.pointer and item.read]
    written = [item for item in kernel.parameters if item.pointer and not item.read]
    torchs = re.search(r'#\s*include\s*[<"](?:ATen|c10|torch)/', text)
    flags = '    flags = ("-std=c++17", "-O3", "-lineinfo", TORCH_HEADERS)\n' if torchs else ""
    drawn = "\n".join(f'            "{item.name}": {_drawn(item)},' for item in read)
    arguments = "\n".join(f"            {_argument(item)},  # {_said(item)}" for item in kernel.parameters)
    used = [name for name in ("Struct", "to_bf16", "to_dtype") if f"{name}(" in drawn + arguments]
    imports = ", ".join(
        [*(["TORCH_HEADERS"] if torchs else []), "Build", "Case", "Field", "Kernel", "Launch", "Output", *used]
    )
    outputs = ", ".join(f'"{item.name}": Output((case.size,), "{item.dtype or "f32"}")' for item in written)
    names = ", ".join(item.name for item in written) or "nothing"
    return f'''"""What fmha has to know of {kernel.name} in {source}. matrix.yaml names this class.

Written by `fmha init --kernel` from the signature alone: look at each size, at what is an output, and at the launch.
"""

from collections.abc import Mapping

import numpy as np

from fmha import {imports}


class {label}(Kernel):
    source = "{source}"
{flags}    fields = (Field("size"),)

    def build(self, case: Case, arch: str) -> Build:
        return Build("{kernel.entry}")

    def inputs(self, case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
        return {{
{drawn}
        }}

    def outputs(self, case: Case) -> dict[str, Output]:
        # What the kernel changes in place has first="input", and is an input of the same name; sums have first="zeros".
        return {{{outputs}}}

    def launches(self, case: Case) -> list[Launch]:
        arguments = [
{arguments}
        ]
        return [Launch((-(-case.size // 128), 1, 1), (128, 1, 1), arguments)]

    def reference(self, case: Case, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise NotImplementedError("what {names} should be, in float64, from inputs")
'''


def _drawn(item: SourceParameter) -> str:
    if item.dtype == "bf16":
        return "to_bf16(random.standard_normal(case.size))"
    if item.dtype in _NUMPY or not item.dtype:
        return f"random.standard_normal(case.size).astype(np.{_NUMPY.get(item.dtype, 'float32')})"
    if item.dtype[0] in "iu":
        kind = f"{'u' if item.dtype[0] == 'u' else ''}int{item.dtype[1:]}"
        return f"random.integers(0, 100, case.size).astype(np.{kind})"
    return f'to_dtype(random.standard_normal(case.size), "{item.dtype}")'


def _argument(item: SourceParameter) -> str:
    if item.pointer:
        return f'"{item.name}"'
    return _VALUES.get(item.dtype, "np.bool_(True)" if item.type == "bool" else "Struct(0, {})")


def _said(item: SourceParameter) -> str:
    kind = f"{'const ' if item.read else ''}{item.type}{'*' if item.pointer else ''} {item.name}"
    known = item.pointer or item.dtype in _VALUES or item.type == "bool"
    return kind if known else f"{kind}: its size in bytes, and what lies at which offset"
