"""Every rule that the machine reports: what it means and what to do. The one source of docs/reference/hazards.md."""

from __future__ import annotations

from collections.abc import Mapping

from fmha.emulator.rules.barrier_rules import BARRIERS
from fmha.emulator.rules.cluster_rules import CLUSTERS
from fmha.emulator.rules.launch_rules import LAUNCH
from fmha.emulator.rules.matrix_rules import MATRIX
from fmha.emulator.rules.memory_rules import MEMORY
from fmha.emulator.rules.rule import Rule, Severity
from fmha.emulator.rules.tensor_rules import TENSOR
from fmha.emulator.rules.warp_rules import WARPS

__all__ = ["GROUPS", "RULES", "Rule", "Severity"]

GROUPS: Mapping[str, Mapping[str, Rule]] = {
    "Memory": MEMORY,
    "Barriers": BARRIERS,
    "Warps": WARPS,
    "Clusters": CLUSTERS,
    "Tensor memory and tensor core": TENSOR,
    "Matrix instructions of warps and warpgroups": MATRIX,
    "The launch as a whole": LAUNCH,
}
RULES: Mapping[str, Rule] = {name: rule for group in GROUPS.values() for name, rule in group.items()}
