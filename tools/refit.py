"""Fits the constants of fmha.harness.kernel_side.price to records of fmha.harness.bench.swept, and holds them to these.

python -m tools.refit results/swept-h200.json                 # how far what is cheapest is from what was fastest
python -m tools.refit results/swept-h200.json --write         # fits first, and writes harness/kernel_side/paces.py

Half a minute a head_dim. A record that constants were fitted to says little of others: keep one that they were not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from fmha.harness.kernel_side import paces
from fmha.harness.kernel_side.paces import PACES, RATES, Pace, Rates
from fmha.harness.kernel_side.params import sm90_launch
from fmha.harness.kernel_side.price import BALANCED, MULTIPROCESSORS, UNKNOWN, Decode, call_us

WRITTEN: Final = Path(paces.__file__)
NEAR: Final = 1.6  # of the fastest: what is slower than that has to be known for slow, and little more
STEPS: Final = (1.4, 1.15, 1.05, 1.02)
ATTEMPTS: Final = 9
SHAKES: Final = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Swept:
    """A shape, and the microseconds of each choice of rows and splits."""

    of: Decode
    by_head: bool
    us: Mapping[tuple[int, int], float]
    ruled: tuple[int, int]  # what the harness took when the record was made
    name: str
    peer: float  # the best peer's; 0 where there was none

    @property
    def best(self) -> float:
        return min(self.us.values())

    @cached_property
    def tried(self) -> list[tuple[int, int]]:
        """Of the choices those that the harness would price, or others with as long a longest split."""
        there = {asked for head_dim, asked, by_head in PACES if (head_dim, by_head) == (self.of.head_dim, self.by_head)}
        return [(rows, splits) for rows, splits in self.us if rows in there and self._fits(rows, splits)]

    def _fits(self, rows: int, splits: int) -> bool:
        if splits == 1:
            return self.by_head or not rows
        launch = sm90_launch(self.of.head_dim, rows)
        ctas = -(-self.of.rows // launch.rows) * self.of.planes
        return splits == BALANCED or ctas * splits <= MULTIPROCESSORS * launch.ctas_per_sm


@dataclass(frozen=True, slots=True)
class Constants:
    paces: Mapping[tuple[int, bool], Pace]  # by FMHA_ROWS and whether K/V heads are known
    rates: Rates

    def us(self, row: Swept, choice: tuple[int, int]) -> float:
        asked, splits = choice
        return call_us(row.of, asked, splits, self.paces[asked, row.by_head or splits == BALANCED], self.rates)


def swept(records: Sequence[Path]) -> list[Swept]:
    found = []
    for record in records:
        for row in json.loads(record.read_text(encoding="utf-8"))["rows"]:
            us = {_choice(name): time for name, time in row["us"].items() if name[0] in "-0123456789"}
            peer = min((time for name, time in row["us"].items() if name[0] not in "-0123456789"), default=0.0)
            found.append(Swept(decode_of(row), row["kv_heads"] > 1, us, _choice(row["rule"]), _said(row), peer))
    return found


def decode_of(row: Mapping[str, Any]) -> Decode:
    """As the harness sees it, which does not know lengths that lie on the device."""
    planes, group = row["batch"] * row["kv_heads"], row["heads"] // row["kv_heads"]
    return Decode(row["head_dim"], planes, row["t"] * group, row["s_k"], UNKNOWN if row["lengths"] else 1.0)


def _choice(name: str) -> tuple[int, int]:
    rows, splits = name.split()
    return int(rows), int(splits)


def _said(row: Mapping[str, Any]) -> str:
    sizes = f"b{row['batch']} h{row['heads']}/{row['kv_heads']} t{row['t']} s{row['s_k']}"
    return f"hd{row['head_dim']} {sizes} {row['kind']}"


def now(head_dim: int) -> Constants:
    """Those that are written."""
    return Constants(
        {(rows, by_head): pace for (of, rows, by_head), pace in PACES.items() if of == head_dim}, RATES[head_dim]
    )


def loss(of: Swept, constants: Constants) -> float:
    """How much longer the cheapest takes than the fastest, as a part of its time."""
    cheapest = min(of.tried, key=lambda choice: constants.us(of, choice))
    return of.us[cheapest] / of.best - 1


def error(rows: Sequence[Swept], constants: Constants) -> float:
    """What a fit makes small: errors of prices near the fastest choice, and what the choice loses."""
    of_prices, count = 0.0, 0
    lost = 0.0
    for row in rows:
        best, priced = row.best, {choice: constants.us(row, choice) for choice in row.tried}
        for choice, price in priced.items():
            us = row.us[choice]
            off = math.log(price / us)
            far = us > NEAR * best
            weight = 0.1 if far and price > NEAR * best else 1.0
            of_prices += weight * off * off
            count += 1
        chosen = row.us[min(priced, key=lambda choice: priced[choice])] / best - 1
        lost += chosen + 4 * chosen * chosen
    return math.sqrt(of_prices / count) + 3 * lost / len(rows)


def fitted(rows: Sequence[Swept], start: Constants, say: Callable[[str], None]) -> Constants:
    """By steps of one constant at a time, as long as they help; from several starts near the best so far, as there are
    many places where no single step does."""
    generator = random.Random(0)
    best, least = _descended(rows, start)
    for attempt in range(ATTEMPTS):
        found, error_of_it = _descended(rows, _shaken(best, generator, SHAKES[attempt % len(SHAKES)]))
        if error_of_it < least:
            best, least = found, error_of_it
            say(f"  attempt {attempt + 1}: {least:.4f}")
    return best


def _shaken(of: Constants, generator: random.Random, most: float) -> Constants:
    for change in _changes(of):
        of = change(of, math.exp(generator.gauss(0, most)))
    return of


def _descended(rows: Sequence[Swept], start: Constants) -> tuple[Constants, float]:
    best, least = start, error(rows, start)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for change in _changes(best):
                for factor in (step, 1 / step):
                    changed = change(best, factor)
                    found = error(rows, changed)
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


def _paced(key: tuple[int, bool], name: str, of: Constants, factor: float) -> Constants:
    pace = of.paces[key]
    return replace(of, paces={**of.paces, key: replace(pace, **{name: getattr(pace, name) * factor})})


def _rated(name: str, of: Constants, factor: float) -> Constants:
    return replace(of, rates=replace(of.rates, **{name: getattr(of.rates, name) * factor}))


def tell(rows: Sequence[Swept], constants: Mapping[int, Constants], worst: int) -> str:
    """How far the choice is from the fastest, before and now, by head_dim."""
    lines = ["head_dim  shapes  priced: mean, most, over 5%   rule of the record: mean, most, over 5%   price's error"]
    for head_dim, of in constants.items():
        mine = [row for row in rows if row.of.head_dim == head_dim]
        if not mine:
            continue
        priced = [loss(row, of) for row in mine]
        ruled = [row.us[row.ruled] / row.best - 1 for row in mine if row.ruled in row.us]
        off = [abs(of.us(row, c) / row.us[c] - 1) for row in mine for c in row.tried if row.us[c] < NEAR * row.best]
        lines.append(f"{head_dim:8}  {len(mine):6}  {_losses(priced)}   {_losses(ruled)}   {fmean(off):.1%}")
        for row in sorted(mine, key=lambda row: -loss(row, of))[:worst]:
            cheapest = min(row.tried, key=lambda choice: of.us(row, choice))
            fastest = min(row.us, key=lambda choice: row.us[choice])
            lines.append(
                f"    {row.name}: {cheapest} {row.us[cheapest]} us priced {of.us(row, cheapest):.1f}, fastest "
                f"{fastest} {row.us[fastest]}; rule {row.ruled} "
                f"{row.us.get(row.ruled, 0)}"
            )
    return "\n".join(lines)


def _losses(found: Sequence[float]) -> str:
    return f"{fmean(found):6.1%} {max(found):6.1%} {sum(x > 0.05 for x in found) / len(found):6.1%}"


def written(constants: Mapping[int, Constants]) -> str:
    """paces.py with these."""
    head = WRITTEN.read_text(encoding="utf-8").split("\nPACES: Final")[0]
    lines = ["PACES: Final[Mapping[tuple[int, int, bool], Pace]] = {"]
    for head_dim, of in constants.items():
        lines += [
            f"    ({head_dim}, {rows}, {by_head}): Pace({_values(pace)})," for (rows, by_head), pace in of.paces.items()
        ]
    lines += ["}", "RATES: Final[Mapping[int, Rates]] = {"]
    lines += [f"    {head_dim}: Rates({_values(of.rates)})," for head_dim, of in constants.items()]
    return "\n".join([head, *lines, "}", ""])


def _values(of: Pace | Rates) -> str:
    return ", ".join(f"{getattr(of, field.name):.4g}" for field in fields(of))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="fit, and write what was found")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="shapes of each head_dim that are named")
    options = parser.parse_args()
    rows = swept(options.records)
    constants = {head_dim: now(head_dim) for head_dim in RATES}
    if options.write:
        for head_dim, start in constants.items():
            print(f"head_dim {head_dim}", flush=True)
            constants[head_dim] = fitted([row for row in rows if row.of.head_dim == head_dim], start, print)
        WRITTEN.write_text(written(constants), encoding="utf-8")
    print(tell(rows, constants, options.worst))


if __name__ == "__main__":
    main()
