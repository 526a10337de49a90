"""Which kernel the commit's own code chooses, asked for a host."""

from __future__ import annotations

from fmha.harness.contract.protocol import Cell, Variant
from fmha.harness.errors import UserError
from fmha.harness.worker.apart import KernelSideError, Side


def side_variant(side: Side, configuration: Cell, arch: str) -> Variant | str:
    """The kernel's side's choice. Raises UserError when its code cannot make one."""
    try:
        return side.variant_for(configuration, arch)
    except KernelSideError as error:
        raise UserError(str(error), next_step="the commit's harness/worker does not run under this judge") from error
