"""Times of two runs on GPUs of their own, as shares of what each GPU did at most beside them.

Boxes of one kind are some percent apart. A time in seconds then tells a kernel's change and a box's together. What a
box copies, or multiplies, in that time does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from fmha.harness.archive.record import RunRecord, Timing

APART = 0.02  # rates that differ by more are told to be those of two boxes


def box_lines(first: RunRecord, second: RunRecord) -> Iterator[str]:
    """What `compare` says of them; nothing where not both were timed with rates beside them."""
    pairs = list(_pairs(first, second))
    if not pairs:
        return
    a, b = pairs[0][1:]
    yield f"box A: {_told(first, a)}"
    yield f"box B: {_told(second, b)}"
    for name, rate in (("copies", "bytes_per_second"), ("multiplies", "operations_per_second")):
        rates = getattr(a, rate), getattr(b, rate)
        if None not in rates and abs(rates[1] / rates[0] - 1) > APART:
            yield f"box B {name} {rates[1] / rates[0] - 1:+.1%} beside box A: times are no shares of one box"
    for name, early, late in pairs:
        fields = share_fields(early, late)
        of_copy, of_product = (fields[of] for of in ("copied", "multiplied"))
        product = "" if of_product is None else f", {_percent(of_product)} of its product"
        yield f"time {name}: {_percent(fields['seconds'])} in seconds, {_percent(of_copy)} of the box's copy{product}"


def share_fields(early: Timing, late: Timing) -> dict[str, float | None]:
    """By how much the later time is longer: in seconds, and by what each box copies or multiplies meanwhile."""
    ratio = median(late.seconds) / median(early.seconds)
    assert early.bytes_per_second is not None
    assert late.bytes_per_second is not None
    copied = ratio * late.bytes_per_second / early.bytes_per_second - 1
    multiplied = None
    if early.operations_per_second is not None and late.operations_per_second is not None:
        multiplied = ratio * late.operations_per_second / early.operations_per_second - 1
    return {"seconds": ratio - 1, "copied": copied, "multiplied": multiplied}


def box_fields(first: RunRecord, second: RunRecord) -> Mapping[str, Any]:
    """The same for `compare --json`, by configuration."""
    return {name: share_fields(early, late) for name, early, late in _pairs(first, second)}


def _pairs(first: RunRecord, second: RunRecord) -> Iterator[tuple[str, Timing, Timing]]:
    timed = {item.id: item.timing for item in first.configurations if item.timing}
    for item in second.configurations:
        early, late = timed.get(item.id), item.timing
        if early and late and early.bytes_per_second and late.bytes_per_second:
            yield item.id, early, late


def _percent(share: float | None) -> str:
    """Not -0.0%."""
    return f"{round(share or 0.0, 6) + 0.0:+.1%}"


def _told(run: RunRecord, timing: Timing) -> str:
    parts = [run.host.gpu.name if run.host.gpu else run.host.name, f"copies {timing.bytes_per_second or 0:.3g} B/s"]
    if timing.operations_per_second is not None:
        parts.append(f"multiplies {timing.operations_per_second:.3g} FLOP/s")
    if timing.load_clock_mhz is not None:
        parts.append(f"{timing.load_clock_mhz:.0f} MHz under load")
    if timing.load_watts is not None:
        parts.append(f"{timing.load_watts:.0f} W")
    return ", ".join(parts) + (f", held back by {', '.join(timing.throttled)}" if timing.throttled else "")
