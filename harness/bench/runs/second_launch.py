"""What the second launch of a split call costs: `python -m fmha.harness.bench.runs.second_launch RECORD`.

Needs a Hopper GPU and torch. Of each shape the call as it is, forward and merge, and its forward kernel alone, which
leaves partial results: what one kernel in place of two could win at most, before its own merge takes anything. Both as
graphs over rotated inputs and as calls that the host makes one after the other; and an unsplit call beside them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from fmha.harness.attention.decision import decide
from fmha.harness.attention.entry import listed
from fmha.harness.attention.plans import AttentionPlan
from fmha.harness.attention.tensors import read
from fmha.harness.bench.runs.beside import host_time
from fmha.harness.bench.runs.swept import DecodeShape, arguments_of, inputs_of
from fmha.harness.bench.timing import box
from fmha.harness.bench.timing.graph_replay import captured, in_turn
from fmha.harness.worker.devices import calls
from fmha.harness.worker.devices.cuda import CudaDevice, PreparedLaunches

ROUNDS: Final = 9
SHAPES: Final = (
    DecodeShape(64, 1, 64, 1, 1, 512),
    DecodeShape(128, 1, 128, 1, 1, 512),
    DecodeShape(128, 16, 128, 1, 1, 8192),
    DecodeShape(512, 1, 128, 1, 1, 512),
    DecodeShape(64, 4, 32, 8, 1, 2048),
    DecodeShape(128, 4, 32, 8, 1, 2048),
    DecodeShape(128, 8, 64, 8, 1, 8192),
    DecodeShape(256, 4, 32, 8, 1, 2048),
)
METHOD: Final = (
    "Median microseconds a call: graph, of replays over input sets of 400 MB in all, 12 at most, in turn; host, of "
    "seven means of 300 calls without waiting, of a plan that is kept."
)


class ForwardAlone(CudaDevice):
    """Of the launches of a call it makes the first."""

    def prepare(
        self, work: Callable[[], object], maps: Sequence[calls.Field], pointers: Sequence[calls.Field]
    ) -> PreparedLaunches:
        return PreparedLaunches(self._record(work)[:1], maps, pointers, self._index)


class ForwardAlonePlan(AttentionPlan):
    """A call without its merge."""

    device = ForwardAlone


def measured(shape: DecodeShape) -> dict[str, Any]:
    """Times of a shape as it is, without its merge and unsplit: of graphs, and of the host, microseconds."""
    sets = inputs_of(shape)
    arguments = arguments_of(shape, sets[0])
    tensors = [listed(x.q, x.k, x.v, kv_lens=x.lengths) for x in sets]
    variant, call = decide(arguments, None, "auto", sets[0].q.device)
    plans = {
        "forward and merge": AttentionPlan(arguments, tensors[0], variant, call, "lse"),
        "forward alone": ForwardAlonePlan(arguments, tensors[0], variant, call, "lse"),
        "not split": AttentionPlan(arguments, tensors[0], *decide(arguments, 1, "auto", sets[0].q.device), "lse"),
    }
    graphs = {name: captured([partial(plan.run, each, None) for each in tensors]) for name, plan in plans.items()}
    replays = in_turn(graphs, ROUNDS)
    addresses = read(tensors[0])[1]
    return asdict(shape) | {
        "variant": variant.name,
        "splits": call.splits,
        "graph_us": {name: statistics.median(times) / len(sets) for name, times in replays.items()},
        "host_us": {
            name: host_time(partial(plan.run, tensors[0], addresses))["host_us"] for name, plan in plans.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"method": METHOD, "box": box.measure().record, "rows": []}
    for shape in SHAPES:
        report["rows"].append(measured(shape))
        print(report["rows"][-1], flush=True)
    options.record.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
