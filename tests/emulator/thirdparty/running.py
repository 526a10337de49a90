"""Launching a kernel of this directory: arguments as its compiler's own launcher passes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fmha import emulator
from tests.emulator.thirdparty.cases import case_of
from tests.emulator.thirdparty.formats import FORMATS, Array, decode
from tests.emulator.thirdparty.oracle import Case, Expected

HERE = Path(__file__).parent
NAMES = sorted(p.stem for p in HERE.glob("*.ptx"))
_SWIZZLES = ("none", "32B", "64B", "128B")
# elem_type of Triton's metadata, which is the code of CUtensorMapDataType but for the last three (its driver.py).
_TRITON_TYPES = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 6: "f16", 7: "f32", 10: "bf16"}


@cache
def launch_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return data


@cache
def module_of(name: str) -> emulator.Module:
    return emulator.load_ptx(HERE / f"{name}.ptx")


@cache
def case(name: str) -> Case:
    return case_of(name, launch_of(name))


def _triton_map(argument: Mapping[str, Any], address: int, array: Array) -> bytes:
    rows, columns = int(np.prod(array.shape[:-1])), array.shape[-1]
    return emulator.encode_tiled(
        dtype=_TRITON_TYPES[argument["elem_type"]],
        address=address,
        global_dim=(columns, rows),
        global_strides=(columns * argument["elem_size"],),
        box_dim=argument["block_size"][::-1],
        swizzle=_SWIZZLES[argument["swizzle"]],
        l2_promotion="128B",
    )


def _triton_arguments(
    launch: Mapping[str, Any], run: Case, at: Mapping[str, int], scratch: int
) -> list[bytes | int | float]:
    args: list[bytes | int | float] = []
    for argument in launch["args"]:
        name = argument["name"].removesuffix("_ptr").removesuffix("_desc")
        if argument["type"] == "tensor_map":
            args.append(_triton_map(argument, at[name], run.arrays[name]))
        elif "." in name:  # a tensor map's sizes and strides follow it
            tensor, field = name.split(".")
            array = run.arrays[tensor.removesuffix("_desc")]
            shape = (int(np.prod(array.shape[:-1])), array.shape[-1])
            args.append(shape[int(field[-1])] if field.startswith("shape") else (shape[1], 1)[int(field[-1])])
        elif argument["type"].startswith("*"):
            args.append(at[name])
        else:
            args.append(run.scalars[name])
    return [*args, scratch, 0]


def _dsl_arguments(launch: Mapping[str, Any], run: Case, at: Mapping[str, int]) -> list[bytes | int | float]:
    args: list[bytes | int | float] = []
    for argument in launch["args"]:
        if argument["type"] == "zeros":
            args.append(bytes(argument["nbytes"]))
        elif argument["type"] == "tensor_map":
            tensor = launch["tensors"][argument["tensor"]]
            outer = argument["modes"][1]
            args.append(
                emulator.encode_tiled(
                    dtype=argument["format"],
                    address=at[argument["tensor"]],
                    global_dim=[tensor["shape"][mode] for mode in argument["modes"]],
                    global_strides=[tensor["strides"][outer] * run.arrays[argument["tensor"]].itemsize],
                    box_dim=argument["box"],
                    swizzle=argument["swizzle"],
                )
            )
        elif argument["type"] == "pointer":
            args.append(at[argument["name"]].to_bytes(8, "little"))
        else:
            args.append(run.scalars[argument["name"]])
    return args


def execute(
    name: str, device: emulator.Device, module: emulator.Module | None = None
) -> tuple[emulator.Report, dict[str, Array]]:
    """Runs a kernel, or another module in its place, on its case; returns the report and the outputs' bit patterns."""
    launch, run = launch_of(name), case(name)
    at = {}
    for key, array in run.arrays.items():
        at[key] = device.alloc(array.nbytes, key).address
        device.write(at[key], array)
    triton = launch["compiler"].startswith("triton")
    if triton:
        nbytes = launch["global_scratch"] * int(np.prod(run.grid))
        args = _triton_arguments(launch, run, at, device.alloc(nbytes, "scratch").address if nbytes else 0)
    else:
        args = _dsl_arguments(launch, run, at)
    ctas = launch["cluster"][0] if triton else 1  # Triton's grid counts programs: a cluster each
    report = device.launch(
        module or module_of(name),
        launch["entry"],
        grid=(run.grid[0] * ctas, *run.grid[1:]),
        block=tuple(launch["block"]),
        cluster=tuple(launch["cluster"]),
        shared_bytes=launch["shared_bytes"],
        args=args,
    )
    outputs = {}
    for key in run.expected:
        array = run.arrays[key]
        outputs[key] = device.read(at[key], array.nbytes).view(array.dtype).reshape(array.shape)
    return report, outputs


def mismatch(expected: Expected, bits: Array) -> str | None:
    """What is wrong with an output, in one line: the worst element by its bound."""
    got = decode(bits, expected.format)
    error = np.abs(got - expected.values)
    bad = ~(error <= expected.bound)
    if not bad.any():
        return None
    excess = np.where(np.isnan(error), np.inf, error / np.maximum(expected.bound, 1e-300))
    worst = np.unravel_index(int(excess.argmax()), error.shape)
    return (
        f"{int(bad.sum())} of {bad.size} elements are off, the worst at {tuple(map(int, worst))}: {got[worst]} for "
        f"{expected.values[worst]} ± {expected.bound[worst]:.3g}"
    )


__all__ = ["FORMATS", "NAMES", "execute", "launch_of", "mismatch"]
