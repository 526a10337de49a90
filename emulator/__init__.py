"""A PTX machine: runs the PTX that compilers emit for sm_100a on the CPU, and reports what silicon hides.

>>> module = load_ptx(Path("kernel.ptx"))
>>> device = Device(seed=0)
>>> out = device.alloc(4096, "out")
>>> report = device.launch(module, "kernel", grid=(1, 1, 1), block=(128, 1, 1), args=[out.address])
>>> report.findings, report.stats
"""

from pathlib import Path

from fmha.emulator.levels import load_core

CORE_LEVEL = load_core(Path(__file__).resolve().parent)  # before anything imports the core

from fmha.emulator.device import (  # noqa: E402
    Buffer,
    Device,
    Entry,
    LaunchError,
    Module,
    Param,
    UnmodelledError,
    load_ptx,
)
from fmha.emulator.explore import Exploration, Explored, explore  # noqa: E402
from fmha.emulator.fatbin import FatbinError  # noqa: E402
from fmha.emulator.launch_report import Finding, Place, Report, Waiver  # noqa: E402
from fmha.emulator.ptx import PtxError  # noqa: E402
from fmha.emulator.tensormap import encode_im2col, encode_tiled  # noqa: E402
from fmha.emulator.tensormap_rules import TensorMapError  # noqa: E402
from fmha.emulator.texture_objects import Image, ImageError, Sampler  # noqa: E402

__all__ = [
    "CORE_LEVEL",
    "Buffer",
    "Device",
    "Entry",
    "Exploration",
    "Explored",
    "FatbinError",
    "Finding",
    "Image",
    "ImageError",
    "LaunchError",
    "Module",
    "Param",
    "Place",
    "PtxError",
    "Report",
    "Sampler",
    "TensorMapError",
    "UnmodelledError",
    "Waiver",
    "encode_im2col",
    "encode_tiled",
    "explore",
    "load_ptx",
]
