"""One cell of the matrix: sizes, and patterns that make its inputs. docs/use/matrix.md explains each field."""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal

Mask = Literal["none", "causal", "window", "band"]
KeyValues = Literal["separate", "shared"]
Offsets = Literal["aligned", "zero", "mixed", "far"]
Lengths = Literal["full", "ragged", "empty"]
Layout = Literal["bshd", "bhsd", "fused"]
Packed = Literal["none", "q", "k", "both"]
Indices = Literal["valid", "holes", "invalid"]
Sink = Literal["none", "finite", "mixed"]
Data = Literal[
    "normal", "extreme", "steps", "carried", "onesign", "faint", "loud", "sinkkey", "recency", "twins", "channels"
]
Scale = Literal["root", "0.02", "0.25"]
Output = Literal["unnormalised", "fp32", "bf16"]
Statistics = Literal["all", "lse", "none"]  # of fmha.attention
Asked = Literal["all", "lse", "max", "none"]  # of a configuration: the C ABI takes any subset
PathChoice = Literal["auto", "tmem", "smem"]
MergeChoice = Literal["auto", "cluster", "combine", "balanced"]

OURS: Final = "ours"  # what matrix.yaml and `--kernel` call the attention kernels that fmha brings
UNLIMITED: Final = -1  # left, right
MOST: Final = 2**31 - 1  # of a number: what an int32 of the kernels' parameters holds
MOST_ENTRIES: Final = 65535  # of a batch: a grid's z
LEAST_COST: Final = 100_000  # what the smallest configuration costs as well
# Which numbers of a row are stored, in the order in which fmha.attention's results have them.
STORED: Final[Mapping[Statistics, tuple[str, ...]]] = {
    "all": ("row_max", "row_sum", "lse"),
    "lse": ("lse",),
    "none": (),
}
ASKED_FOR: Final[Mapping[Asked, tuple[str, ...]]] = {
    "all": STORED["all"],
    "lse": STORED["lse"],
    "max": ("row_max",),
    "none": STORED["none"],
}
PAGE_SIZES: Final = (16, 32, 64, 128, 256)
OF_ONE_HEAD: Final = ("steps", "carried", "onesign")  # data that are made of one K/V head, and of queries of one number
MIXED_SINK_HEADS: Final = 4  # a mixed sink repeats finite, +inf, finite, -inf over the heads


