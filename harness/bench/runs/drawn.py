"""Ours and its peers at shapes drawn by a seed, none of them a row of the bench: what a range of the bench is worth.

    python -m fmha.harness.bench.runs.drawn RECORD --seed 4804 --count 60 --peers fa3,cudnn
    python -m fmha.harness.bench.runs.drawn --say RECORD...

Needs a Hopper GPU and torch. `count` shapes of each class, the classes in turn, so that a run that `--seconds` ends has
about as many of each. `--skip` leaves out the first ones of each class, for a seed that another run began. With `--say`
records are pooled, and each class's ratios are printed, best peer over ours.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from fmha.harness.bench.peers.peer_rows import ROWS, PeerRow, lengths_of
from fmha.harness.bench.runs import beside
from fmha.harness.bench.runs.swept import build_all
from fmha.harness.bench.timing import box
from fmha.harness.contract.protocol import Variant

# Query heads and K/V heads of models that are served: Llama, Qwen, Mistral, Gemma and others, whole or a GPU's share.
GROUPED: Final = ((32, 8), (64, 8), (40, 8), (48, 8), (24, 8), (16, 8), (28, 4), (32, 4), (16, 4), (64, 4), (8, 4),
                  (96, 8), (16, 2), (14, 2), (8, 2), (128, 8))  # fmt: skip
APART: Final = (4, 8, 12, 16, 24, 32)  # heads, each with K and V of its own
HEAD_DIMS: Final = (64, 128, 256)  # in turn
CLASSES: Final = ("grouped", "ragged", "packed", "by token", "prefill")
MOST_BYTES: Final = 1 << 29  # of K and V
MOST_FLOP: Final = 6e11
ROUNDS: Final = 5
BEHIND: Final = 0.98
METHOD: Final = (
    "As fmha.harness.bench.runs.beside, five rounds. Shapes are drawn by the seed: sizes log-uniform, heads of models "
    "that are served, head_dims in turn; none whose K and V exceed 512 MiB, or whose products 0.6 TFLOP."
)


@dataclass(frozen=True)
class Drawing:
    """Shapes from a generator of random numbers."""

    generator: random.Random

    def between(self, least: int, most: int) -> int:
        """A whole number whose logarithm is uniform."""
        return round(math.exp(self.generator.uniform(math.log(least), math.log(most))))

    def row(self, kind: str, head_dim: int) -> PeerRow:
        """The next shape of a class, whatever its size."""
        heads, kv_heads = self.generator.choice(GROUPED)
        if kind in ("grouped", "ragged"):
            t = self.generator.choice((1, 1, 1, 1, self.between(2, 8)))
            batch, s_k = self.between(1 if kind == "grouped" else 2, 160), self.between(200, 80000)
            if kind == "grouped":
                return PeerRow(kind, head_dim, batch, heads, kv_heads, t, s_k, t > 1, by_token=True)
            lengths = tuple(max(t, length) for length in self.lengths(batch, s_k))
            return PeerRow(
                kind, head_dim, batch, heads, kv_heads, t, max(lengths), t > 1, by_token=True, kv_lengths=lengths
            )
        if kind == "packed":
            form, batch = self.generator.choice(("uniform", "skewed")), self.between(3, 96)
            lengths = lengths_of(form, batch, self.between(48, 3000))
            longest = max(lengths)
            return PeerRow(
                kind, head_dim, batch, heads, kv_heads, longest, longest, True, by_token=True, lengths=lengths
            )
        batch, t = self.between(1, 32), self.between(128, 12000)
        if kind == "by token":
            return PeerRow(kind, head_dim, batch, heads, kv_heads, t, t, True, by_token=True)
        heads = self.generator.choice(APART)
        causal = self.generator.choice((True, True, False))
        s_k = t if self.generator.random() < 0.75 else t + self.between(64, 8192)
        return PeerRow(kind, head_dim, batch, heads, heads, t, s_k, causal)

    def lengths(self, batch: int, s_k: int) -> list[int]:
        """Lengths of the entries: uniform, skewed, or one long among short."""
        form = self.generator.choice(("uniform", "skewed", "one long"))
        if form == "uniform":
            return [self.generator.randint(s_k // 10, s_k) for _ in range(batch)]
        if form == "skewed":
            return [max(1, min(s_k, round(0.15 * s_k * self.generator.lognormvariate(0, 1)))) for _ in range(batch)]
        return [s_k] + [max(1, s_k // 16)] * (batch - 1)


def drawn(seed: int, count: int) -> Iterator[PeerRow]:
    """`count` rows of each class, in turn. A class has a generator of its own, and so the same rows in any count."""
    of_class = {kind: _of_class(seed, kind, place) for place, kind in enumerate(CLASSES)}
    for _ in range(count):
        for kind in CLASSES:
            yield next(of_class[kind])


def _of_class(seed: int, kind: str, place: int) -> Iterator[PeerRow]:
    drawing, made = Drawing(random.Random(f"{seed} {kind}")), place
    known = {(row.head_dim, row.batch, row.heads, row.kv_heads, row.t, row.s_k) for row in ROWS}
    while True:
        row = drawing.row(kind, HEAD_DIMS[made % len(HEAD_DIMS)])
        held = (row.head_dim, row.batch, row.heads, row.kv_heads, row.t, row.s_k) in known
        room = 4 * row.head_dim * row.kv_heads * math.prod(row.keys)
        if held or room > MOST_BYTES or row.flop > MOST_FLOP:
            continue
        made += 1
        yield row


def variant_of(row: PeerRow, device: str = "cuda:0") -> Variant:
    """The kernel that runs it."""
    return beside.decided(row, device)[0]


def ratio(row: Mapping[str, Any]) -> float | None:
    """The best peer's time over ours; None where either was not timed."""
    times = {name: found["median_us"] for name, found in row["results"].items() if "median_us" in found}
    ours = times.pop("ours", None)
    return min(times.values()) / ours if ours and times else None


