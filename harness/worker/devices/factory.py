"""Opens a device by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from fmha.harness.contract.device import Device

DeviceFactory = Callable[[int, str], Device]  # seed, schedule

DEVICES = {
    "cuda": "fmha.harness.worker.devices.cuda:CudaDevice",
    "emulator": "fmha.harness.worker.devices.emulator_device:EmulatorDevice",
    "emulator-watching": "fmha.harness.worker.devices.emulator_device:watching_emulator",
    "emulator-silicon": "fmha.harness.worker.devices.emulator_device:silicon_emulator",
}


def device_factory(name: str) -> DeviceFactory:
    """The factory of a device named in DEVICES, or of any `module:attribute`; LookupError when there is none."""
    module, colon, attribute = DEVICES.get(name, name).partition(":")
    if not colon:
        raise LookupError(f"no device {name!r}: know {', '.join(DEVICES)}, or module:attribute")
    try:
        return cast(DeviceFactory, getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise LookupError(f"device {name!r} cannot be loaded: {error}") from error
