"""The emulator's public face: load PTX, fill device memory, launch, read back, get a report."""

from fmha.emulator.device.checks import MAX_SHARED_BYTES, SHARED_UNASKED
from fmha.emulator.device.device_memory import Buffer
from fmha.emulator.device.emulated_device import Around, Device, Launched
from fmha.emulator.device.illegal_launch import LaunchError, UnmodelledError
from fmha.emulator.device.machine_settings import MAX_DEPTH, MMA_SUMS, PROFILES, SCHEDULES, MmaSums, Profile, Schedule
from fmha.emulator.device.module import Dim3, Entry, Module, Param, load_ptx

__all__ = [
    "MAX_DEPTH",
    "MAX_SHARED_BYTES",
    "MMA_SUMS",
    "PROFILES",
    "SCHEDULES",
    "SHARED_UNASKED",
    "Around",
    "Buffer",
    "Device",
    "Dim3",
    "Entry",
    "LaunchError",
    "Launched",
    "MmaSums",
    "Module",
    "Param",
    "Profile",
    "Schedule",
    "UnmodelledError",
    "load_ptx",
]
