"""Makes the suites `cover` and `cover-sm90` of matrix.yaml: few configurations, every pair of values of any two fields.

    python -m tools.cover            # writes them into matrix.yaml, between the marks
    python -m tools.cover --count    # says how many tuples of values there are, and how many stand together

Mistakes in a kernel nearly always need one or two things to come together, and seldom three: a mask on the second path
of P, a sink under splits. A covering array has each pair of values in some row; this one has the triples of TRIPLES
too. It is made greedily, row by row, under the constraints that RULES are.

Sizes are meant beside the kernel's: `tiles` whole tiles of keys and `tail` keys more or less make s_k, so that every
kernel has its edges tried, whatever its tile is. Values that empty rows (VOID), such as a list without a valid index,
would hide what they stand beside; they come in rows of their own, once all else is covered without them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fmha.harness.contract.protocol import Variant
from fmha.harness.judge.configuration import DEFAULTS, MIXED_SINK_HEADS, MOST_ENTRIES, Configuration
from fmha.harness.judge.random_cases import work
from fmha.harness.kernel_side import variants
from fmha.harness.kernel_side.choice import (
    ARCH,
    ctas_per_sm,
    kinds_of,
)
from fmha.harness.kernel_side.params import SM90_KERNELS, SM100_FEW_ROWS, sm90_shape, sm100_shape
from fmha.harness.kernel_side.price import MULTIPROCESSORS

Row = Mapping[str, Any]
Values = Mapping[str, Sequence[Any]]
Tuple = tuple[tuple[str, Any], ...]

MOST_WORK: Final = 40_000_000  # head_dim * rows * keys of a configuration: 50 ms on the emulator
MOST_ROWS: Final = 530  # t * heads
MOST_LISTS: Final = 15  # t * batch, each with CTAs of its own
MOST_MANY: Final = 48  # t * heads * batch where there are many splits, each with partial results of its own
MANY_SPLITS: Final = 40  # more than a warp has lanes
SPLITS_OF_A_CTA: Final = 21  # of few rows: a warp merges no whole row on either architecture
HUGE: Final = 2**31 - 2  # a bound that a position may not be added to in 32 bits

MASKS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "causal": {"mask": "causal"},
    "window1": {"mask": "window", "window": 1},
    "window70": {"mask": "window", "window": 70},
    "window300": {"mask": "window", "window": 300},
    "band65to3": {"mask": "band", "left": 65, "right": 3},
    "ballto0": {"mask": "band", "left": -1, "right": 0},
    "band130toall": {"mask": "band", "left": 130, "right": -1},
    "band9tohuge": {"mask": "band", "left": 9, "right": HUGE},
}
# Fields that bound each other come first: a row is filled in this order, and goes wrong early or not at all.
FIELDS: Final[dict[str, Sequence[Any]]] = {
    "heads": (3, 1, 80, 4, 16),
    "t": (33, 1, 130, 5, 2, 128),
    "batch": (2, 1, 3),
    "splits": (1, 3, 2, 7, MANY_SPLITS),
    "topk": (0, 200, 65, 1),
    "tiles": (3, 11, 1, 6, 0, 2),
    "tail": (0, 1, 37, -1),
    "sink": ("none", "finite", "mixed"),
    "sparse_rows": ("many", "few"),
    "sparse_indices": ("valid", "holes"),
    "sparse_lens": ("full", "ragged"),
    "data": ("steps", "normal", "carried", "extreme", "onesign"),
    "mask": tuple(MASKS),
    "query_offsets": ("aligned", "zero", "mixed"),
    "output": ("unnormalised", "fp32", "bf16"),
    "kv": ("separate", "shared"),
    "kv_lens": ("full", "ragged"),
}
VOID: Final[dict[str, Sequence[Any]]] = {
    "query_offsets": ("far",),
    "kv_lens": ("empty",),
    "sparse_indices": ("invalid",),
}
TRIPLES: Final = (("kernel", "data", "kv"), ("kernel", "mask", "kv"), ("kernel", "output", "splits"))
PLAIN: Final[dict[str, Any]] = {name: values[0] for name, values in FIELDS.items()} | {
    "mask": "none", "data": "normal", "batch": 1, "heads": 1, "t": 1, "tail": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelValue:
    """What a value of `kernel` asks for: fields of a configuration, and the keys of a tile."""

    fields: Mapping[str, Any]
    keys: int
    arch: str


SM100: Final = {
    f"{head_dim}-{path}": KernelValue(
        {"head_dim": head_dim, "p_path": path}, sm100_shape(head_dim, path).keys, "sm_100a"
    )
    for head_dim in (64, 128, 256, 512)
    for path in ("tmem", "smem")
}
# Of few rows: few configurations of their own, since what they share with the others is covered by those.
SM100_FEW: Final = {
    f"{head_dim}-{rows}": KernelValue(
        {"head_dim": head_dim, "rows": rows}, sm100_shape(head_dim, "smem", rows).keys, "sm_100a"
    )
    for head_dim, rows in SM100_FEW_ROWS
}
SM90: Final = {
    f"{head_dim}-{rows}": KernelValue({"head_dim": head_dim, "rows": rows}, sm90_shape(head_dim, rows).keys, "sm_90a")
    for head_dim, rows in SM90_KERNELS
}
# A run of tiles that goes two and a half times round the longest ring and every barrier's parities.
ROUNDS: Final = 11
# Elements of a tensor that a batch entry has, so that those of MOST_ENTRIES, but for the last, are more than 2**32.
ENTRY: Final = 2**32 // (MOST_ENTRIES - 1) + 1


@dataclass(frozen=True, slots=True)
class CoverSpace:
    """Fields and their values; `kernels` are the values of the field `kernel`, and `few` are those of few rows."""

    kernels: Mapping[str, KernelValue]
    fields: Values
    few: Mapping[str, KernelValue] = field(default_factory=dict)

    def configuration(self, row: Row) -> Configuration:
        """The configuration of a complete row; of the head_dim's own shape where no kernel of the one asked for knows
        what else the row asks for."""
        kernel = self.kernel(row)
        fields = {name: value for name, value in row.items() if name in DEFAULTS}
        fields |= {"mask": "none", **MASKS[row["mask"]], **kernel.fields, "s_k": self.keys(row)}
        if kernel.arch == ARCH and row["topk"] and "whole" not in kinds_of(fields["rows"]):
            fields["rows"] = 0
        if row["topk"]:
            sizes = {"many": 2 * row["topk"] + 1, "few": (row["topk"] + 2) // 3, "tile": 64, "none": 0}
            fields["s_sparse"] = sizes[row["sparse_rows"]]
        return Configuration(**fields)

    def kernel(self, row: Row) -> KernelValue:
        """What the row's kernel is."""
        return self.kernels.get(row["kernel"]) or self.few[row["kernel"]]

    def keys(self, row: Row) -> int:
        """Keys of the row: whole tiles and a tail."""
        return int(row["tiles"] * self.kernel(row).keys + row["tail"])

    def work(self, row: Row) -> int:
        """head_dim * rows * keys."""
        head_dim = self.kernels[row["kernel"]].fields["head_dim"]
        return int(head_dim * self.rows(row) * (self.keys(row) + row["topk"]))

    def rows(self, row: Row) -> int:
        """Rows of all batch entries."""
        return int(row["t"] * row["heads"] * row["batch"])

    def allows(self, row: Row, name: str) -> bool:
        """Whether what is said of `name` may stand beside the other fields that are known, if those may."""
        return all(check(self, row) for needs, check in RULES if name in needs and needs <= row.keys())


