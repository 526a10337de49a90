"""The shapes and builds that are tried beside those of the harness; docs/hopper.md says what for."""

from __future__ import annotations

from dataclasses import replace

from harness.bench.shapes import OTHERS, SHAPES, Shape

#                     rows keys row column boxes slots head_dim
#                               groups
CANDIDATES = {f"hd{head_dim}": shape for head_dim, shape in SHAPES.items()} | {
    "hd64_3": OTHERS[64, 192],
    "hd64_4": Shape(256, 64, 4, 1, 1, 20, 64, registers=112),
    "hd64_short": OTHERS[64, 64],
    "hd64_whole": Shape(128, 128, 2, 1, 1, 12, 64, overlap=True, registers=224),
    "hd128_small": Shape(128, 128, 2, 1, 1, 11, 128, overlap=True),
    "hd128_3": Shape(192, 64, 3, 1, 2, 10, 128, overlap=True, registers=160),
    "hd128_short": OTHERS[128, 64],
    "hd256_short": OTHERS[256, 64],
}

# More keys a tile, fewer tiles; and two or three CTAs an SM of half the rows, one of which begins while another
# multiplies.
RESHAPED = {
    "hd64_k192": Shape(128, 192, 2, 1, 1, 8, 64, overlap=True),
    "hd64_half64": Shape(64, 64, 1, 1, 1, 12, 64, overlap=True, registers=208, ctas_per_sm=2),
    "hd64_third": Shape(64, 64, 1, 1, 1, 7, 64, overlap=True, registers=136, ctas_per_sm=3),
    "hd128_half": Shape(64, 128, 1, 1, 1, 5, 128, overlap=True, registers=216, ctas_per_sm=2),
    "hd128_half64": Shape(64, 64, 1, 1, 2, 5, 128, overlap=True, registers=208, ctas_per_sm=2),
}

# ptxas spills a few bytes of a consumer where these have the usual budget.
_BUDGETS = {("hd512", "together"): 240, ("hd512", "clocks"): 240}


def _built(name: str, *, merge: str = "combine", clocks: bool = False) -> dict[str, Shape]:
    words = [merge] * (merge != "combine") + ["clocks"] * clocks
    shape = (CANDIDATES | RESHAPED)[name]
    budget = max((_BUDGETS.get((name, word), 0) for word in words), default=0) or shape.registers
    changed = replace(shape, merge=merge, clocks=clocks, registers=budget)  # type: ignore[arg-type]
    return {"_".join((name, *words)): changed}


REBUILT: dict[str, Shape] = {}
for _name in SHAPES:
    for _merge in ("last", "together"):
        REBUILT |= _built(f"hd{_name}", merge=_merge)
    REBUILT |= _built(f"hd{_name}", clocks=True)
for _half in ("hd64_third", "hd128_half64"):
    REBUILT |= _built(_half, merge="together")
    REBUILT |= _built(_half, clocks=True)

PARTIAL = {
    f"hd{head_dim}_no_{part}": replace(SHAPES[head_dim], left_out=part)
    for head_dim in (64, 128, 256)
    for part in ("exponentials", "output_product")
}

ALL = CANDIDATES | RESHAPED | REBUILT | PARTIAL
