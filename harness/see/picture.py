"""Pictures of tensor memory, barriers and rooflines, as SVG that stands alone: no script, font or file beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
    'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
)


@dataclass(frozen=True, slots=True)
class Area:
    """Columns of tensor memory [first, last] in lanes [lane, lane + lanes), and what is in them."""

    name: str
    text: str
    first: int
    last: int
    lane: int
    lanes: int


def tensor_memory(title: str, areas: Sequence[Area]) -> str:
    """512 columns from left to right, 128 lanes from top to bottom."""
    left, top, scale, height = 60, 50, 2, 256
    names = list(dict.fromkeys(area.name for area in areas))
    width, total = left + 512 * scale + 20, top + height + 40 + 18 * len(names)
    out = [_HEAD.format(w=width, h=total), f'<text x="{left}" y="18" font-size="14">{escape(title)}</text>']
    out.append(f'<rect x="{left}" y="{top}" width="{512 * scale}" height="{height}" fill="#f2f2f2" stroke="#888"/>')
    for column in range(0, 513, 64):
        out.append(f'<text x="{left + column * scale}" y="{top - 6}" text-anchor="middle">{column}</text>')
    for warp in range(4):
        y = top + warp * height // 4
        out.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">lane {32 * warp}</text>')
        out.append(f'<line x1="{left}" x2="{left + 512 * scale}" y1="{y}" y2="{y}" stroke="#ccc"/>')
    for area in areas:
        x, y = left + area.first * scale, top + area.lane * height // 128
        w, h = (area.last - area.first + 1) * scale, area.lanes * height // 128
        colour = COLOURS[names.index(area.name) % len(COLOURS)]
        out.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{colour}" fill-opacity="0.7" stroke="#444"/>')
        out.append(f'<text x="{x + w / 2:g}" y="{y + h / 2 + 4:g}" text-anchor="middle">{escape(area.name)}</text>')
    for index, name in enumerate(names):
        y = top + height + 30 + 18 * index
        text = next(area.text for area in areas if area.name == name)
        colour = COLOURS[index % len(COLOURS)]
        out.append(f'<rect x="{left}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{left + 18}" y="{y}">{escape(name)}: {escape(text)}</text>')
    return "".join([*out, "</svg>\n"])


def graph(title: str, middle: Sequence[str], edges: Sequence[tuple[str, int, str, bool]]) -> str:
    """Barriers in the middle. Who arrives stands to their left, who waits to their right: (who, barrier, words, whether
    it arrives)."""
    row, top, width, box = 46, 66, 1100, 230
    sides: dict[bool, list[str]] = {True: [], False: []}
    for who, _, _, arrives in edges:
        if who not in sides[arrives]:
            sides[arrives].append(who)
    rows = max(len(middle), len(sides[True]), len(sides[False]))
    out = [_HEAD.format(w=width, h=top + row * rows + 10), f'<text x="20" y="18" font-size="14">{escape(title)}</text>']

    def place(index: int, count: int) -> float:
        return top + row * rows * (index + 0.5) / count

    for who, bar, words, arrives in edges:
        of, to = (10 + box, 430) if arrives else (670, width - 10 - box)
        side, at = place(sides[arrives].index(who), len(sides[arrives])), place(bar, len(middle))
        y1, y2 = (side, at) if arrives else (at, side)
        out.append(
            f'<line x1="{of}" y1="{y1:g}" x2="{to}" y2="{y2:g}" stroke="#777"><title>{escape(words)}</title></line>'
        )
    for index, text in enumerate(middle):
        out.append(_box(430, place(index, len(middle)), 240, text, "#ffffff"))
    for arrives, x, colour in ((True, 10, "#dfe8fb"), (False, width - 10 - box, "#fbe9d5")):
        for index, text in enumerate(sides[arrives]):
            out.append(_box(x, place(index, len(sides[arrives])), box, text, colour))
    for at, words in ((10 + box / 2, "arrives on"), (550, "mbarrier"), (width - 10 - box / 2, "waits for")):
        out.append(f'<text x="{at:g}" y="48" text-anchor="middle" font-weight="bold">{words}</text>')
    return "".join([*out, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class Point:
    """A call: FLOP for a byte of memory, TFLOP/s as modelled, and as measured where it was."""

    name: str
    intensity: float
    modelled: float
    measured: float | None


def roofline(title: str, memory: float, product: float, points: Sequence[Point]) -> str:
    """Both axes by powers of two; the roofs are `memory` TB/s and `product` TFLOP/s. A point has its name when it is
    pointed at."""
    left, top, width, height = 70, 50, 720, 420
    xs = [p.intensity for p in points] + [product / memory]
    ys = [y for p in points for y in (p.modelled, p.measured) if y] + [product]
    low_x, high_x = math.floor(math.log2(min(xs))) - 1, math.ceil(math.log2(max(xs))) + 1
    low_y, high_y = math.floor(math.log2(min(ys))) - 1, math.ceil(math.log2(max(ys))) + 1

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = left + (math.log2(intensity) - low_x) / (high_x - low_x) * width
        return x, top + height - (math.log2(rate) - low_y) / (high_y - low_y) * height

    out = [_HEAD.format(w=left + width + 20, h=top + height + 60)]
    out.append(f'<text x="{left}" y="18" font-size="14">{escape(title)}</text>')
    for power in range(low_x, high_x + 1):
        x, _ = at(2.0**power, 2.0**low_y)
        out.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top}" y2="{top + height}" stroke="#eee"/>')
        out.append(f'<text x="{x:g}" y="{top + height + 16}" text-anchor="middle">{2.0**power:g}</text>')
    for power in range(low_y, high_y + 1):
        _, y = at(2.0**low_x, 2.0**power)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:g}" y2="{y:g}" stroke="#eee"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:g}" text-anchor="end">{2.0**power:g}</text>')
    out.append(f'<text x="{left + width / 2:g}" y="{top + height + 36}" text-anchor="middle">FLOP a byte</text>')
    out.append(f'<text x="{left - 6}" y="{top - 12}" text-anchor="end">TFLOP/s</text>')
    ridge = product / memory
    roofs = [at(max(2.0**low_x, 2.0**low_y / memory), max(2.0**low_x * memory, 2.0**low_y))]
    roofs += [at(ridge, product), at(2.0**high_x, product)]
    out.append(f'<polyline points="{" ".join(f"{x:g},{y:g}" for x, y in roofs)}" fill="none" stroke="#444"/>')
    for p in points:
        for rate, fill in ((p.measured, "none"), (p.modelled, COLOURS[0])):
            if rate:
                x, y = at(p.intensity, rate)
                how = "measured" if fill == "none" else "modelled"
                out.append(
                    f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}" stroke="{COLOURS[2 if fill == "none" else 0]}">'
                    f"<title>{escape(p.name)}: {how}, {rate:.0f} TFLOP/s</title></circle>"
                )
    y = top + height + 50
    out.append(f'<circle cx="{left + 6}" cy="{y}" r="4" fill="{COLOURS[0]}"/>')
    out.append(f'<text x="{left + 16}" y="{y + 4}">modelled</text>')
    if any(p.measured for p in points):
        out.append(f'<circle cx="{left + 96}" cy="{y}" r="4" fill="none" stroke="{COLOURS[2]}"/>')
        out.append(f'<text x="{left + 106}" y="{y + 4}">measured</text>')
    return "".join([*out, "</svg>\n"])


@dataclass(frozen=True, slots=True)
class Bar:
    """Cycles `start` to `end` of something; `kind` decides the colour, `words` are shown when it is pointed at."""

    start: float
    end: float
    kind: str
    words: str


def bars(title: str, cycles: float, rows: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """Time from left to right, a row each. Bars of a row may lie over each other: what overlaps is darker."""
    left, top, width, row = 190, 50, 1000, 22
    kinds = list(dict.fromkeys(bar.kind for _, found in rows for bar in found))
    height = row * len(rows)
    out = [_HEAD.format(w=left + width + 20, h=top + height + 60)]
    out.append(f'<text x="{left}" y="18" font-size="14">{escape(title)}</text>')
    step = _round_step(cycles / 10)
    for at in range(0, int(cycles) + 1, step):
        x = left + width * at / cycles
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{top - 6}" text-anchor="middle">{at}</text>')
    for number, (name, found) in enumerate(rows):
        y = top + row * number
        out.append(f'<text x="{left - 6}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for bar in found:
            x, w = left + bar.start / cycles * width, max(0.2, (bar.end - bar.start) / cycles * width)
            out.append(
                f'<rect x="{x:.1f}" y="{y + 3}" width="{w:.1f}" height="{row - 6}" fill="{_colour(bar.kind, kinds)}" '
                f'fill-opacity="0.8"><title>{escape(bar.words)}: {bar.start:.0f} to {bar.end:.0f}</title></rect>'
            )
    for number, kind in enumerate(kinds):
        x, y = left + width * (number % 8) / 8, top + height + 20 + 18 * (number // 8)
        out.append(f'<rect x="{x:g}" y="{y - 10}" width="12" height="12" fill="{_colour(kind, kinds)}"/>')
        out.append(f'<text x="{x + 16:g}" y="{y}">{escape(kind)}</text>')
    return "".join([*out, "</svg>\n"])


def _round_step(least: float) -> int:
    """The next of 1, 2, 5, 10, 20, ..."""
    step = 1
    for factor in itertools.cycle((2, 2.5, 2)):
        if step >= least:
            break
        step = round(step * factor)
    return step


def _colour(kind: str, kinds: Sequence[str]) -> str:
    """Of what runs the first; the others by their order, grey where there are too many."""
    if kind == "running":
        return COLOURS[0]
    place = [k for k in kinds if k != "running"].index(kind) + 1
    return COLOURS[place] if place < len(COLOURS) else "#999999"


def _box(x: float, y: float, width: float, text: str, colour: str) -> str:
    first, _, second = text.partition("\n")
    lines = f'<tspan x="{x + width / 2:g}" dy="{-2 if second else 4}">{escape(first)}</tspan>'
    if second:
        lines += f'<tspan x="{x + width / 2:g}" dy="14" font-size="10">{escape(second)}</tspan>'
    return (
        f'<rect x="{x:g}" y="{y - 18:g}" width="{width:g}" height="36" rx="4" fill="{colour}" stroke="#555"/>'
        f'<text x="{x + width / 2:g}" y="{y:g}" text-anchor="middle">{lines}</text>'
    )