# Which values may stand together, as soon as those named are known. Where all hold the configuration is legal and a
# kernel runs it.
RULES: Final[tuple[tuple[frozenset[str], Callable[[CoverSpace, Row], bool]], ...]] = tuple(
    (frozenset(needs.split()), check)
    for needs, check in (
        ("t heads", lambda s, r: r["t"] * r["heads"] <= MOST_ROWS),
        ("splits t heads batch", lambda s, r: r["splits"] < MANY_SPLITS or s.rows(r) <= MOST_MANY),
        ("t batch topk", lambda s, r: r["topk"] == 0 or r["t"] * r["batch"] <= MOST_LISTS),
        ("kernel tiles tail t heads batch topk", lambda s, r: s.work(r) <= MOST_WORK),
        ("tiles tail topk", lambda s, r: r["tiles"] > 0 or r["tail"] > 0 or (r["tail"] == 0 and r["topk"] > 0)),
        ("heads sink", lambda s, r: r["sink"] != "mixed" or r["heads"] >= MIXED_SINK_HEADS),
        ("topk sparse_rows", lambda s, r: r["topk"] > 1 or r["sparse_rows"] == "many"),
        ("topk sparse_indices", lambda s, r: r["topk"] > 0 or r["sparse_indices"] == "valid"),
        ("topk sparse_lens", lambda s, r: r["topk"] > 0 or r["sparse_lens"] == "full"),
    )
)


