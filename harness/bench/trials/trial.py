"""What `fmha.harness.bench.trials.tried` times: builds that are tried, beside the harness's own, at the sizes they are
for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fmha.harness.bench.shapes.cases import decode, prefill
from fmha.harness.bench.shapes.launch_shapes import SHAPES, BuildShape
from fmha.harness.bench.shapes.problem import Problem
from fmha.harness.bench.shapes.tried_plans import LaunchPlan
from fmha.harness.bench.shapes.tried_variants import REBUILT

MULTIPROCESSORS = 132
KINDS = ("decode", "decode_kv", "decode_b8", "short256", "short", "short1024", "prefill")
SPLITS = {64: 8, 128: 8, 256: 8, 512: 4}  # of decode: with them the CTAs of 16 batch entries fill an H200 once
HALVES: dict[int, tuple[str, ...]] = {
    64: ("hd64_whole", "hd64_short_plain"),
    128: ("hd128_half64", "hd128_short_plain"),
    256: ("hd256_short_plain",),
    512: (),
}
PLAIN = "_plain"
SMALL = {64: "hd64_short", 128: "hd128_short", 256: "hd256_short", 512: "hd512"}  # the rule's shape for short launches
Planned = tuple[str, int, bool]  # build, splits, whether it overlaps the grid before it


@dataclass(frozen=True)
class Trial:
    """A problem and the launch that is tried on it."""

    kind: str
    problem: Problem
    shape: str
    overlaps: bool = True  # the grid before it

    @property
    def long(self) -> bool:
        """Whether one launch is long enough to be timed by itself."""
        return self.kind == "prefill"

    def describe(self) -> str:
        """The launch in words."""
        p = self.problem
        return LaunchPlan(self.shape, p.splits, self.overlaps).describe()


def problem_of(kind: str, head_dim: int) -> Problem:
    """The problem of a kind of trial. KeyError for an unknown one."""
    return {
        "decode": decode(head_dim),
        "decode_kv": decode(head_dim, shared_kv=True),
        "decode_b8": decode(head_dim, batch=8),
        "short256": decode(head_dim, 256, 1),
        "short": decode(head_dim, 512, 1),
        "short1024": decode(head_dim, 1024, 1),
        "prefill": prefill(head_dim),
    }[kind]


def _decode(head_dim: int) -> Iterator[Planned]:
    whole, splits = f"hd{head_dim}", SPLITS[head_dim]
    own = whole + PLAIN
    yield own, splits, True
    yield own, splits, False
    yield whole, splits, True
    yield own, splits, True  # again: what two runs differ by
    for half in HALVES[head_dim]:
        yield half, splits, True
        yield half, splits // 2, True


def _decode_few(head_dim: int) -> Iterator[Planned]:
    """Of K = V: the build to beat, and one that may."""
    whole, splits = f"hd{head_dim}", SPLITS[head_dim]
    yield whole + PLAIN, splits, True
    for half in HALVES[head_dim][:1]:
        yield half, splits, True


def _decode_b8(head_dim: int) -> Iterator[Planned]:
    """Half the batch entries, twice the splits."""
    own, splits = f"hd{head_dim}{PLAIN}", 2 * SPLITS[head_dim]
    yield own, splits, True
    yield own, 8, True


def _short(head_dim: int, s_k: int) -> Iterator[Planned]:
    own, small = f"hd{head_dim}{PLAIN}", SMALL[head_dim]
    for splits in (4, 8):
        yield own, splits, True
        yield small + PLAIN, splits, True
    yield small, 8, True
    if head_dim == 512:
        yield own, 11, True  # a tile each of 512 keys
    if s_k == 1024:
        yield small + PLAIN, 16, True


def _prefill(head_dim: int) -> Iterator[Planned]:
    whole = f"hd{head_dim}"
    own = whole + PLAIN
    others = {
        64: ("hd64_3", "hd64_3_plain", "hd64_whole"),
        128: ("hd128_half64",),
        256: ("hd256_short_plain",),
        512: (),
    }[head_dim]
    for shape in (own, own, whole, *others):
        yield shape, 1, True


def _plans(kind: str, head_dim: int, s_k: int) -> Iterator[Planned]:
    if kind.startswith("short"):
        return _short(head_dim, s_k)
    return {"decode": _decode, "decode_kv": _decode_few, "decode_b8": _decode_b8, "prefill": _prefill}[kind](head_dim)


def trials(kind: str, head_dim: int) -> list[Trial]:
    """Each with its problem at full size."""
    p = problem_of(kind, head_dim)
    found = [
        Trial(kind, replace(p, splits=splits), shape, overlaps)
        for shape, splits, overlaps in _plans(kind, head_dim, p.s_k)
    ]
    return found if kind in ("decode", "prefill") else list(dict.fromkeys(found))  # there one is timed twice


def every_trial() -> list[Trial]:
    """All trials that are there, in the order of the bench."""
    return [trial for kind in KINDS for head_dim in SHAPES for trial in trials(kind, head_dim)]


def _filling(shape: BuildShape) -> int:
    """Splits of decode that fill an H200 once."""
    tiles = shape.row_tiles(decode(shape.head_dim)) * decode(shape.head_dim).batch
    return MULTIPROCESSORS * shape.ctas_per_sm // tiles


def clocked() -> list[Trial]:
    """Decode, through each build with clocks."""
    return [
        Trial("decode", replace(decode(shape.head_dim), splits=_filling(shape)), name)
        for name, shape in REBUILT.items()
        if shape.clocks
    ]
