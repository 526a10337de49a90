"""Random configurations of the whole legal space, and smaller ones of a configuration that fails."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, replace
from random import Random
from typing import Any, Final, get_args

from fmha.harness.judge.configuration import (
    AXES,
    DEFAULTS,
    KINDS,
    MIXED_SINK_HEADS,
    UNLIMITED,
    Configuration,
    Data,
    Indices,
    Layout,
    Lengths,
    Mask,
    Offsets,
    Packed,
    fault,
)


@dataclass(frozen=True, slots=True)
class Space:
    """Largest sizes that are drawn. `rows` bounds t * heads, `work` head_dim * rows * keys of the whole batch."""

    head_dims: tuple[int, ...]
    rows: int
    keys: int
    topk: int
    batch: int
    work: int

    def draw(self, seed: int, count: int) -> list[Configuration]:
        """`count` different configurations; the first ones stay the same when more are drawn."""
        return draw_cases(seed, count, self)


# Not those at the ends of what float32 holds, for which configurations are chosen by hand.
DATA: Final = tuple(kind for kind in get_args(Data) if kind not in ("faint", "loud"))
# Drawn among the others, in the order that they have always had.
_DRAWN_EARLIER: Final = ("kv", "output", "p_path", "page_size")


def draw_cases(seed: int, count: int, space: Space) -> list[Configuration]:
    """`count` different configurations; the first ones stay the same when more are drawn."""
    cases: dict[str, Configuration] = {}
    number = 0
    while len(cases) < count:
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        case = draw(Random(int.from_bytes(digest[:8], "little")), space)
        cases.setdefault(case.id, case)
        number += 1
    return list(cases.values())


def draw(random: Random, space: Space) -> Configuration:
    """One configuration: every feature by a coin of its own, sizes skewed to small ones and to edges of tiles."""
    while True:
        case = _proposal(random, space)
        if fault(case) is None and work(case) <= space.work:
            return _with_others(random, case)


def work(case: Configuration) -> int:
    """head_dim * rows * keys: what a forward kernel without masks would multiply."""
    return case.head_dim * case.batch * case.t * case.heads * (case.s_k + case.topk)


def smaller(case: Configuration) -> Iterator[Configuration]:
    """Legal configurations one step simpler than `case`, the boldest first: features off, then sizes down."""
    for step in dict.fromkeys(_steps(case)):
        if step != case:
            yield from _legal(step)


def _steps(case: Configuration) -> Iterator[Configuration]:
    """The sparse branch and the mask are of several fields; any other one is set to its default, but for sizes that go
    with a feature. Every size but head_dim, which kernels have or have not, goes down to its least, by halves, quarters
    and ones."""
    yield replace(case, topk=0, s_sparse=0, sparse_indices="valid", sparse_lens="full")
    yield replace(case, mask="none", window=0, left=UNLIMITED, right=UNLIMITED)
    for name, default in DEFAULTS.items():
        if default is not MISSING and (KINDS[name] is not int or AXES[name].always):
            yield replace(case, **{name: default})
    for name, axis in AXES.items():
        if KINDS[name] is int and name != "head_dim":
            value = getattr(case, name)
            for less in (axis.least, value // 2, value - value // 4, value - 1):
                step: dict[str, Any] = {name: less}
                if axis.least <= less < value:
                    yield replace(case, **step)


def _legal(case: Configuration) -> Iterator[Configuration]:
    if fault(case) is None:
        yield case


def _proposal(random: Random, space: Space) -> Configuration:
    heads = random.choice([1, 1, 2, 3, 5, 8, 16, 64, 128])
    t = size(random, 1, max(1, space.rows // heads))
    topk = size(random, 1, space.topk) if random.random() < 0.4 else 0
    s_k = 0 if topk and random.random() < 0.2 else size(random, 1, space.keys)
    mask: Mask = _often(random, "none", Mask)
    drawn = Configuration(
        head_dim=random.choice(space.head_dims),
        t=t,
        s_k=s_k,
        batch=random.choice([1, 1, random.randint(1, space.batch)]),
        mask=mask,
        window=size(random, 1, max(1, s_k)) if mask == "window" else 0,
        left=random.choice([UNLIMITED, size(random, 0, s_k)]) if mask == "band" else UNLIMITED,
        right=random.choice([UNLIMITED, size(random, 0, s_k)]) if mask == "band" else UNLIMITED,
        heads=heads,
        kv=_drawn(random, "kv"),
        query_offsets=_often(random, "aligned", Offsets),
        kv_lens=_often(random, "full", Lengths),
        topk=topk,
        s_sparse=size(random, 1, 2 * topk) if topk else 0,
        sparse_indices=_often(random, "valid", Indices) if topk else "valid",
        sparse_lens=_often(random, "full", Lengths) if topk else "full",
        sink=random.choice(["none", "finite", "mixed" if heads >= MIXED_SINK_HEADS else "finite"]),
        data="normal" if random.random() < 0.5 else random.choice(DATA),
        output=_drawn(random, "output"),
        splits=random.choice([1, 1, 1, random.randint(2, 5)]),
        p_path=_drawn(random, "p_path"),
    )
    # Drawn last, and legal: what is drawn before stays what it was where tensors lie as they did.
    layout: Layout = _often(random, "bshd", Layout)
    kv_heads = random.choice([n for n in range(1, heads + 1) if heads % n == 0])
    laid = next(_legal(replace(drawn, layout=layout, kv_heads=kv_heads)), drawn)
    page_size = _drawn(random, "page_size")
    packed: Packed = _often(random, "none", Packed)
    q_lens: Lengths = _often(random, "full", Lengths)
    together = replace(laid, page_size=page_size, packed=packed, q_lens=q_lens)
    apart = replace(laid, packed=packed, q_lens=q_lens), replace(laid, page_size=page_size), laid
    return next(case for tried in (together, *apart) for case in _legal(tried))


def _with_others(random: Random, case: Configuration) -> Configuration:
    """With the fields that say what is drawn, where that is legal. They come last: all else is what it would be without
    them."""
    for name, axis in AXES.items():
        if axis.drawn and name not in _DRAWN_EARLIER:
            case = next(_legal(replace(case, **{name: _drawn(random, name)})), case)
    return case


def _drawn(random: Random, name: str) -> Any:
    return random.choice(AXES[name].drawn)


def _often(random: Random, usual: Any, kind: Any) -> Any:
    """`usual` half the time, any of a Literal's values otherwise."""
    return usual if random.random() < 0.5 else random.choice(get_args(kind))


def size(random: Random, least: int, most: int) -> int:
    """From least to most: small ones, neighbours of multiples of 64, or anything."""
    kind = random.randrange(3)
    if kind == 0:
        value = random.randint(least, min(most, least + 8))
    elif kind == 1:
        value = 64 * random.randint(1, max(1, most // 64)) + random.randint(-1, 1)
    else:
        value = random.randint(least, most)
    return min(max(value, least), most)