def sm100() -> CoverSpace:
    """What the suite of Blackwell covers."""
    return CoverSpace(SM100, {"kernel": tuple(SM100), **FIELDS}, SM100_FEW)


def sm90() -> CoverSpace:
    """What the suite of Hopper covers."""
    return CoverSpace(SM90, {"kernel": tuple(SM90), "merge": ("auto", "combine"), **FIELDS})


def rows(space: CoverSpace) -> list[Row]:
    """The suite's rows: legal, each pair that is legal without a value of VOID in one without such values, each legal
    pair of one such value and another in one with it alone."""
    made: list[Row] = list(rounds(space))
    made += completed(space, space.fields, wanted(space.fields), made)
    for name, values in VOID.items():
        for value in values:
            narrow = {**space.fields, name: (value,)}
            pairs = [item for item in wanted(narrow) if len(item) == 2 and (name, value) in item]
            made += completed(space, narrow, pairs, [row for row in made if row[name] == value])
    more = (lists_of_nothing, far_away, many_splits, walks, like_attention, late_first_keys, few_rows)
    return [*made, *(row for rows_of in more for row in rows_of(space))]


def rounds(space: CoverSpace) -> Iterator[Row]:
    """Each kernel over a long row of dense tiles and over a long list, V apart from K and K itself."""
    for kernel, kv in itertools.product(space.kernels, space.fields["kv"]):
        extra = {"merge": "auto"} if "merge" in space.fields else {}
        plain = {**PLAIN, **extra, "kernel": kernel, "kv": kv}
        yield {**plain, "tiles": ROUNDS, "t": 33, "data": "steps"}
        entries = ROUNDS * space.kernels[kernel].keys
        yield {**plain, "tiles": 1, "topk": entries, "heads": 3, "data": "steps"}


def lists_of_nothing(space: CoverSpace) -> Iterator[Row]:
    """Each kernel with a list and no tensor whose rows it could name: it is not to be looked at."""
    extra = {"merge": "auto"} if "merge" in space.fields else {}
    for kernel in space.kernels:
        yield {**PLAIN, **extra, "kernel": kernel, "tiles": 1, "topk": 65, "sparse_rows": "none",
               "sparse_indices": "invalid"}  # fmt: skip


