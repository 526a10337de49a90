"""The numbers of one configuration: the fields of `Measurement`, and those among them that have a gate, `METRICS`.

`judge.oracle.measure` computes them. The message of a worker, the record of a run and the answer of a host have a
`Measurement`, so that a metric is declared here alone. docs/understand/gates.md defines each.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from fmha.harness.judge.numbers import Number

MOST_NAME: Final = 60  # characters of an output's name that are told


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known of a field of `Measurement` that has a gate. `words` name its error in a sentence of a report, in
    brief: that it is relative is said, to what is left out. `definition` says what the value is, in Markdown. Below
    `floor` an error is float32's rounding, a few units in the last place of values up to 8. `limit` is that of the
    attention kernels where matrix.yaml has none; docs/understand/gates.md says whence it is. Kernels of one's own have
    no limit but what their matrix.yaml says: without one the value is measured, recorded and compared with the
    baseline's, and no gate.

    `least`: the value is a cosine, of which the gate asks at least its limit, and the error is 1 - value. Else the
    value is an error, and the gate asks for at most.
    """

    words: str
    definition: str
    floor: float
    limit: float
    least: bool = False
    of_attention: bool = False  # kernels of one's own do not have it
    required: bool = False  # matrix.yaml has to have a limit of kernels of one's own
    heading: str = ""  # of its column in tables of configurations; without one it has no column

    def error(self, value: float) -> float:
        """The error, of which smaller is better."""
        return 1.0 - value if self.least else value


@dataclass(frozen=True, slots=True)
class Bias:
    """What is small and has a direction: docs/understand/gates.md."""

    slope: Number = field(metadata={"description": "by what share O is longer than the reference's, along it"})
    # As the rounding of P predicts it; 0 where there is no row.
    slope_deviation: Number = field(metadata={"description": "of the slope, as rounding predicts it"})
    slope_bias: Number  # the slope in deviations, of all rows or of the group of rows where it is largest
    lse_bias: Number  # mean error of LSE in units of its resolution, of the group of rows where it is largest
    # The same of all rows, with its sign.
    lse_mean: Number = field(metadata={"description": "error of LSE in units of its resolution"})
    coarse: Number  # share of O's elements that fewer bits would hold


@dataclass(frozen=True, slots=True)
class Worst:
    """The element that says most against a kernel of one's own: where to look first. `got` is null where nobody wrote
    it."""

    output: str
    index: tuple[int, ...]
    got: Number | None
    expected: Number

    def __str__(self) -> str:
        name = self.output if self.output.isprintable() and len(self.output) <= MOST_NAME else ascii(self.output[:20])
        place = f"{name}[{', '.join(map(str, self.index))}]" if self.index else name
        if self.got is None:
            return f"{place} was never written; {self.expected:.9g} is expected"
        return f"{place} is {self.got:.9g}; {self.expected:.9g} is expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Numbers against the float64 reference, no verdict. Defined in docs/understand/gates.md."""

    # None is what a kernel does not have, and a record from before it was measured: a metric that is added has it for
    # its default.
    cosine: Annotated[
        Number,
        Metric(
            "1 - cosine", "`o . o_ref / (‖o‖ ‖o_ref‖)`", 1e-8, 0.999996, least=True, required=True, heading="cosine"
        ),
    ]
    relative_l2: Annotated[
        Number, Metric("relative L2", "`‖o - o_ref‖ / ‖o_ref‖`", 1e-5, 5e-3, required=True, heading="rel L2")
    ]
    max_error: Annotated[
        Number,
        Metric(
            "largest relative error",
            "`max abs(o - o_ref) / max abs(o_ref)`",
            1e-5,
            6e-3,
            required=True,
            heading="rel max",
        ),
    ]
    lse_error: Annotated[
        Number | None,
        Metric(
            "LSE error",
            "`max abs(lse - lse_ref)`, natural logarithm",
            5e-6,
            1e-4,
            of_attention=True,
            heading="LSE err",
        ),
    ] = field(default=None, metadata={"description": "this and the next two: null for a kernel of one's own"})
    row_max_error: Annotated[
        Number | None,
        Metric(
            "row maximum error", "`max abs(row_max - row_max_ref)`, natural-log units", 5e-6, 1e-4, of_attention=True
        ),
    ] = None
    row_sum_error: Annotated[
        Number | None,
        Metric("row sum error", "`max abs(row_sum / row_sum_ref - 1)`", 5e-6, 1e-4, of_attention=True),
    ] = None
    nonfinite_mismatches: int  # elements whose inf/NaN class differs from the reference's
    unwritten: int  # output elements that still hold the poison
    output_hash: str  # sha256 of all outputs' bytes
    bias: Bias | None = field(default=None, metadata={"description": "null before 5"})  # of attention
    worst: Worst | None = field(
        default=None, metadata={"description": "of a kernel of one's own, the element furthest off; null for attention"}
    )
    sentinels: int = field(
        default=0, metadata={"description": "elements so large that they were judged apart: docs/understand/gates.md"}
    )


def _declared() -> dict[str, Metric]:
    hints = typing.get_type_hints(Measurement, include_extras=True)
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: note for name, held in notes.items() for note in held if isinstance(note, Metric)}


METRICS: Final[Mapping[str, Metric]] = _declared()
HEADINGS: Final[Mapping[str, str]] = {name: metric.heading for name, metric in METRICS.items() if metric.heading}
OF_ANY_KERNEL: Final = {name: metric for name, metric in METRICS.items() if not metric.of_attention}
