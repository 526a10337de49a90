"""Products of Triton's Gluon tutorials, launched by the tutorials' own functions on the emulator.

The tutorials are files of a checkout of https://github.com/triton-lang/triton, python/tutorials/gluon, which are run as
they are, with the Triton of their day and torch. Operands are zeros: what is multiplied has no part in the time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from fmha.emulator.timing.launch_time import LaunchTiming
from fmha.harness.scripted.emulated import running
from fmha.harness.scripted.script_machine import ScriptOptions


@cache
def tutorial(folder: Path, name: str) -> Any:
    """A tutorial as a module; those that it imports lie beside it. cuBLAS, which they time too, is not there."""
    from triton._C.libtriton import nvidia

    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    with mock.patch.object(nvidia.cublas, "CublasLt"):
        return importlib.import_module(name)


def timing(folder: Path, gpu: str, row: Mapping[str, Any]) -> LaunchTiming:
    """The recording of a product; `row` has the tutorial, its function, and that one's arguments."""
    with running(ScriptOptions("sm_100a", timing=gpu)) as machine:
        import torch

        module = tutorial(folder, row["tutorial"])
        m, n, k = row["size"]
        a, b, c = (torch.zeros(shape, dtype=torch.float16, device="cuda") for shape in ((m, k), (k, n), (m, n)))
        tile = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), row["tile"], strict=True))
        given = {key: row[key] for key in ("num_buffers", "num_warps", "TRANSPOSE_B", "SUBTILE_FACTOR") if key in row}
        if "scheduler" in row:
            schedulers = tutorial(folder, "07-persistence")
            group = row["scheduler"]
            given["SchedulerImpl"] = (
                schedulers.GroupedPersistentTileScheduler(group) if group else schedulers.PersistentTileScheduler
            )
        getattr(module, row["function"])(a, b, c, **tile, **given)
    (launch,) = machine.launches
    assert launch.report.timing is not None
    return launch.report.timing