def far_away(space: CoverSpace) -> Iterator[Row]:
    """Each kernel at the end of tensors that have more elements than 32 bits count: its outputs, the parts of its
    splits, its lists. The batch entry before which that is has no more rows or tiles than it needs for it."""
    extra = {"merge": "auto"} if "merge" in space.fields else {}
    outputs = itertools.cycle(("unnormalised", "bf16", "fp32"))
    for kernel, output in zip(space.kernels, outputs, strict=False):
        head_dim = space.kernels[kernel].fields["head_dim"]
        plain = {**PLAIN, **extra, "kernel": kernel, "tiles": 1, "before": MOST_ENTRIES - 1}
        rows = {"heads": 2, "t": ENTRY // head_dim // 2 + 1}
        yield {**plain, **rows, "output": output}
        yield {**plain, **rows, "output": "fp32", "tiles": 2, "splits": 2, **dict.fromkeys(extra, "combine")}
        yield {**plain, "t": 2, "topk": ENTRY // 2 + 1, "sparse_rows": "tile", "sparse_lens": "ragged"}


def many_splits(space: CoverSpace) -> Iterator[Row]:
    """On sm_90a, whose kernels merge more splits than a warp has lanes in one way where rows are few and in another
    where they are not, the rows that MOST_MANY forbids all others. Each split has a tile: the first ones have all where
    there are fewer."""
    if "merge" in space.fields:
        many = {"tiles": MANY_SPLITS, "splits": MANY_SPLITS, "merge": "combine", "data": "steps"}
        for kernel, output, t in itertools.product(space.kernels, ("fp32", "bf16"), (2, 265)):
            if not space.kernels[kernel].fields["rows"]:
                yield {**PLAIN, **many, "kernel": kernel, "t": t, "heads": 2, "output": output}


def walks(space: CoverSpace) -> Iterator[Row]:
    """On sm_90a, where a GPU holds no CTA for each row tile, so that CTAs draw one after the other: of batch entries
    with two row tiles each, once without a mask, where they come in turn, and once of so many that they make three
    groups, no two of which are as large."""
    if "merge" not in space.fields:
        return
    plain = {**PLAIN, "merge": "auto", "kv_lens": "ragged", "data": "steps"}
    walking = [name for name, kernel in space.kernels.items() if walks_over_row_tiles(**kernel.fields)]
    for kernel, output in zip(walking, itertools.cycle(("fp32", "bf16", "unnormalised")), strict=False):
        fields = space.kernels[kernel].fields
        at_once = MULTIPROCESSORS * ctas_per_sm(ARCH, **fields)
        two = {**plain, "kernel": kernel, "t": sm90_shape(**fields).rows + 1, "batch": at_once // 2 + 6}
        yield {**two, "output": output, "tiles": 2, "mask": "causal", "kv": "shared"}
        if kernel == walking[0]:
            yield {**two, "tiles": 1, "tail": 1}
            yield {**two, "tiles": 2, "tail": 1, "batch": 2 * at_once + 1, "mask": "causal"}


def like_attention(space: CoverSpace) -> Iterator[Row]:
    """Each kernel on data that look like attention, under a scale that is not the usual one and with some statistics
    not asked for: once where splits without the sink count for little one by one, of the first kernel so many that a
    CTA merges a row, and once without splits."""
    others = itertools.cycle(("recency", "twins", "channels"))
    for number, kernel in enumerate(space.kernels):
        odd, splits = number % 2, (7, 3)[number % 2] if number else SPLITS_OF_A_CTA
        extra = {"merge": ("combine", "auto")[odd]} if "merge" in space.fields else {}
        plain = {**PLAIN, **extra, "kernel": kernel, "kv": ("separate", "shared")[number // 4 % 2]}
        scales, asked, outputs, two = ("0.25", "0.02"), ("lse", "none"), ("fp32", "bf16"), number // 2 % 2
        yield {
            **plain, "data": "sinkkey", "scale": scales[odd], "statistics": asked[odd], "output": outputs[two],
            "tiles": max(ROUNDS, splits), "splits": splits, "t": (1, 5)[odd], "heads": (3, 1)[odd],
        }  # fmt: skip
        data, statistics = next(others), asked[1 - odd]
        if (data, statistics) == ("channels", "none"):
            statistics = "max"
        yield {
            **plain, **dict.fromkeys(extra, "auto"), "data": data, "scale": scales[1 - odd],
            "statistics": statistics, "output": outputs[1 - two], "mask": "causal", "tiles": 3, "tail": 1, "t": 33,
        }  # fmt: skip


def late_first_keys(space: CoverSpace) -> Iterator[Row]:
    """Rows of one CTA whose first keys are in different tiles, at head_dim 64, where no other row of the suites has a
    wide window over many queries. Not by sm_90a's kernel of smaller tiles, whose loop is another one."""
    extra = {"merge": "auto"} if "merge" in space.fields else {}
    for kernel, made in space.kernels.items():
        if (made.fields["head_dim"], made.keys) == (64, 128):
            tiles = 1000 // made.keys + 1
            yield {**PLAIN, **extra, "kernel": kernel, "t": 64, "tiles": tiles, "tail": 1000 - tiles * made.keys,
                   "mask": "window300"}  # fmt: skip


def few_rows(space: CoverSpace) -> Iterator[Row]:
    """Each kernel of few rows: a long row of tiles, V apart from K and K itself; rows past a CTA's that see none of the
    first tiles; a list; and splits."""
    outputs = itertools.cycle(("unnormalised", "bf16", "fp32"))
    for (kernel, made), output in zip(space.few.items(), outputs, strict=False):
        plain = {**PLAIN, "kernel": kernel, "output": output}
        yield {**plain, "tiles": ROUNDS, "t": 33, "data": "steps"}
        yield {**plain, "tiles": ROUNDS, "tail": 37, "heads": 3, "t": 5, "batch": 2, "kv": "shared", "mask": "causal",
               "kv_lens": "ragged", "sink": "finite", "data": "extreme"}  # fmt: skip
        yield {**plain, "tiles": 6, "tail": -1, "t": 130, "mask": "window70", "query_offsets": "mixed", "batch": 2}
        yield {**plain, "tiles": 1, "topk": ROUNDS * made.keys // 2 + 1, "sparse_indices": "holes", "heads": 80, "t": 2,
               "sparse_lens": "ragged", "sink": "mixed"}  # fmt: skip
        yield {**plain, "tiles": 6, "tail": 1, "splits": 7, "heads": 16, "t": 2, "data": "steps"}


def walks_over_row_tiles(head_dim: int, rows: int) -> bool:
    """Whether CTAs of that kernel take several row tiles each."""
    found = variants.variant_for(Configuration(head_dim=head_dim, rows=rows, t=1, s_k=1), ARCH)
    return isinstance(found, Variant) and variants.walks(found)


def spans(fields: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The fields whose values are to come together: every two, and those of TRIPLES."""
    return (*itertools.combinations(fields, 2), *TRIPLES)


def tuples(fields: Values, names: Sequence[str]) -> Iterator[Tuple]:
    """Every combination of values of these fields."""
    for values in itertools.product(*(fields[name] for name in names)):
        yield tuple(zip(names, values, strict=True))


def wanted(fields: Values) -> list[Tuple]:
    """Combinations of values that the array has to have."""
    return [item for names in spans(fields) for item in tuples(fields, names)]


def tuples_of(row: Row, fields: Iterable[str]) -> Iterator[Tuple]:
    """What of `wanted` a row has."""
    for names in spans(fields):
        yield tuple((name, row[name]) for name in names)


def completed(space: CoverSpace, fields: Values, wanted: Iterable[Tuple], made: Sequence[Row]) -> list[Row]:
    """Rows that have what of `wanted` is legal and in none of `made`. Each begins with a tuple that is missing and
    takes, field by field, the legal value that brings most of those that are missing with it."""
    missing = dict.fromkeys(wanted)
    added: list[Row] = []

    def strike(row: Row) -> None:
        for item in tuples_of(row, fields):
            missing.pop(item, None)

    for row in made:
        strike(row)
    while missing:
        start = next(iter(missing))
        extended = _extended(space, fields, dict(start), missing)
        if extended is None:
            del missing[start]  # no legal row has it
        else:
            added.append(extended)
            strike(extended)
    return added


def _extended(space: CoverSpace, fields: Values, row: dict[str, Any], missing: Mapping[Tuple, None]) -> Row | None:
    """A complete legal row with all of `row`, by depth-first search; None when there is none."""
    if not all(space.allows(row, name) for name in row):
        return None
    name = next((name for name in fields if name not in row), None)
    if name is None:
        return row
    known = row.keys() | {name}
    due = [names for names in spans(fields) if name in names and known.issuperset(names)]

    def gain(value: Any) -> int:
        more = {**row, name: value}
        return sum(tuple((field, more[field]) for field in names) in missing for names in due)

    # Of values that bring equally much, another one each time: what nobody asked for varies as well.
    for value in sorted(fields[name], key=lambda value: (-gain(value), _shuffled(len(missing), name, value))):
        found = _extended(space, fields, {**row, name: value}, missing)
        if found is not None:
            return found
    return None


def _shuffled(*what: Any) -> bytes:
    return hashlib.sha256(repr(what).encode()).digest()


def suite(space: CoverSpace, made: Sequence[Row]) -> list[str]:
    """Names of the configurations of a suite's rows, each once, by kernel, the quick ones of each first."""
    found = {item.id: item for item in map(space.configuration, made)}
    order = sorted(found.values(), key=lambda item: (item.head_dim, item.p_path, item.rows, work(item), item.id))
    return [item.id for item in order]


SUITES: Final = {"cover": sm100, "cover-sm90": sm90}


def main() -> None:
    """Writes the suites into matrix.yaml, or counts their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        for name, make in SUITES.items():
            space = make()
            made = rows(space)
            covered = {item for row in made for item in tuples_of(row, space.fields)} & set(wanted(space.fields))
            count = len(suite(space, made))
            print(f"{name}: {count} configurations, {len(covered)} of {len(wanted(space.fields))} tuples")
        return
    path = Path(__file__).parents[1] / "matrix.yaml"
    text = path.read_text(encoding="utf-8")
    for name, make in SUITES.items():
        space = make()
        text = written(text, name, suite(space, rows(space)))
    path.write_text(text, encoding="utf-8")


def written(text: str, name: str, names: Sequence[str]) -> str:
    """matrix.yaml with the configurations of a suite between its marks."""
    begin, end = f"    # {name}: made by tools/cover.py\n", f"    # {name}: end\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"matrix.yaml has not the marks of {name}, once each")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return before + begin + "".join(f"      - {item}\n" for item in names) + end + after


if __name__ == "__main__":
    main()
