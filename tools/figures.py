"""The drawings of the documentation that show how something works: `python -m tools.figures` writes docs/pictures.

A test compares. Pictures of what was measured or emulated come from `fmha diag`, `trace` and `roofline` instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

PICTURES: Final = Path(__file__).parents[1] / "docs/pictures"
LOAD, PRODUCT, SOFTMAX, JUDGE = "#d7e3f4", "#c9e7cf", "#fbe3c3", "#e4d9f2"

Span = tuple[float, float, str, str]  # from, to, colour, text


def _svg(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">'
    )
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>\n"]
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{colour}" stroke="#555"/>'


def timeline(title: str, lanes: Sequence[tuple[str, Sequence[Span]]], step: int = 88) -> str:
    """A lane for each actor, time to the right in units of `step` pixels."""
    end = max(span[1] for _, spans in lanes for span in spans)
    left, height = 170, 44

    def parts() -> Iterator[str]:
        for row, (name, spans) in enumerate(lanes):
            y = 14 + row * height
            yield _text(left - 12, y + 20, name, "end")
            for begin, until, colour, text in spans:
                x, wide = left + begin * step, (until - begin) * step - 2
                yield _box(x, y, wide, 30, colour)
                yield _text(x + wide / 2, y + 20, text)
        y = 14 + len(lanes) * height + 12
        yield _text(left + end * step, y, "time", "end")
        yield f'<path d="M{left} {y - 12} H{left + end * step:g} m-7 -4 l7 4 l-7 4" stroke="#555" fill="none"/>'

    return _svg(int(left + end * step + 14), 14 + len(lanes) * height + 22, title, parts())


def chain(title: str, steps: Sequence[tuple[str, Sequence[str], str]]) -> str:
    """Boxes from left to right: a heading, lines below it, a colour."""
    wide, gap, high = 168, 34, 112

    def parts() -> Iterator[str]:
        for i, (heading, lines, colour) in enumerate(steps):
            x = 10 + i * (wide + gap)
            yield _box(x, 10, wide, high, colour)
            yield _text(x + wide / 2, 34, heading, extra=' font-weight="bold"')
            for n, line in enumerate(lines):
                yield _text(x + wide / 2, 58 + 18 * n, line)
            if i:
                y = 10 + high / 2
                yield f'<path d="M{x - gap + 3} {y:g} H{x - 4} m-8 -5 l8 5 l-8 5" stroke="#333" fill="none"/>'

    return _svg(20 + len(steps) * (wide + gap) - gap, high + 20, title, parts())


def hopper_turns() -> str:
    """Two warpgroups: while one has its two products in the tensor core, the other exponentiates."""
    one: list[Span] = []
    two: list[Span] = [(0, 1, "white", "waits")]
    core: list[Span] = []
    loads: list[Span] = [(0, 0.5, LOAD, "K0"), (0.5, 1, LOAD, "K1"), (1, 1.5, LOAD, "V0")]
    for j in range(1, 4):
        at = 2 * j - 2
        products = f"S{j}, O += P{j - 1} V{j - 1}"
        one += [(at, at + 1, PRODUCT, "issues"), (at + 1, at + 2, SOFTMAX, f"softmax {j}")]
        two += [(at + 1, at + 2, PRODUCT, "issues")] + ([(at + 2, at + 3, SOFTMAX, f"softmax {j}")] if j < 3 else [])
        core += [(at, at + 1, PRODUCT, f"1: {products}"), (at + 1, at + 2, PRODUCT, f"2: {products}")]
        if j < 3:
            loads += [(at + 2, at + 2.5, LOAD, f"K{j + 1}"), (at + 3, at + 3.5, LOAD, f"V{j}")]
    lanes = [("producer, TMA", loads), ("tensor core", core), ("warpgroup 1", one), ("warpgroup 2", two)]
    return timeline("Two consumer warpgroups take turns at the tensor core", lanes, 150)


def loop() -> str:
    """What a run is, from a commit to a verdict."""
    return chain(
        "From a commit of a kernel to a verdict",
        [
            ("commit", ["CUDA C++, Triton,", "CuTe DSL or PTX"], "white"),
            ("build", ["nvcc, in a sandbox", "registers, spills"], LOAD),
            ("run", ["emulator, no GPU:", "races and hazards", "or a GPU: times"], PRODUCT),
            ("judge", ["float64 reference", "gates on the numbers", "a new seed each run"], JUDGE),
            ("record", ["PASS or FAIL", "one JSON file", "compared by regress"], SOFTMAX),
        ],
    )


DRAWINGS: Final = {"hopper-turns.svg": hopper_turns, "loop.svg": loop}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