def _always(values: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Axis:
    """What matrix.yaml, names, `--filter`, random suites and docs/reference/matrix-keys.md have to know of a field of
    Configuration, beside its type and default.

    `words` say what a value means, in the page's Markdown. `name` stands before its value in a configuration's name;
    empty where the mask's part says it. `key` is what `--filter` calls it; empty for what no filter takes. `least` is
    of numbers. A field that is not `used` beside the values of others means nothing there, and has its default.
    `drawn` are what random suites choose among, a likelier value more than once; empty for what random_cases.py draws
    in a way of its own, or never.
    """

    words: str
    name: str = ""
    key: str = ""
    least: int = 0
    used: Callable[[Mapping[str, Any]], bool] = _always
    drawn: tuple[Any, ...] = ()

    @property
    def always(self) -> bool:
        """Whether it means something beside any values of others."""
        return self.used is _always


def _axis(words: str, name: str = "", key: str = "", **more: Any) -> Mapping[str, Axis]:
    return {"axis": Axis(words, name, key, **more)}


def _banded(values: Mapping[str, Any]) -> bool:
    return bool(values["mask"] == "band")


def _sparse(values: Mapping[str, Any]) -> bool:
    return bool(values["topk"] > 0)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Sizes in elements; `window` in keys, 0 without a sliding window; `left` and `right` of a band, else UNLIMITED.

    The fields from `output` on say how a problem is run, not which problem it is.
    """

    head_dim: int = field(metadata=_axis("elements of a row of Q, K and V", "hd", "hd", least=1))
    t: int = field(metadata=_axis("queries", "t", "t", least=1))
    s_k: int = field(metadata=_axis("keys; 0 for a sparse branch alone", "sk", "sk"))
    batch: int = field(default=1, metadata=_axis("batch entries", "b", "batch", least=1))
    mask: Mask = field(
        default="none",
        metadata=_axis(
            "`window` sees `window` keys, the query's own the last; `band` from `left` before to `right` after it",
            "mask",
            "mask",
        ),
    )
    window: int = field(
        default=0, metadata=_axis("of the mask `window`", used=lambda values: values["mask"] == "window")
    )
    left: int = field(
        default=UNLIMITED, metadata=_axis("of the mask `band`; -1 for all", least=UNLIMITED, used=_banded)
    )
    right: int = field(
        default=UNLIMITED, metadata=_axis("of the mask `band`; -1 for all", least=UNLIMITED, used=_banded)
    )
    heads: int = field(default=1, metadata=_axis("query heads", "h", "heads", least=1))
    kv_heads: int = field(
        default=1, metadata=_axis("K/V heads, of which each has as many of the query heads", "kvh", "kvh", least=1)
    )
    kv: KeyValues = field(
        default="separate", metadata=_axis("`shared`: V is K", "kv", "kv", drawn=typing.get_args(KeyValues))
    )
    query_offsets: Offsets = field(
        default="aligned",
        metadata=_axis(
            "the last query at the last key; the first at key 0; anywhere from before the first key to after the last;"
            " where positions leave 32 bits, at either end",
            "offsets-",
            "offsets",
        ),
    )
    kv_lens: Lengths = field(
        default="full",
        metadata=_axis(
            "no lengths given; uniform over 0 to `s_k`, every fourth 0 or `s_k` in turn; all 0", "lens-", "lens"
        ),
    )
    q_lens: Lengths = field(
        default="full",
        metadata=_axis(
            "as `kv_lens`, over 0 to `t`, with packed queries alone: queries of each batch entry. K and V of one"
            " without any are poison",
            "qlens-",
            "qlens",
        ),
    )
    topk: int = field(
        default=0, metadata=_axis("entries a query of the sparse branch; 0: there is none", "top", "topk")
    )
    s_sparse: int = field(default=0, metadata=_axis("rows that these index", "of", used=_sparse))
    sparse_indices: Indices = field(
        default="valid",
        metadata=_axis(
            "distinct rows where there are enough; a third out of range, on both sides; all out of range",
            "indices-",
            used=_sparse,
        ),
    )
    sparse_lens: Lengths = field(
        default="full", metadata=_axis("as `kv_lens`, over 0 to `topk`", "toplens-", used=_sparse)
    )
    sink: Sink = field(
        default="none", metadata=_axis("`mixed` repeats finite, +inf, finite, -inf over the heads", "sink-", "sink")
    )
    data: Data = field(
        default="normal",
        metadata=_axis(
            "standard normal; queries times 2^-20 to 2^8, keys that grow or shrink along the sequence: logits from 1e-6"
            " to 2,000; the others as [matrix.md](../use/matrix.md#a-configuration) says",
            "data-",
            "data",
        ),
    )
    scale: Scale = field(
        default="root",
        metadata=_axis(
            "what multiplies q.k: 1 / sqrt(head_dim), or that number",
            "scale-",
            "scale",
            drawn=("root", "root", "root", "0.02", "0.25"),
        ),
    )
    output: Output = field(
        default="unnormalised",
        metadata=_axis("the last two are normalised in the kernel", "out-", "out", drawn=typing.get_args(Output)),
    )
    statistics: Asked = field(
        default="all",
        metadata=_axis(
            "what is asked for beside O: row max, row sum and LSE; LSE alone; row max alone; nothing. "
            "All with un-normalised O",
            "stats-",
            "stats",
            drawn=("all", "all", "all", "lse", "none"),
        ),
    )
    splits: int = field(default=1, metadata=_axis("CTAs that share the keys of a row", "splits", "splits", least=1))
    p_path: PathChoice = field(
        default="auto",
        metadata=_axis(
            "how P reaches the second product; `auto` takes the kernel's rule",
            "p-",
            "p",
            drawn=("auto", "auto", "tmem", "smem"),
        ),
    )
    rows: int = field(
        default=0,
        metadata=_axis(
            "query rows of a CTA; 0 takes the rule of [hopper-launch.md](../understand/hopper-launch.md#which-shape)",
            "rows",
            "rows",
        ),
    )
    merge: MergeChoice = field(
        default="auto",
        metadata=_axis(
            "of splits: `cluster`, within one, which kernels of earlier commits knew; `combine`; `balanced`: so many"
            " CTAs in all, which divide the keys of all entries evenly, on sm_100a an entry each at least; `auto` as"
            " for `rows`",
            "merge-",
            "merge",
        ),
    )
    layout: Layout = field(
        default="bshd",
        metadata=_axis(
            "contiguous; K and V head by head, a row of poison behind each of several heads of V; q, k and v as slices"
            " of a projection, poison around them",
            "layout-",
            "layout",
        ),
    )
    page_size: int = field(
        default=0,
        metadata=_axis(
            f"rows of a page of K and V, {', '.join(map(str, PAGE_SIZES))}; 0: no pages. They lie in an order of"
            " chance; poison in pages that nobody needs, and numbers of none in the table",
            "page",
            "page",
            drawn=(0, 0, 0, *PAGE_SIZES),
        ),
    )
    packed: Packed = field(
        default="none", metadata=_axis("what lies one batch entry behind the other", "packed-", "packed")
    )
    before: int = field(
        default=0,
        metadata=_axis(
            "batch entries that every tensor has before these; nobody makes, computes or looks at them",
            "before",
            "before",
        ),
    )

    @property
    def kernel(self) -> str:
        """The kernel it is one of, by matrix.yaml's name."""
        return OURS

    @property
    def id(self) -> str:
        """Stable name, e.g. `hd64_t32_sk384` or `hd64_t32_sk384_causal`; parse_id reads it back."""
        return "_".join(self._parts())

    @property
    def problem(self) -> Configuration:
        """The problem alone: two configurations that differ in how they are run have the same inputs."""
        return replace(self, **HOW)

    @property
    def by_head(self) -> bool:
        """Whether it takes a kernel that knows K/V heads, or a Q whose rows of heads have gaps."""
        return self.kv_heads > 1 or self.layout == "fused" or self.scattered

    @property
    def scattered(self) -> bool:
        """Whether it takes a kernel that knows pages and packed sequences."""
        return self.page_size > 0 or self.packed != "none"

    @property
    def planes(self) -> Configuration:
        """Its sizes as kernels see them: each K/V head as a batch entry, with the query heads that attend it."""
        return replace(self, batch=self.batch * self.kv_heads, heads=self.heads // self.kv_heads)

    @property
    def parameters(self) -> dict[str, Any]:
        """Its fields by name, as records have them."""
        return asdict(self)

    @property
    def cost(self) -> float:
        """What it costs the worker, roughly and in no unit: elements of what goes in, out and between."""
        keys = self.s_k + self.topk
        heads = self.batch * self.heads
        return float(heads * (self.t * (keys + self.head_dim) + keys * self.head_dim) + LEAST_COST)

    @property
    def stored(self) -> tuple[str, ...]:
        """The statistics that are asked for, by FmhaParams' names."""
        return ASKED_FOR[self.statistics]

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The metrics of statistics that are not asked for."""
        return tuple(f"{name}_error" for name in STORED["all"] if name not in self.stored)

    @property
    def extent(self) -> tuple[int, int]:
        """What orders configurations of one kernel by size: keys, then queries."""
        return self.s_k + self.topk, self.t

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """Keys seen before and after the query's own position, None where there is no limit."""
        if self.mask == "none":
            return None, None
        if self.mask == "causal":
            return None, 0
        if self.mask == "window":
            return self.window - 1, 0
        return tuple(None if side == UNLIMITED else side for side in (self.left, self.right))  # type: ignore[return-value]

    def _parts(self) -> list[str]:
        parts = []
        for name in _NAMED:
            if name == "mask":
                parts += self._mask_parts()
            elif (value := getattr(self, name)) != DEFAULTS[name]:
                parts.append(f"{AXES[name].name}{value}")
        return parts

    def _mask_parts(self) -> list[str]:
        if self.mask == "none":
            return []
        if self.mask == "window":
            return [f"window{self.window}"]
        if self.mask == "band":
            left, right = ("all" if side == UNLIMITED else str(side) for side in (self.left, self.right))
            return [f"band{left}to{right}"]
        return [self.mask]


AXES: Final[Mapping[str, Axis]] = {item.name: item.metadata["axis"] for item in fields(Configuration)}
DEFAULTS: Final[dict[str, Any]] = {item.name: item.default for item in fields(Configuration)}
# The fields that say how a problem is run, at their defaults.
HOW: Final = {name: DEFAULTS[name] for name in list(AXES)[list(AXES).index("output") :]}
# In the order of a configuration's name: as they are declared, but for the mask's part, which follows kv.
_NAMED: Final = [name for name, axis in AXES.items() if axis.name and name != "mask"]
_NAMED.insert(_NAMED.index("kv") + 1, "mask")
KINDS: Final = typing.get_type_hints(Configuration)
_LEAST: Final = {name: axis.least for name, axis in AXES.items() if KINDS[name] is int}
_MASK: Final = re.compile(r"(causal)|window(\d{1,10})|band(\d{1,10}|all)to(\d{1,10}|all)")


@functools.lru_cache(maxsize=4096)  # matrix.yaml names each of its cases, and a name is asked for several times
def parse_id(name: str) -> Configuration:
    """The configuration of a name. ValueError, which says what is wrong, for what no configuration's `id` is."""
    values: dict[str, Any] = {}
    for part in name.split("_"):
        for said, value in _part(part).items():
            if said in values:
                raise ValueError(f"{part!r} says {said} a second time")
            values[said] = value
    if missing := [needed for needed in ("head_dim", "t", "s_k") if needed not in values]:
        raise ValueError(f"it has no {', '.join(missing)}: names begin like hd64_t32_sk384")
    configuration = Configuration(**values)
    if wrong := fault(configuration):
        raise ValueError(f"{wrong[0]}: {wrong[1]}")
    if configuration.id != name:
        raise ValueError(f"it is written {configuration.id}")
    return configuration


@functools.lru_cache(maxsize=1024)
def _part(part: str) -> Mapping[str, Any]:
    if match := _MASK.fullmatch(part):
        causal, window, left, right = match.groups()
        if causal:
            return {"mask": "causal"}
        if window:
            return {"mask": "window", "window": int(window)}
        sides = [UNLIMITED if side == "all" else int(side) for side in (left, right)]
        return {"mask": "band", "left": sides[0], "right": sides[1]}
    for name in _NAMED:
        if not part.startswith(AXES[name].name) or name == "mask":
            continue
        value = part.removeprefix(AXES[name].name)
        if KINDS[name] is int:
            if value.isascii() and value.isdigit() and len(value) <= 10:
                return {name: int(value)}
        elif value in typing.get_args(KINDS[name]):
            return {name: value}
    raise ValueError(f"{part!r} is no part of a configuration's name")


def fault(configuration: Configuration) -> tuple[str, str] | None:
    """The first field that makes it illegal, and why; None for a legal one (docs/understand/semantics.md)."""
    item = configuration
    for name, least in _LEAST.items():
        if getattr(item, name) < least:
            return name, f"must be at least {least}, not {getattr(item, name)}"
        if getattr(item, name) > MOST:
            return name, f"must be at most {MOST}, not {getattr(item, name)}"
    if item.before and item.before + item.batch > MOST_ENTRIES:
        return "before", f"makes {item.before + item.batch} batch entries; at most {MOST_ENTRIES} are launched"
    if item.before and item.splits > 1 and item.output == "bf16" and item.merge != "cluster":
        return "before", "is not for splits of output bf16: a kernel may keep their parts in an order of its own"
    if wrong := _layout_fault(item):
        return wrong
    if (item.mask == "window") != (item.window > 0):
        return "window", "is required with mask window, and only then"
    for name in ("left", "right"):
        if item.mask != "band" and getattr(item, name) != UNLIMITED:
            return name, "is for mask band only"
    if item.topk == 0 and item.s_sparse > 0:
        return "s_sparse", "is for topk above 0 only"
    if item.topk == 0 and (item.sparse_indices, item.sparse_lens) != ("valid", "full"):
        return "topk", "must be above 0 for a pattern of sparse_indices or sparse_lens"
    if item.s_sparse == 0 and item.topk > 0 and item.sparse_indices == "valid":
        return "s_sparse", "must be above 0 for valid indices"
    if item.merge == "cluster" and item.splits == 1:
        return "merge", "in a cluster needs at least 2 splits"
    if item.merge == "balanced" and (item.topk or item.before):
        return "merge", "must not be balanced with topk or before"
    if item.merge == "balanced" and item.splits < item.kv_heads:
        return "splits", f"must be at least kv_heads, {item.kv_heads}, with merge balanced; it is {item.splits}"
    if item.scale != "root" and item.data in ("extreme", "onesign"):
        return "scale", f"must be root for data {item.data}, whose logits are large already"
    if item.data == "loud" and item.kv == "shared":
        return "kv", "must be separate for data loud, whose values are too large to be keys"
    if item.statistics != "all" and item.output == "unnormalised":
        return "statistics", "must be all with output unnormalised, which is relative to the row maximum"
    if item.sink == "mixed" and item.heads < MIXED_SINK_HEADS:
        return "sink", f"mixed needs at least {MIXED_SINK_HEADS} heads"
    return None


def _layout_fault(item: Configuration) -> tuple[str, str] | None:
    if item.heads % item.kv_heads:
        return "kv_heads", f"must divide heads, {item.heads}; it is {item.kv_heads}"
    if item.kv_heads * item.batch > MOST_ENTRIES:
        return "kv_heads", f"makes {item.kv_heads * item.batch} planes; at most {MOST_ENTRIES} are launched"
    if item.kv_heads > 1 and item.data in OF_ONE_HEAD:
        return "kv_heads", f"must be 1 for data {item.data}"
    if item.by_head and item.topk:
        return "topk", "must be 0 with several K/V heads, in layout fused, with pages and with packed sequences"
    if item.page_size and item.page_size not in PAGE_SIZES:
        return "page_size", f"must be one of {', '.join(map(str, PAGE_SIZES))}, not {item.page_size}"
    if item.page_size and item.packed in ("k", "both"):
        return "packed", f"must be none or q with pages, not {item.packed}"
    if item.q_lens != "full" and item.packed not in ("q", "both"):
        return "q_lens", f"must be full unless queries are packed; it is {item.q_lens}"
    if item.q_lens != "full" and item.data in OF_ONE_HEAD:
        return "q_lens", f"must be full for data {item.data}"
    if (item.by_head or item.layout != "bshd") and item.before:
        return "before", "is for one K/V head in layout bshd"
    return None
