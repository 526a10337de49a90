"""Running a few lines of PTX over one CTA or a small grid, with named buffers as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha import emulator
from fmha.emulator.device import Dim3, Profile, Schedule
from fmha.emulator.launch_report import Report


@dataclass(frozen=True)
class Result:
    report: Report
    buffers: dict[str, NDArray[np.uint8]]  # contents after the launch

    @property
    def rules(self) -> list[str]:
        return sorted({f.rule for f in self.report.findings})

    def array(self, name: str, dtype: Any) -> NDArray[Any]:
        return self.buffers[name].view(dtype)


def module_text(body: str, names: list[str], registers: str, target: str, declarations: str) -> str:
    """An entry `k`: each buffer's address is in %p_<name>, the thread's index in %tid0 and its lane in %lane0."""
    params = ", ".join(f".param .u64 {name}" for name in names)
    loads = "\n".join(f"ld.param.u64 %p_{name}, [{name}];" for name in names)
    pointers = ", ".join(f"%p_{name}" for name in names)
    return f"""
.version 9.0
.target {target}
.address_size 64
{declarations}
.visible .entry k({params})
{{
.reg .b64 {pointers};
.reg .b32 %tid0, %lane0;
{registers}
{loads}
mov.u32 %tid0, %tid.x;
mov.u32 %lane0, %laneid;
{body}
ret;
}}
"""


def run(
    body: str,
    buffers: Mapping[str, NDArray[Any] | int],
    *,
    registers: str = ".reg .b32 %r<64>; .reg .f32 %f<300>; .reg .b64 %rd<32>; .reg .pred %p<8>;",
    block: Dim3 = (32, 1, 1),
    grid: Dim3 = (1, 1, 1),
    target: str = "sm_100a",
    declarations: str = "",
    shared_bytes: int = 0,
    schedule: Schedule = "realistic",
    profile: Profile = "strict",
    seed: int = 0,
) -> Result:
    """Runs `body`. A buffer is an array that is uploaded, or a number of bytes that start as zeros."""
    module = emulator.load_ptx(module_text(body, list(buffers), registers, target, declarations))
    device = emulator.Device(seed=seed, schedule=schedule, profile=profile)
    made = {}
    for name, value in buffers.items():
        made[name] = device.alloc(value if isinstance(value, int) else value.nbytes, name)
        if not isinstance(value, int):
            device.write(made[name].address, value)
    report = device.launch(module, "k", grid, block, [b.address for b in made.values()], shared_bytes)
    return Result(report, {name: device.read(b.address, b.nbytes) for name, b in made.items()})