def share_of_ceiling(row: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    """Of the box's measured rates: the least time of any kernel over ours."""
    sizes, ceilings = beside.row_of(row), report["box"]
    least = max(sizes.least_bytes / ceilings["copy"]["rate"], sizes.flop / ceilings["product"]["rate"]) / 1e6
    return float(least / row["results"]["ours"]["median_us"])


def said(reports: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each class and head_dim, and one for all, as Markdown."""
    found: dict[tuple[str, str], list[float]] = {}
    for report in reports:
        for row in report["rows"]:
            quotient = ratio(row)
            if quotient is not None:
                for head_dim in (str(row["head_dim"]), "all"):
                    found.setdefault((row["name"], head_dim), []).append(quotient)
                    found.setdefault(("all", head_dim), []).append(quotient)
    yield "| class | head_dim | shapes | geometric mean | least | below 0.98 | below 0.95 |"
    yield "|---|---|---|---|---|---|---|"
    for kind in (*CLASSES, "all"):
        for head_dim in (*map(str, HEAD_DIMS), "all"):
            ratios = found.get((kind, head_dim), [])
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                behind, far = (sum(x < limit for x in ratios) for limit in (BEHIND, 0.95))
                yield (
                    f"| {kind} | {head_dim} | {len(ratios)} | {mean:.2f} | {min(ratios):.2f} | "
                    f"{behind} ({behind / len(ratios):.0%}) | {far} |"
                )


def run(options: argparse.Namespace) -> None:
    """Times every drawn shape and writes the record after each."""
    begin = time.monotonic()
    peers = [name for name in options.peers.split(",") if name]
    of = [name.strip() for name in options.classes.split(",")]
    rows = [row for row in list(drawn(options.seed, options.count))[options.skip * len(CLASSES) :] if row.name in of]
    build_all(list({variant.name: variant for variant in map(variant_of, rows)}.values()))
    print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    if options.build_only:
        return
    report: dict[str, Any] = {
        "method": METHOD, "seed": options.seed, "count": options.count, "skip": options.skip, "peers": peers,
        "box": box.measure().record, "rows": [],
    }  # fmt: skip
    print(json.dumps(report["box"]), flush=True)
    for row in rows:
        if time.monotonic() - begin > options.seconds:
            print(f"{len(report['rows'])} of {len(rows)} shapes in {options.seconds:.0f} s", flush=True)
            break
        report["rows"].append(beside.measure(row, peers, ROUNDS))
        torch.cuda.empty_cache()
        print(_told(report["rows"][-1], report), flush=True)
        options.records[0].write_text(
            json.dumps(report, separators=(",", ":")).replace('{"name', '\n{"name') + "\n", encoding="utf-8"
        )
    report["box_after"] = box.measure().record
    text = json.dumps(report, separators=(",", ":")).replace('{"name', '\n{"name')
    options.records[0].write_text(text + "\n", encoding="utf-8")
    print("\n".join(said([report])), flush=True)


def _told(row: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    quotient = ratio(row)
    if quotient is None:
        return f"{row['name']} hd{row['head_dim']}: {row['results']}"
    times = " ".join(
        f"{name} {found['median_us']:.1f}" for name, found in row["results"].items() if "median_us" in found
    )
    sizes = f"hd{row['head_dim']} b{row['batch']} h{row['heads']}/{row['kv_heads']} t{row['t']} s{row['s_k']}"
    return f"{row['name']} {sizes}: {times} us; {quotient:.2f}, {share_of_ceiling(row, report):.0%} of the ceiling"


def main() -> None:
    """Times shapes, or says what records have, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, nargs="+", help="one to write, or with --say those to read")
    parser.add_argument("--say", action="store_true")
    parser.add_argument("--seed", type=int, default=4804)
    parser.add_argument("--count", type=int, default=60, help="shapes of each class")
    parser.add_argument("--classes", default=",".join(CLASSES), help="of these alone")
    parser.add_argument("--skip", type=int, default=0, help="of each class")
    parser.add_argument("--build-only", action="store_true", help="compile what they run, and measure nothing")
    parser.add_argument("--peers", default="fa3,cudnn", help="of those that `fmha bench --peer` knows")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    options = parser.parse_args()
    if options.say:
        print("\n".join(said(json.loads(path.read_text(encoding="utf-8")) for path in options.records)))
    else:
        run(options)


if __name__ == "__main__":
    main()
