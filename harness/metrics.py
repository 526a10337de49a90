"""The metrics that have a gate: their names, and what comparing and showing them needs. docs/understand/gates.md
defines each.

`worker.measure` computes them, and a `Measurement` and a record hold them, by these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Metric:
    """`words` name its error. Below `floor` an error is float32's rounding, a few units in the last place of values up
    to 8. `least`: the gate asks for at least its limit, and the error is 1 - value; else for at most."""

    name: str
    words: str
    floor: float
    least: bool = False
    of_attention: bool = False  # kernels of one's own do not have it

    def error(self, value: float) -> float:
        """The error, of which smaller is better."""
        return 1.0 - value if self.least else value


_ALL: Final = (
    Metric("cosine", "1 - cosine", 1e-8, least=True),
    Metric("relative_l2", "relative L2", 1e-5),
    Metric("max_error", "largest error", 1e-5),
    Metric("lse_error", "LSE error", 5e-6, of_attention=True),
    Metric("row_max_error", "row maximum error", 5e-6, of_attention=True),
    Metric("row_sum_error", "row sum error", 5e-6, of_attention=True),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
