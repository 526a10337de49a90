"""Balanced splits on sm_100a, as kernel/sm100/portions.cuh divides them: for who says what each CTA of a launch has."""

from __future__ import annotations

from collections.abc import Sequence


def portions_of(tiles: Sequence[int], count: int, part_tiles: int) -> list[int]:
    """Of `count` portions, no fewer than entries, how many each entry has: with as few tiles at most as leave enough
    of them for all, but `part_tiles` at least. `tiles` are those of the entries; one without keys has one."""
    taken = [max(n, 1) for n in tiles]
    least = max(-(-sum(taken) // count), part_tiles)
    most = max(-(-sum(taken) // (count + 1 - len(taken))), least)
    while least < most:
        middle = (least + most) // 2
        if sum(-(-n // middle) for n in taken) <= count:
            most = middle
        else:
            least = middle + 1
    return [-(-n // most) for n in taken]
