"""Which kernel the commit's own code chooses, asked for a host."""

from __future__ import annotations

from fmha.harness.contract.protocol import Cell, Variant
from fmha.harness.errors import ChoiceError, UserError
from fmha.harness.worker.planner.process import AnsweredError, KernelSideError
from fmha.harness.worker.planner.sides import Side


def side_variant(side: Side, configuration: Cell, arch: str) -> Variant | str:
    """The kernel's side's choice. Raises ChoiceError when its code fails at it, UserError when it cannot be asked."""
    try:
        return side.variant_for(configuration, arch)
    except AnsweredError as error:
        raise ChoiceError(str(error)) from error
    except KernelSideError as error:
        raise UserError(str(error), next_step="the commit's harness/kernel_side cannot be asked") from error
