"""Runs probes on the emulator: python -m tests.probes.run_emulator PTX_FOLDER OUT.npz [SOURCE...]"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmha import emulator
from fmha.emulator import Waiver
from fmha.emulator.device import Device, LaunchError, Module, Profile
from tests.probes.case import Arg, Case, In, Out, Tensor, outputs
from tests.probes.catalogue import SOURCES, cases
from tests.probes.store import Result, save


def _tensor_map(t: Tensor, address: int) -> bytes:
    common: dict[str, Any] = {
        "dtype": t.dtype,
        "address": address,
        "global_dim": t.dims,
        "global_strides": t.strides,
        "element_strides": t.element_strides,
        "swizzle": t.swizzle,
        "oob_fill": t.oob,
    }
    if t.im2col is None:
        return emulator.encode_tiled(box_dim=t.box, **common)
    return emulator.encode_im2col(
        pixel_box_lower_corner=t.im2col.lower_corner,
        pixel_box_upper_corner=t.im2col.upper_corner,
        channels_per_pixel=t.im2col.channels,
        pixels_per_column=t.im2col.pixels,
        **common,
    )


def _arguments(device: Device, arguments: Sequence[Arg]) -> tuple[list[bytes | int | float], dict[int, int]]:
    values: list[bytes | int | float] = []
    addresses: dict[int, int] = {}
    for i, a in enumerate(arguments):
        if isinstance(a, In | Out | Tensor):
            data = np.ascontiguousarray(a.data)
            buffer = device.alloc(max(data.nbytes, 1), f"argument {i}")
            device.write(buffer.address, data)
            addresses[i] = buffer.address
        if isinstance(a, Tensor):
            values.append(_tensor_map(a, addresses[i]))
        else:
            values.append(addresses[i] if isinstance(a, In | Out) else a)
    return values, addresses


def run(module: Module, case: Case, arguments: Sequence[Arg]) -> Result:
    """One probe on a device of its own. What the machine does not model says so; a fault is a result, as on the GPU."""
    # CUDA's own headers do not order the lanes of a warp in tiles of several warps.
    profile: Profile = "lenient" if case.source == "cooperative" else "strict"
    old_parity = Waiver("mbarrier-phase-aliasing", "asking for an old parity is what the probe does")
    device = Device(profile=profile, waivers=[old_parity])
    values, addresses = _arguments(device, arguments)
    first = arguments[0]
    dense = arguments is case.dense and isinstance(first, In)
    grid = (first.data.size // case.block[0], 1, 1) if dense else case.grid  # type: ignore[union-attr]
    try:
        report = device.launch(
            module,
            case.entry,
            grid,
            case.block,
            values,
            shared_bytes=case.shared,
            cluster=case.cluster,
            cooperative=case.cooperative,
        )
    except (emulator.PtxError, LaunchError) as error:
        return Result([], str(error), modelled=False)
    if not report.ok:
        text = str(report.findings[0])
        return Result([], text, modelled="not modelled" not in text)
    found = [device.read(addresses[i], arguments[i].data.nbytes) for i in outputs(tuple(arguments))]  # type: ignore[union-attr]
    return Result(found)


def run_source(source: str, ptx: Path, dense: bool = False) -> dict[str, Result]:
    module = emulator.load_ptx(ptx)
    results: dict[str, Result] = {}
    for case in cases(source):
        results[case.name] = run(module, case, case.args)
        if dense and case.dense:
            results[f"{case.name}/dense"] = run(module, case, case.dense)
    return results


def main(folder: Path, out: Path, sources: list[str]) -> None:
    results: dict[str, Result] = {}
    for source in sources or SOURCES:
        results |= run_source(source, folder / f"{source}.ptx", dense=True)
    save(out, results, {"device": "emulator"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
