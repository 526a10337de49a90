"""Sizes for a problem on the emulator: small, and such that an answer which confuses two of them is wrong.

Where all are equal, or each divides the next, an answer may exchange m, n and k, or leave out a tail, and be right.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fmha.harness.judge.case import MOST

_MOST: Final = 1 << 18  # of all sizes together, multiplied
_CAPS: Final = (4096, 1024, 512, 256, 128, 64, 32, 16, 8, 4)
_COUNT: Final = 8  # up to here a number is more likely a kernel's width or a number of heads than a size
_ALLOWED: Final = (ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)


def small(own: Mapping[str, int], *, divides: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Two cases. In the first different sizes stay different and equal ones equal, since one may have to be the other.
    In the second all are different and odd. None is larger than its own. Where a small number that stays `divides` a
    larger one, it still does in both."""
    cap = next((cap for cap in _CAPS if math.prod(max(1, min(value, cap)) for value in own.values()) <= _MOST), 2)
    kept = {name: value for name, value in own.items() if value <= min(cap, _COUNT)}
    larger = {name: value for name, value in own.items() if name not in kept}
    counts = {value for value in kept.values() if value > 1} if divides else set()
    units = {name: math.lcm(*(count for count in counts if value % count == 0)) for name, value in larger.items()}
    # So many different ones there have to be at least.
    even = _even(larger, units, max(cap, len(larger)))
    return kept | even, kept | _odd(larger, units, max(cap // 2 + cap // 4, 2 * len(larger) + 1))


def _even(larger: Mapping[str, int], units: Mapping[str, int], cap: int) -> dict[str, int]:
    """Multiples of a quarter of the cap, as far as there are enough."""
    made: dict[int, int] = {}  # by a problem's own size
    step = max(1, cap // max(4, len(set(larger.values()))))
    for name, value in sorted(larger.items(), key=lambda item: -item[1]):
        if value not in made:
            made[value] = _free(range(min(value, cap), 0, -step), units[name], set(made.values()), min(value, cap))
    return {name: made[value] for name, value in larger.items()}


def _odd(larger: Mapping[str, int], units: Mapping[str, int], cap: int) -> dict[str, int]:
    made: dict[str, int] = {}
    for name, value in sorted(larger.items(), key=lambda item: -item[1]):
        most = min(value, cap) // units[name]
        odd = (units[name] * part for part in range(most - 1 + most % 2, 0, -2))
        made[name] = _free(odd, units[name], set(made.values()), min(value, cap))
    return {name: made[name] for name in larger}


def _free(sizes: Sequence[int] | Iterator[int], unit: int, taken: set[int], otherwise: int) -> int:
    """The first that is not taken, of multiples of `unit`."""
    return next((size for size in sizes if size not in taken and size % unit == 0), max(unit, otherwise))


def follows(constraints: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Of a definition's constraints, as `len_indptr == batch_size + 1`, the sizes that they give; names in lower case.
    What asks for values of tensors is left out."""
    found: dict[str, int] = {}
    for text in constraints:
        name, _, expression = text.lower().partition("==")
        try:
            tree = ast.parse(expression.strip(), mode="eval")
        except SyntaxError:
            continue
        known = dict(sizes) | found
        if not all(isinstance(node, (*_ALLOWED, ast.Expression)) for node in ast.walk(tree)):
            continue
        if any(isinstance(node, ast.Name) and node.id not in known for node in ast.walk(tree)):
            continue
        if any(isinstance(node, ast.Constant) and type(node.value) is not int for node in ast.walk(tree)):
            continue
        try:
            value = eval(compile(tree, "constraint", "eval"), {"__builtins__": {}}, known)
        except ZeroDivisionError:
            continue
        if 0 <= value <= MOST:
            found[name.strip()] = value
    return found
