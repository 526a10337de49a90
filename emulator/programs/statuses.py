"""CUDA's errors, and which of them a fault of a kernel is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fmha.emulator.launch_report import Report
from fmha.emulator.rules import RULES

# As cudaError_t and CUresult number them.
SUCCESS: Final = 0
INVALID_VALUE: Final = 1
OUT_OF_MEMORY: Final = 2
INVALID_SYMBOL: Final = 13
INVALID_FILTER: Final = 26
INVALID_SCALE: Final = 27
INVALID_FUNCTION: Final = 98
NO_IMAGE: Final = 209
INVALID_PTX: Final = 218
ILLEGAL_ADDRESS: Final = 700
LAUNCH_FAILED: Final = 719
COOPERATIVE_TOO_LARGE: Final = 720
NOT_SUPPORTED: Final = 801
CLUSTER_SIZE: Final = 912
# What a program is told of a launch that ended in a fault; of any other it is LAUNCH_FAILED.
FAULTS: Final[Mapping[str, int]] = {
    "assert": 710,
    "misaligned": 716,
    "address-space": 717,
    "branch-index": 718,
    "indirect-call": 718,
    "deadlock": 702,
    "livelock": 702,
    "instruction-limit": 702,
    "global-out-of-bounds": ILLEGAL_ADDRESS,
    "shared-out-of-bounds": ILLEGAL_ADDRESS,
    "local-out-of-bounds": ILLEGAL_ADDRESS,
}


class CudaStatusError(Exception):
    """What a CUDA call is answered with: a status, and for people why."""

    def __init__(self, status: int, why: str = "") -> None:
        super().__init__(why)
        self.status = status


def fault_of(report: Report) -> int:
    """What a launch leaves behind."""
    ended = [f.rule for f in report.findings if f.rule in RULES and RULES[f.rule].ends]
    return FAULTS.get(ended[0], LAUNCH_FAILED) if ended else SUCCESS
