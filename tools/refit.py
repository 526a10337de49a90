"""Fits the constants of fmha.harness.kernel_side.price to records of fmha.harness.bench.runs.swept, and holds them to
these.

python -m tools.refit results/swept-h200.json                 # how far what is cheapest is from what was fastest
python -m tools.refit results/swept-h200.json --write         # fits first, and writes harness/kernel_side/paces.py

Half a minute a head_dim. A record that constants were fitted to says little of others: keep one that they were not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np

from fmha.harness.kernel_side import paces
from fmha.harness.kernel_side.choice import SHORT_ROWS
from fmha.harness.kernel_side.paces import HEADS, LENGTHS, ONE_HEAD, PACES, RATES, Pace, Rates
from fmha.harness.kernel_side.params import sm90_launch
from fmha.harness.kernel_side.price import (
    BALANCED,
    COMBINE_CTAS,
    IN_FLIGHT,
    LIKELY,
    MANY_IN_FLIGHT,
    MOST_FOR_A_WARP,
    MULTIPROCESSORS,
    PART_KEYS,
    SHORT,
    UNKNOWN,
    Decode,
    call_us,
    most_splits,
)  # fmt: skip

Numbers = np.ndarray[Any, Any]
WRITTEN: Final = Path(paces.__file__)
NEAR: Final = 1.6  # of the fastest: what is slower than that has to be known for slow, and little more
SOFT: Final = 0.01  # of a price: what choices of such differ by is no difference
WEIGHT: Final = 5  # of what the choice loses, beside the errors of prices
STEPS: Final = (1.4, 1.15, 1.05, 1.02)
ATTEMPTS: Final = 16
SHAKES: Final = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Swept:
    """A shape, and the microseconds of each choice of rows and splits."""

    of: Decode  # as the harness sees it, which does not know lengths that lie on the device
    mean: float  # that there was
    by_head: bool
    us: Mapping[tuple[int, int], float]
    ruled: tuple[int, int]  # what the harness took when the record was made
    name: str
    peer: float  # the best peer's; 0 where there was none

    @property
    def best(self) -> float:
        """The least time of all choices, microseconds."""
        return min(self.us.values())

    @property
    def knows(self) -> int:
        """What its kernels know where splits are not balanced."""
        return HEADS if self.by_head else ONE_HEAD

    @cached_property
    def tried(self) -> list[tuple[int, int]]:
        """Of the choices those that the harness would price, or others with as long a longest split."""
        there = {asked for head_dim, asked, knows in PACES if (head_dim, knows) == (self.of.head_dim, self.knows)}
        return [(rows, splits) for rows, splits in self.us if rows in there and self._fits(rows, splits)]

    def _fits(self, rows: int, splits: int) -> bool:
        if splits == 1:
            return not rows or (self.by_head and self.of.rows <= SHORT_ROWS)
        return splits == BALANCED or splits <= most_splits(self.of, rows)


@dataclass(frozen=True, slots=True)
class Constants:
    """What prices of one head_dim are made of."""

    paces: Mapping[tuple[int, int], Pace]  # by FMHA_ROWS and what a kernel knows
    rates: Rates

    def us(self, row: Swept, choice: tuple[int, int], known: bool = False) -> float:
        """As the harness prices it, or with the lengths that there were."""
        asked, splits = choice
        of = replace(row.of, mean=row.mean) if known else row.of
        return call_us(of, asked, splits, self.paces[asked, LENGTHS if splits == BALANCED else row.knows], self.rates)


def swept(records: Sequence[Path]) -> list[Swept]:
    """Of records of fmha.harness.bench.runs.swept, and of results/splits-h200.json, which is older: one K/V head of 128
    query heads."""
    found: list[Swept] = []
    for record in records:
        rows = json.loads(record.read_text(encoding="utf-8"))["rows"]
        found += map(_of_row, rows) if "us" in rows[0] else _of_splits(rows)
    return found


def _of_row(row: Mapping[str, Any]) -> Swept:
    ours = {_choice(name): time for name, time in row["us"].items() if name[0] in "-0123456789"}
    peer = min((time for name, time in row["us"].items() if name[0] not in "-0123456789"), default=0.0)
    planes, group = row["batch"] * row["kv_heads"], row["heads"] // row["kv_heads"]
    mean = sum(row["lengths"]) / row["batch"] / row["s_k"] if row["lengths"] else 1.0
    of = Decode(row["head_dim"], planes, row["t"] * group, row["s_k"], UNKNOWN if row["lengths"] else 1.0, row["batch"])
    return Swept(of, mean, row["kv_heads"] > 1, ours, _choice(row["rule"]), _said(row), peer)


def _of_splits(rows: Sequence[Mapping[str, Any]]) -> list[Swept]:
    found: dict[Decode, dict[tuple[int, int], float]] = {}
    for row in rows:
        of = Decode(row["head_dim"], row["batch"], 128, row["s_k"])
        asked = int(row["kernel"].partition("_rows")[2] or 0)
        found.setdefault(of, {})[asked, row["splits"]] = row["median_us"]
    return [
        Swept(of, 1.0, False, us, (0, 0), f"hd{of.head_dim} b{of.planes} h128/1 s{of.keys}", 0.0)
        for of, us in found.items()
    ]


def _choice(name: str) -> tuple[int, int]:
    rows, splits = name.split()
    return int(rows), int(splits)


def _said(row: Mapping[str, Any]) -> str:
    sizes = f"b{row['batch']} h{row['heads']}/{row['kv_heads']} t{row['t']} s{row['s_k']}"
    return f"hd{row['head_dim']} {sizes} {row['kind']}"


def now(head_dim: int) -> Constants:
    """Those that are written."""
    return Constants(
        {(rows, knows): pace for (of, rows, knows), pace in PACES.items() if of == head_dim}, RATES[head_dim]
    )


def loss(of: Swept, constants: Constants) -> float:
    """How much longer the cheapest takes than the fastest, as a part of its time."""
    cheapest = min(of.tried, key=lambda choice: constants.us(of, choice))
    return of.us[cheapest] / of.best - 1


class Sheet:
    """All choices of some shapes, to be priced at once: price.call_us over arrays."""

    def __init__(self, rows: Sequence[Swept]) -> None:
        pairs = [(i, row, choice) for i, row in enumerate(rows) for choice in row.tried]
        launches = [sm90_launch(row.of.head_dim, asked) for _, row, (asked, _) in pairs]
        of_pace = [(asked, LENGTHS if splits == BALANCED else row.knows) for _, row, (asked, splits) in pairs]
        self.paces = sorted(set(of_pace))
        self.pace = np.array([self.paces.index(key) for key in of_pace])
        self.head_dim = rows[0].of.head_dim
        self.row = np.array([i for i, _, _ in pairs])
        self.us = np.array([row.us[choice] for _, row, choice in pairs])
        self.best = np.array([row.best for _, row, _ in pairs])
        self.splits = np.array([splits for _, _, (_, splits) in pairs])
        self.planes, self.rows, self.keys, self.entries = (
            np.array([getattr(row.of, name) for _, row, _ in pairs]) for name in ("planes", "rows", "keys", "entries")
        )
        self.known = np.array([row.mean for _, row, _ in pairs])
        self.unknown = np.array([row.of.mean == UNKNOWN for _, row, _ in pairs])
        self.row_tiles = -(-self.rows // np.array([launch.rows for launch in launches])) * self.planes
        self.tile_keys = np.array([launch.keys for launch in launches])
        self.key_tiles = -(-self.keys // self.tile_keys)
        self.slots = MULTIPROCESSORS * np.array([launch.ctas_per_sm for launch in launches])
        self.begins = np.flatnonzero(np.diff(self.row, prepend=-1))

    def priced(self, constants: Constants) -> Numbers:
        """As the harness prices it."""
        means = ((1 + (self.entries - 1) * others) / self.entries for others in LIKELY)
        few, many = (self._us(constants, np.where(self.unknown, mean, 1.0)) for mean in means)
        made: Numbers = np.where(self.unknown, np.sqrt(few * many), few)
        return made

    def exact(self, constants: Constants) -> Numbers:
        """With the lengths that there were."""
        return self._us(constants, self.known)

    def _us(self, constants: Constants, mean: Numbers) -> Numbers:
        rates = constants.rates
        around, tile, together = np.array([astuple(constants.paces[key]) for key in self.paces]).T[:, self.pace]
        together = np.where(self.slots > MULTIPROCESSORS, together, tile)
        nbytes = mean * self.planes * self.keys * self.head_dim * 4

        def tile_us(ctas: Numbers) -> Numbers:
            of_tile: Numbers = np.where(ctas <= MULTIPROCESSORS, tile, together)
            return of_tile

        def read_us(moved: Numbers, ctas: Numbers) -> Numbers:
            used = np.minimum(1, np.maximum(ctas, 1) / MULTIPROCESSORS)
            read: Numbers = rates.lead + moved / (rates.memory * np.sqrt(used))
            return read

        balanced, splits = self.splits == BALANCED, np.maximum(self.splits, 1)
        even = np.maximum(mean * self.key_tiles * self.planes / self.slots, PART_KEYS / self.tile_keys)
        of_places = np.minimum(self.slots, self.row_tiles * self.key_tiles)
        each = around + even * tile_us(of_places) + self.planes / self.slots * rates.further
        evenly = _together(each, read_us(nbytes, of_places))
        ctas, tiles = self.row_tiles * splits, -(-self.key_tiles // splits)
        longest = around + tiles * tile_us(ctas)
        later = 2 * around + np.minimum(1, mean + SHORT * mean) * tiles * tile_us(ctas)
        each = _together(longest, mean * longest * ctas / self.slots)
        each = _together(each, np.where(ctas > self.slots, later, 0))
        each = each + np.maximum(0, ctas / self.slots - 1) * rates.empty
        apart = _together(each, read_us(nbytes, ctas))
        whole, rest = ctas // self.slots, ctas % self.slots
        turns = np.zeros_like(longest)
        for count, of_turn in ((whole, self.slots), (rest > 0, rest)):
            each = around + tiles * tile_us(of_turn)
            turns = turns + count * _together(each, read_us(nbytes / ctas * of_turn, of_turn))
        time = np.where(balanced, evenly, np.where(mean < 1, apart, turns))
        parts = np.where(balanced, self.slots / self.planes + 1, self.splits)
        rows = self.planes * self.rows
        many = (self.splits > MOST_FOR_A_WARP) & (rows <= COMBINE_CTAS * MULTIPROCESSORS)
        merge = rates.merge + np.ceil(parts / np.where(many, MANY_IN_FLIGHT, IN_FLIGHT)) * rates.merge_turn
        merge = merge + parts * rows * self.head_dim * rates.part_bytes / rates.cache
        made: Numbers = rates.launch + time + np.where(self.splits == 1, 0, merge)
        return made


def _together(a: Numbers, b: Numbers) -> Numbers:
    made: Numbers = np.sqrt(np.sqrt(a**4 + b**4))
    return made


def error(sheet: Sheet, constants: Constants) -> float:
    """What a fit makes small: errors of prices near the fastest choice, and what the choice loses."""
    priced, exact = sheet.priced(constants), sheet.exact(constants)
    far = (sheet.us > NEAR * sheet.best) & (exact > NEAR * sheet.best)
    of_prices = np.mean(np.where(far, 0.1, 1.0) * np.log(exact / sheet.us) ** 2)
    least = np.minimum.reduceat(priced, sheet.begins)[sheet.row]
    # What is priced nearly as low may be chosen as well, at shapes a little off.
    weights = np.exp(-(priced / least - 1) / SOFT)
    lost = np.add.reduceat(weights * (sheet.us / sheet.best - 1), sheet.begins)
    lost /= np.add.reduceat(weights, sheet.begins)
    return float(np.sqrt(of_prices) + WEIGHT * np.mean(lost + 4 * lost * lost))


def fitted(sheet: Sheet, start: Constants, say: Callable[[str], None]) -> Constants:
    """By steps of one constant at a time, as long as they help; from several starts near the best so far, as there are
    many places where no single step does."""
    generator = random.Random(0)
    best, least = descended(sheet, start)
    for attempt in range(ATTEMPTS):
        found, error_of_it = descended(sheet, _shaken(best, generator, SHAKES[attempt % len(SHAKES)]))
        if error_of_it < least:
            best, least = found, error_of_it
            say(f"  attempt {attempt + 1}: {least:.4f}")
    return best


def _shaken(of: Constants, generator: random.Random, most: float) -> Constants:
    for change in _changes(of):
        of = change(of, math.exp(generator.gauss(0, most)))
    return of


def descended(sheet: Sheet, start: Constants) -> tuple[Constants, float]:
    """The constants to which no single step is better, and their error."""
    best, least = start, error(sheet, start)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for change in _changes(best):
                for factor in (step, 1 / step):
                    changed = change(best, factor)
                    found = error(sheet, changed)
                    if found < least * (1 - 1e-3):
                        best, least, moved = changed, found, True
                        break
    return best, least


def _changes(of: Constants) -> list[Callable[[Constants, float], Constants]]:
    """Each multiplies one constant."""
    found: list[Callable[[Constants, float], Constants]] = []
    found += [partial(_paced, key, field.name) for key in of.paces for field in fields(Pace)]
    found += [partial(_rated, field.name) for field in fields(Rates) if field.name != "part_bytes"]
    return found


def _paced(key: tuple[int, int], name: str, of: Constants, factor: float) -> Constants:
    pace = of.paces[key]
    return replace(of, paces={**of.paces, key: replace(pace, **{name: getattr(pace, name) * factor})})


def _rated(name: str, of: Constants, factor: float) -> Constants:
    return replace(of, rates=replace(of.rates, **{name: getattr(of.rates, name) * factor}))


def tell(rows: Sequence[Swept], before: Mapping[int, Constants], after: Mapping[int, Constants], worst: int) -> str:
    """How much longer than the fastest choice those take that the record's rule, the constants before and those after
    choose, by head_dim and lengths; and how far prices are from times."""
    columns = "   ".join(f"{name + ': mean, most, over 5%':28}" for name in ("rule of the record", "before", "after"))
    lines = [f"head_dim  lengths  shapes   {columns}   price's error: before, after"]
    for head_dim, of in after.items():
        for kind, unknown in (("same", False), ("differ", True)):
            mine = [row for row in rows if row.of.head_dim == head_dim and (row.of.mean == UNKNOWN) == unknown]
            if not mine:
                continue
            ruled = [row.us[row.ruled] / row.best - 1 for row in mine if row.ruled in row.us]
            losses = (ruled, [loss(row, before[head_dim]) for row in mine], [loss(row, of) for row in mine])
            lines.append(
                f"{head_dim:8}  {kind:7}  {len(mine):6}   {'   '.join(map(_losses, losses))}   "
                f"{_off(mine, before[head_dim]):.1%} {_off(mine, of):.1%}"
            )
            for row in sorted(mine, key=lambda row: -loss(row, of))[:worst]:
                cheapest = min(row.tried, key=lambda choice: of.us(row, choice))
                fastest = min(row.us, key=lambda choice: row.us[choice])
                lines.append(
                    f"    {row.name}: {cheapest} {row.us[cheapest]} us priced {of.us(row, cheapest):.1f}, fastest "
                    f"{fastest} {row.us[fastest]}; rule {row.ruled} {row.us.get(row.ruled, 0)}; peer {row.peer}"
                )
    return "\n".join(lines)


def _off(rows: Sequence[Swept], of: Constants) -> float:
    """The mean error of prices near the fastest choices, with the lengths that there were."""
    return fmean(
        abs(of.us(row, c, known=True) / row.us[c] - 1) for row in rows for c in row.tried if row.us[c] < NEAR * row.best
    )


def _losses(found: Sequence[float]) -> str:
    if not found:
        return f"{'none':28}"
    return f"{fmean(found):9.1%} {max(found):9.1%} {sum(x > 0.05 for x in found) / len(found):8.1%}"


def written(constants: Mapping[int, Constants]) -> str:
    """paces.py with these."""
    head = WRITTEN.read_text(encoding="utf-8").split("\nPACES: Final")[0]
    names = {ONE_HEAD: "ONE_HEAD", HEADS: "HEADS", LENGTHS: "LENGTHS"}
    lines = ["PACES: Final[Mapping[tuple[int, int, int], Pace]] = {"]
    for head_dim, of in constants.items():
        lines += [
            f"    ({head_dim}, {rows}, {names[knows]}): Pace({_values(pace)}),"
            for (rows, knows), pace in of.paces.items()
        ]
    lines += ["}", "RATES: Final[Mapping[int, Rates]] = {"]
    lines += [f"    {head_dim}: Rates({_values(of.rates)})," for head_dim, of in constants.items()]
    return "\n".join([head, *lines, "}", ""])


def _values(of: Pace | Rates) -> str:
    return ", ".join(f"{getattr(of, field.name):.4g}" for field in fields(of))


def main() -> None:
    """Says how far prices are off, or fits and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="fit, and write what was found")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="shapes of each head_dim that are named")
    options = parser.parse_args()
    rows = swept(options.records)
    before = {head_dim: now(head_dim) for head_dim in RATES}
    after = dict(before)
    if options.write:
        sheets = {head_dim: [row for row in rows if row.of.head_dim == head_dim] for head_dim in before}
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = {
                head_dim: pool.submit(fitted, Sheet(mine), before[head_dim], partial(print, head_dim, flush=True))
                for head_dim, mine in sheets.items()
                if mine
            }
            after |= {head_dim: job.result() for head_dim, job in found.items()}
        WRITTEN.write_text(written(after), encoding="utf-8")
    print(tell(rows, before, after, options.worst))


if __name__ == "__main__":
    main()
