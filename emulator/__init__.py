"""A PTX machine: runs the PTX that compilers emit for sm_100a on the CPU, and reports what silicon hides.

>>> module = load_ptx(Path("kernel.ptx"))
>>> device = Device(seed=0)
>>> out = device.alloc(4096, "out")
>>> report = device.launch(module, "kernel", grid=(1, 1, 1), block=(128, 1, 1), args=[out.address])
>>> report.findings, report.stats
"""

from emulator.device import Buffer, Device, Entry, LaunchError, Module, Param, load_ptx
from emulator.explore import Exploration, Explored, explore
from emulator.fatbin import FatbinError
from emulator.ptx import PtxError
from emulator.report import Finding, Place, Report, Waiver
from emulator.tensormap import encode_im2col, encode_tiled
from emulator.tensormap_rules import TensorMapError

__all__ = [
    "Buffer",
    "Device",
    "Entry",
    "Exploration",
    "Explored",
    "FatbinError",
    "Finding",
    "LaunchError",
    "Module",
    "Param",
    "Place",
    "PtxError",
    "Report",
    "TensorMapError",
    "Waiver",
    "encode_im2col",
    "encode_tiled",
    "explore",
    "load_ptx",
]
