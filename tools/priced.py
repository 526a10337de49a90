"""Holds the prices of fmha.harness.kernel_side.cost to the timing model: every choice of some decode calls, modelled.

python -m tools.priced results/priced-b200.json       # models them, some 200 choices, five minutes on two cores
python -m tools.priced results/priced-b200.json --say  # what of a record was chosen, and what was best
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fmha.harness.judge.configuration import Configuration, PathChoice, parse_id
from fmha.harness.kernel_side.cost import B200, PlaneSizes, call_us, rows_of, splits_to_try
from fmha.harness.see.modelled import modelled, row_of

CALLS: Final = ((1, 128, 512), (1, 128, 4096), (16, 128, 8192), (64, 64, 4096), (1, 16, 131072), (8, 16, 8192),
                (32, 128, 1024), (4, 8, 16384))  # fmt: skip
# A path of P is asked for where no rows are: then it is a kernel of the head_dim's own rows that runs.
OWN_PATHS: Final[Mapping[int, PathChoice]] = {64: "tmem", 128: "tmem", 256: "tmem", 512: "smem"}
HEAD_DIMS: Final = tuple(OWN_PATHS)


@dataclass(frozen=True, slots=True)
class Choice:
    """Query rows that are asked for, and splits; the model's microseconds and ours."""

    asked: int
    splits: int
    modelled: float
    priced: float


def shape_of(item: Configuration) -> PlaneSizes:
    """As prices take it."""
    return PlaneSizes(item.head_dim, item.batch, item.t * item.heads, item.s_k)


def configurations() -> Iterator[Configuration]:
    """What may be chosen of each call. Without splits a configuration leaves them open, and so is left out here."""
    for (batch, heads, s_k), head_dim in ((call, head_dim) for call in CALLS for head_dim in HEAD_DIMS):
        plain = Configuration(head_dim, 1, s_k, batch=batch, heads=heads, output="bf16")
        for asked in rows_of(head_dim):
            tried = [splits for splits in splits_to_try(B200, shape_of(plain), asked) if splits > 1]
            for splits in sorted({*tried[:: max(1, len(tried) // 4)], *tried[-2:]}):
                yield Configuration(head_dim, 1, s_k, batch=batch, heads=heads, output="bf16", splits=splits,
                                    rows=asked, p_path="auto" if asked else OWN_PATHS[head_dim])  # fmt: skip


def choices(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Choice]]:
    """Of a record, by the call."""
    found: dict[str, list[Choice]] = {}
    for row in rows:
        item = parse_id(row["configuration"])
        priced = call_us(B200, shape_of(item), item.rows, item.splits)
        name = Configuration(item.head_dim, item.t, item.s_k, batch=item.batch, heads=item.heads, output="bf16").id
        found.setdefault(name, []).append(Choice(item.rows, item.splits, row["us"], priced))
    return found


def loss(of_a_call: list[Choice]) -> float:
    """How much longer the cheapest takes than the fastest, as a part of its time."""
    cheapest = min(of_a_call, key=lambda choice: choice.priced)
    return cheapest.modelled / min(choice.modelled for choice in of_a_call) - 1


def main() -> None:
    """Models configurations and says how prices order them, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--say", action="store_true")
    options = parser.parse_args()
    if not options.say:
        items = list(configurations())
        times = modelled(Path(__file__).parents[1], items, "b200", print)
        rows = [{"configuration": item.id, "us": round(row_of(item, call, time).modelled_us, 2)}
                for item, call, time in times]  # fmt: skip
        options.record.write_text(json.dumps({"gpu": "b200", "rows": rows}, indent=0) + "\n", encoding="utf-8")
    found = choices(json.loads(options.record.read_text(encoding="utf-8"))["rows"])
    for name, tried in found.items():
        cheapest, best = min(tried, key=lambda c: c.priced), min(tried, key=lambda c: c.modelled)
        print(f"{name}: rows {cheapest.asked}, splits {cheapest.splits}: {cheapest.modelled} us; "
              f"best rows {best.asked}, splits {best.splits}: {best.modelled} us")  # fmt: skip
    losses = [loss(tried) for tried in found.values()]
    errors = [abs(c.priced / c.modelled - 1) for tried in found.values() for c in tried]
    print(f"{len(found)} calls: {sum(losses) / len(losses):.1%} longer than the best in the mean, {max(losses):.1%} at "
          f"most; {len(errors)} prices {sum(errors) / len(errors):.1%} off in the mean")  # fmt: skip


if __name__ == "__main__":
    main()
