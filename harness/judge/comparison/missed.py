"""What a record says of figures over many configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmha.harness.judge.limits import misses

if TYPE_CHECKING:
    from fmha.harness.archive.record import RunRecord
    from fmha.harness.judge.pooled import Pooled


def missed(record: RunRecord) -> list[Pooled]:
    """The figures over many configurations that miss their limits, the worst first."""
    return [figure for figure in record.pooled if misses(figure.value, figure.limit)]
