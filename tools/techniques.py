"""What techniques that both architectures have gain on a Hopper GPU, by the model and as measured.

    python -m tools.techniques --predict PREDICTED
    python -m tools.techniques --measure MEASURED

Each pair is one call with the technique and without it. The second needs an H200 and torch; it is of the same calls, of
which it first checks that their results are right. What is predicted is written before anything is measured:
docs/journal/2026-11-29-hopper-first.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from fmha.harness.judge.configuration import parse_id
from fmha.harness.kernel_side import choice, launch
from fmha.harness.see.lengths import given

ROUNDS: Final = 9


@dataclass(frozen=True)
class TechniquePair:
    """A call by its configuration's name, and what it does without the technique: it has another number of `splits`, or
    the rule `without` is off: "many" is the merge by four warps a row, "drawing" that CTAs draw row tiles."""

    technique: str
    name: str
    splits: int = 0
    without: str = ""

    def configurations(self) -> tuple[str, str]:
        """With it and without it."""
        if self.without:
            return self.name, self.name
        return self.name, f"{self.name}_splits{self.splits}"

    def turned_off(self) -> contextlib.AbstractContextManager[object]:
        """While it is held, launches are made without the technique."""
        if self.without == "many":
            return mock.patch.object(choice, "MOST_FOR_A_WARP", 1 << 20)
        if self.without == "drawing":
            return mock.patch.object(launch, "walkers", return_value=0)
        return contextlib.nullcontext()


PAIRS: Final = (
    *(
        TechniquePair("merge by four warps a row", f"hd{hd}_t1_sk131072_h16_out-bf16", without="many")
        for hd in (64, 128, 256)
    ),
    *(
        TechniquePair("balanced splits over equal ones", f"hd{hd}_t1_sk8192_b24_h128_lens-ragged_out-bf16", splits)
        for hd, splits in ((64, 5), (64, 11), (128, 5), (128, 10), (256, 5), (256, 10))
    ),
    *(
        TechniquePair("row tiles drawn, not a CTA each", f"hd{hd}_t{t}_sk{t}_b{b}_causal_out-bf16", without="drawing")
        for hd, t, b in ((64, 4096, 32), (128, 4096, 32), (256, 4096, 16))
    ),
    *(
        TechniquePair("priced splits over a neighbour", f"hd{hd}_t1_sk8192_b16_h128_out-bf16", splits)
        for hd, splits in ((64, 6), (64, 10), (128, 6), (128, 10), (256, 6), (256, 10))
    ),
)


def modelled(name: str) -> dict[str, Any]:
    """What `fmha roofline` says of a configuration on an H200."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    argv = ["fmha", "roofline", "--gpu", "h200", "--json", name]
    with contextlib.redirect_stdout(said), mock.patch.object(sys, "argv", argv), contextlib.suppress(SystemExit):
        runpy.run_module("fmha", run_name="__main__")
    return dict(json.loads(said.buffer.getvalue())["rows"][0])


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {"us": round(row["modelled_us"], 2), "splits": row["splits"], "launches": row["launches"]}


def predicted(pair: TechniquePair) -> dict[str, Any]:
    """The model's microseconds with the technique and without it."""
    mine, other = pair.configurations()
    with_it = _short(modelled(mine))
    with pair.turned_off():
        without = _short(modelled(other))
    return {"with": with_it, "without": without}


def measured(pair: TechniquePair) -> dict[str, Any]:
    """Median microseconds of a call, of replays of both graphs in turn."""
    import torch

    from fmha.harness.attention.decision import decide
    from fmha.harness.attention.entry import listed
    from fmha.harness.attention.plans import AttentionPlan
    from fmha.harness.bench.runs import swept
    from fmha.harness.bench.timing.graph_replay import captured, in_turn

    item = parse_id(pair.name)
    keys = given(replace(item, head_dim=64)).inputs.kv_lens if item.kv_lens != "full" else None
    shape = swept.DecodeShape(
        item.head_dim, item.batch, item.heads, item.kv_heads, item.t, item.s_k,
        lengths=() if keys is None else tuple(int(n) for n in keys),
    )  # fmt: skip
    sets = swept.inputs_of(shape)
    arguments, wanted = swept.arguments_of(shape, sets[0]), swept.right(shape, sets[0])
    tensors = [listed(x.q, x.k, x.v, kv_lens=x.lengths) for x in sets]
    graphs, kept, told = {}, [], {}
    for which in ("with", "without"):
        splits = pair.splits if which == "without" and pair.splits else None
        with pair.turned_off() if which == "without" else contextlib.nullcontext():
            variant, call = decide(arguments, splits, "auto", sets[0].q.device)
            plan = AttentionPlan(arguments, tensors[0], variant, call, "lse")
        calls = [partial(plan.run, each, None) for each in tensors]
        error = swept.error_of(shape, calls[0]().o, wanted)
        assert error <= swept.MOST_ERROR, (pair, which, error)
        graphs[which] = captured(calls)
        kept.append((plan, calls))
        told[which] = f"{variant.name}, {call.balance or call.splits}"
    taken = in_turn(graphs, ROUNDS)
    us = {which: statistics.median(times) / len(sets) for which, times in taken.items()}
    torch.cuda.empty_cache()
    return {which: {"us": round(us[which], 2), "launch": told[which]} for which in us}


def rows(of: Any) -> Iterator[dict[str, Any]]:
    """Of each pair what `of` says."""
    for pair in PAIRS:
        try:
            found = of(pair)
        except Exception as refusal:  # the other pairs are worth having
            found = {"refused": repr(refusal)[:300]}
        row = {
            "technique": pair.technique,
            "call": pair.name,
            "instead": pair.without or f"{pair.splits} splits",
        } | found
        print(json.dumps(row), flush=True)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", type=Path, metavar="PREDICTED")
    parser.add_argument("--measure", type=Path, metavar="MEASURED")
    options = parser.parse_args()
    for path, of in ((options.predict, predicted), (options.measure, measured)):
        if path:
            path.write_text(json.dumps(list(rows(of)), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
