"""What compiled code plans for sizes that no call had before is what Python decides and launches: functions, grids, and
all bytes of the parameters, with their tensor maps."""

from __future__ import annotations

import ctypes
import math
import random
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pytest

from fmha.harness.kernel_side.launch import Call, launch_attention
from tests.harness import recording_driver
from tests.harness.recording_driver import Driver, Recorder

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch
CONTEXT = 0xC0
CALLS = 500  # in each of the parts
PARTS = 4
MOST_ELEMENTS = 1 << 30  # of a tensor
SCRATCH, DRAWN, OUTPUT, STATISTICS = 0x5000000, 0x6000000, 0x7000000, 0x8000000
HEADS = ((1, 1), (4, 1), (5, 1), (16, 1), (128, 1), (32, 8), (28, 4), (14, 2), (8, 8), (64, 8), (96, 32), (192, 1))


@dataclass
class Drawn:
    """A call of attention: tensors by name, options by name."""

    tensors: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return recording_driver.compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is asked of a GPU is answered for an H200. Values of lengths and tables are not looked at."""
    from fmha.harness.attention import arguments, decision, workspace

    decision._multiprocessors.cache_clear()
    monkeypatch.setattr(decision.cuda, "architecture", lambda index: "sm_90a")
    monkeypatch.setattr(decision.cuda, "multiprocessors", lambda index: 132)
    monkeypatch.setattr(arguments.values, "check_values", lambda tensors, call: None)
    monkeypatch.setattr(workspace, "refuse_too_much", lambda call, nbytes, where: None)
    yield
    decision._multiprocessors.cache_clear()


def between(generator: random.Random, least: int, most: int) -> int:
    """Small numbers as often as large ones."""
    return round(least * (most / least) ** generator.random())


class TooLargeError(Exception):
    """For any machine's memory, though nobody touches it."""


def empty(*shape: int, dtype: Any = None) -> torch.Tensor:
    import torch

    if math.prod(shape) > MOST_ELEMENTS:
        raise TooLargeError
    return torch.empty(shape, dtype=dtype or torch.bfloat16)


def strided(generator: random.Random, rows: int, outer: int, heads: int, width: int) -> torch.Tensor:
    """[outer, rows, heads, width]: contiguous, head after head, a slice of a fused projection, or of a longer cache."""
    kind = generator.choice(("plain", "plain", "heads", "fused", "cache"))
    if kind == "heads":
        return empty(outer, heads, rows, width).transpose(1, 2)
    if kind == "fused":
        return empty(outer, rows, heads + 2, width)[:, :, 1:-1]
    if kind == "cache":
        return empty(outer, rows + 8, heads, width)[:, :rows]
    return empty(outer, rows, heads, width)


def defaults() -> dict[str, Any]:
    """Of each option."""
    from fmha.harness.attention.given import OPTIONS, AttentionArguments

    return {of.name: of.default for of in fields(AttentionArguments) if of.name in OPTIONS}


def draw(generator: random.Random) -> Drawn:
    import torch

    heads, kv_heads = generator.choice(HEADS)
    width = generator.choice((64, 128, 256, 512, 64, 128, 256, 32, 80, 96, 192, 8))
    batch = between(generator, 1, 300)
    t = generator.choice((1, 1, 1, between(generator, 1, 16), between(generator, 1, 5000)))
    s_k = between(generator, 1, 200000)
    found = Drawn()
    options = found.options = defaults() | {
        "causal": generator.random() < 0.4,
        "window": generator.choice((None, None, None, between(generator, 1, 4000), (between(generator, 1, 3000), None),
                                    (between(generator, 1, 3000), 0))),
        "scale": generator.choice((None, None, 0.1)),
        "normalise": True,
        "output_dtype": generator.choice((torch.bfloat16, torch.float32)),
        "statistics": generator.choice(("all", "lse", "none")),
        "splits": generator.choice((None, None, None, 1, between(generator, 1, 200))),
    }  # fmt: skip
    if options["statistics"] == "all" and options["output_dtype"] == torch.float32:
        options["normalise"] = generator.random() < 0.5
    packed_q = generator.random() < 0.25
    keys = generator.choice(("plain", "plain", "flat", "packed", "paged"))
    ends = empty(batch + 1, dtype=torch.int32)
    if packed_q:
        total = between(generator, 1, batch * t)
        options["max_seqlen_q"] = t
        found.tensors |= {"q": strided(generator, total, 1, heads, width)[0], "cu_seqlens_q": ends}
    else:
        found.tensors["q"] = strided(generator, t, batch, heads, width)
    if keys == "packed":
        total = between(generator, 1, batch * s_k)
        options["max_seqlen_k"] = s_k
        sizes = (total, 1)
        found.tensors["cu_seqlens_k"] = ends
    elif keys == "paged":
        page = generator.choice((16, 32, 64, 128, 256))
        sizes = (page, between(generator, 1, 5000))
        found.tensors["block_table"] = empty(batch, -(-s_k // page), dtype=torch.int32)
    else:
        sizes = (s_k, batch)
    for name in ("k", "v") if generator.random() < 0.8 else ("k",):
        found.tensors[name] = strided(generator, *sizes, kv_heads, width)
        if keys == "packed":
            found.tensors[name] = found.tensors[name][0]
        elif keys == "flat" and kv_heads == 1:
            found.tensors[name] = found.tensors[name][:, :, 0]
    if keys != "packed" and generator.random() < 0.4:
        found.tensors["kv_lens"] = empty(batch, dtype=torch.int32)
    if generator.random() < 0.2:
        found.tensors["query_offsets"] = empty(batch, dtype=torch.int32)
    if generator.random() < 0.2:
        found.tensors["sink"] = empty(heads, dtype=torch.float32)
    return found


def any_call(generator: random.Random) -> Drawn:
    """One whose tensors can be allocated."""
    while True:
        try:
            return draw(generator)
        except TooLargeError:
            continue


@dataclass
class Both:
    """Python's plan of a call and the planner's."""

    made: Any
    planned: Any
    call: Any
    variant: Any
    launches: list[tuple[Any, ...]]


def functions_of(place: int, variant: Any) -> dict[str, int]:
    """Of each entry that a variant may launch a number of its own."""
    from fmha.harness.attention.sized import SUFFIXES

    found = {variant.entry: 0x10000 + place}
    for bits in range(8):
        suffix = "".join(word for bit, word in enumerate(SUFFIXES) if bits >> bit & 1)
        found[variant.combine + suffix] = 0x20000 + 8 * place + bits
    return found


def planner_of(driver: Driver, most_scratch: int = 1 << 62, skip: int = -1) -> Any:
    """One that has every kernel but that of place `skip`."""
    from fmha.harness.attention import sized
    from fmha.harness.worker.devices import _calls

    planner = _calls.Planner(driver.entries(), CONTEXT, most_scratch, *sized.tables())
    for place in range(len(sized.HOPPER)):
        for bits in range(8 if place != skip else 0):
            planner.load(place, 0x10000 + place, bits, 0x20000 + 8 * place + bits)
    return planner


def listed(drawn: Drawn) -> tuple[Any, ...]:
    from fmha.harness.attention.given import NAMES

    return tuple(drawn.tensors.get(name) for name in NAMES)


def ask(planner: Any, drawn: Drawn) -> Any:
    import torch

    from fmha.harness.attention.options import window_of
    from fmha.harness.attention.tensors import read
    from fmha.harness.judge.configuration import STORED

    of = drawn.options
    left, right = (-1 if side is None else side for side in window_of(of["causal"], of["window"]))
    longest = [-1 if of[name] is None else of[name] for name in ("max_seqlen_q", "max_seqlen_k")]
    form, _ = read(listed(drawn))
    return planner.plan(
        form, of["scale"] or 0.0, left, right, *longest, of["normalise"], of["output_dtype"] is torch.bfloat16,
        len(STORED[of["statistics"]]), of["splits"] or 0,
    )  # fmt: skip


def by_python(drawn: Drawn) -> Both:
    """Launches as fmha.attention has made them where there was no planner."""
    import torch

    from fmha.harness.attention import sized
    from fmha.harness.attention.arguments import check
    from fmha.harness.attention.decision import decide
    from fmha.harness.attention.given import AttentionArguments
    from fmha.harness.attention.plans import AttentionPlan

    arguments = check(AttentionArguments(**drawn.tensors, **drawn.options))
    variant, call = decide(arguments, drawn.options["splits"], "auto", torch.device("cuda", 0))
    made = AttentionPlan(arguments, listed(drawn), variant, call, drawn.options["statistics"])
    whole = {"statistics": STATISTICS, "scratch": SCRATCH}
    addresses = {name: tensor.data_ptr() for name, tensor in arguments.tensors.items()} | {"o": OUTPUT}
    addresses |= {
        name: whole[source] + beyond
        for name, (source, beyond) in made._within.items()
        if source == "statistics" or call.partial_elements.get(name)
    }
    if made._draws:
        addresses["drawn"] = DRAWN
    recorder = Recorder(functions_of(sized.HOPPER.index(variant), variant))
    launch_attention(recorder, None, variant, call, addresses)  # type: ignore[arg-type]
    return Both(made, None, call, variant, recorder.launches)


def addresses_of(drawn: Drawn) -> bytes:
    from fmha.harness.attention.tensors import read

    return read(listed(drawn))[1]


def launched(driver: Driver, planned: Any, drawn: Drawn) -> list[tuple[Any, ...]]:
    *_, scratch, draws = planned.outputs
    where = (STATISTICS if drawn.options["statistics"] != "none" else 0, SCRATCH if scratch else 0)
    assert planned(7, addresses_of(drawn), OUTPUT, *where, DRAWN if draws else 0) == 0
    return driver.launches()


def edges() -> Iterator[Drawn]:
    """At the limits of the rules, where a random call seldom is."""
    import torch

    for kv_heads in (32, 44, 45, 48, 66, 67, 88, 133):  # that go side by side, or leave too many CTAs idle
        for width in (64, 128, 256):
            q, k = empty(36, 1, kv_heads * 4, width), empty(36, 500, kv_heads, width)
            yield plain(q=q, k=k, v=k, kv_lens=empty(36, dtype=torch.int32))
    for s_k in (511, 512, 513):  # of long tiles
        q, k = empty(4, s_k, 8, 256), empty(4, s_k, 8, 256)
        yield plain(q=q, k=k, v=k)
    for left, right in ((2000, 1000), (2000, 4000), (100, 3000), (1, 1)):  # whose splits are by both sides
        q, k = empty(1, 1, 16, 128), empty(1, 100000, 2, 128)
        yield plain(q=q, k=k, v=k, window=(left, right))
    for total in (250, 251, 64 * 9, 64 * 9 + 1):  # rows of narrow tiles
        q, k = empty(total, 4, 128), empty(9, 700, 2, 128)
        yield plain(q=q, k=k, v=k, cu_seqlens_q=empty(10, dtype=torch.int32), max_seqlen_q=total)


def test_the_planner_is_right_at_the_limits_of_the_rules(driver: Driver, hopper: None) -> None:
    planner = planner_of(driver)
    balanced = set()
    for number, drawn in enumerate(edges()):
        planned, wanted = ask(planner, drawn), by_python(drawn)
        assert planned is not None, number
        assert planned.splits == (-1 if wanted.call.balance else wanted.call.splits), (number, wanted.call)
        assert launched(driver, planned, drawn) == wanted.launches, (number, wanted.call)
        balanced.add(wanted.call.balance is not None)
    assert balanced == {True, False}


@pytest.mark.parametrize("part", range(PARTS))
def test_the_planner_launches_what_python_launches(part: int, driver: Driver, hopper: None) -> None:
    from fmha.harness.attention import sized

    planner = planner_of(driver)
    generator = random.Random(part)
    seen, merged, drew = set(), 0, 0
    for number in range(CALLS):
        drawn = any_call(generator)
        planned = ask(planner, drawn)
        try:
            wanted = by_python(drawn)
        except (ValueError, NotImplementedError):
            assert planned is None, (part, number)
            continue
        assert planned is not None, (part, number, wanted.call)
        assert not isinstance(planned, int), (part, number, wanted.variant.name)
        assert sized.HOPPER[planned.variant] == wanted.variant, (part, number, wanted.call)
        assert planned.splits == (-1 if wanted.call.balance else wanted.call.splits), (part, number, wanted.call)
        assert launched(driver, planned, drawn) == wanted.launches, (part, number, wanted.call)
        o, wide, statistics, scratch, draws = planned.outputs
        made = wanted.made
        assert o == (made._new_o.args[0], made._new_o.args[1])
        assert wide == (None if made._new_wide is None else made._new_wide.args)
        assert (scratch, draws) == (made._scratch_bytes, made._draws)
        assert (statistics is None) == (made._new_statistics() is None)
        seen.add(planned.variant)
        merged += wanted.call.combines
        drew += draws
    assert len(seen) >= 15
    assert merged > 50
    assert drew > 15


def plain(**changes: Any) -> Drawn:
    """A call that the planner takes, but for `changes` of tensors or options."""
    import torch

    tensors = {"q": empty(2, 1, 8, 64), "k": empty(2, 300, 2, 64), "v": empty(2, 300, 2, 64)}
    options = defaults() | {"output_dtype": torch.bfloat16, "statistics": "lse"}
    for name, value in changes.items():
        (options if name in options else tensors)[name] = value
    return Drawn({name: x for name, x in tensors.items() if x is not None}, options)


def wrong_calls() -> dict[str, Drawn]:
    import torch

    int32 = torch.int32
    off = empty(2 * 300 * 2 * 64 + 8)[1 : 1 + 2 * 300 * 2 * 64].view(2, 300, 2, 64)
    return {
        "no k": plain(k=None, v=None),
        "another batch": plain(k=empty(3, 300, 2, 64), v=empty(3, 300, 2, 64)),
        "another head_dim": plain(k=empty(2, 300, 2, 128), v=empty(2, 300, 2, 128)),
        "heads that do not divide": plain(k=empty(2, 300, 3, 64), v=empty(2, 300, 3, 64)),
        "v of other sizes": plain(v=empty(2, 301, 2, 64)),
        "no keys": plain(k=empty(2, 0, 2, 64), v=empty(2, 0, 2, 64)),
        "float32": plain(q=empty(2, 1, 8, 64, dtype=torch.float32)),
        "an address off 16 bytes": plain(k=off),
        "a stride off 8 elements": plain(k=empty(2, 300, 2, 68)[..., :64]),
        "elements apart": plain(q=empty(2, 1, 64, 8).transpose(2, 3)),
        "lengths of another batch": plain(kv_lens=empty(3, dtype=int32)),
        "lengths apart": plain(kv_lens=empty(4, dtype=int32)[::2]),
        "lengths of 64 bits": plain(kv_lens=empty(2, dtype=torch.int64)),
        "a sink of other heads": plain(sink=empty(9, dtype=torch.float32)),
        "packed without the longest": plain(q=empty(9, 8, 64), cu_seqlens_q=empty(3, dtype=int32)),
        "the longest without packed": plain(max_seqlen_q=3),
        "packed keys with lengths": plain(
            k=empty(9, 2, 64), v=None, cu_seqlens_k=empty(3, dtype=int32), max_seqlen_k=5, kv_lens=empty(2, dtype=int32)
        ),
        "pages of 24 rows": plain(k=empty(9, 24, 2, 64), v=None, block_table=empty(2, 3, dtype=int32)),
        "a table of another batch": plain(k=empty(9, 32, 2, 64), v=None, block_table=empty(3, 3, dtype=int32)),
        "a head_dim of 12": plain(q=empty(2, 1, 8, 12), k=empty(2, 300, 2, 12), v=None),
        "a head_dim of 520": plain(q=empty(2, 1, 8, 520), k=empty(2, 300, 2, 520), v=None),
        "more keys than 32 bits": plain(q=empty(1, 1, 8, 64), k=empty(1, 1, 1, 64).expand(1, 2**31, 1, 64), v=None),
        "more queries than 32 bits": plain(
            q=empty(1, 1, 1, 64).expand(1, 2**31, 1, 64), k=empty(1, 300, 1, 64), v=None
        ),
        "partial results beyond 64 bits": plain(
            q=empty(1, 1, 512).expand(4194304, 1, 512),
            cu_seqlens_q=empty(32768, dtype=int32),
            k=empty(1, 1, 512).expand(32767, 64, 512),
            v=None,
            max_seqlen_q=4194304 - 128,
            splits=32768,
        ),
        "a sparse branch": plain(sparse_k=empty(2, 9, 64)),
    }


def test_what_is_wrong_is_left_to_python(driver: Driver) -> None:
    planner = planner_of(driver)
    assert ask(planner, plain()) is not None
    for why, drawn in wrong_calls().items():
        assert ask(planner, drawn) is None, why


@pytest.mark.parametrize("longest", [-7, -1, 1 << 62, 1 << 80, True, 2.0])
@pytest.mark.parametrize("place", [4, 5])
def test_a_longest_that_is_none_is_left_to_python(place: int, longest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner is told -1 where there is none, and its integers have 64 bits."""
    from fmha.harness.attention import sized

    q = empty(2, 1, 8, 64)
    options: list[Any] = list(defaults().values())
    monkeypatch.setitem(sized._known, (q.get_device(), tuple(options[:4]), tuple(options[6:])), object())
    options[place] = longest
    assert sized.planned(tuple(options), b"", q) is None


OTHERS = {
    "scale": 0.1, "causal": True, "window": 7, "softcap": 30.0, "normalise": False, "output_dtype": None, "splits": 3,
    "p_path": "smem", "statistics": "none",
}  # fmt: skip


def test_an_option_that_the_planner_is_not_told_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each option another value than its default: a call with it is not learned, or what is learned has it."""
    import torch

    from fmha.harness.attention import sized
    from fmha.harness.attention.given import AttentionArguments

    class Planner:
        def load(self, *given: int) -> None:
            """Nothing."""

    planner, where, variant = Planner(), torch.device("cuda", 0), sized.HOPPER[0]
    monkeypatch.setattr(sized, "_planner_of", lambda index: planner)
    call = Call(head_dim=64, batch=1, t=1, heads=1, s_k=9, scale=1.0)

    def learned(**options: Any) -> Any:
        monkeypatch.setattr(sized, "_known", {})
        of = AttentionArguments(**plain().tensors, **defaults() | options)
        sized.learn(of, where, variant, call, [1, 0])
        return next(iter(sized._known.values()), None)

    others = OTHERS | {"output_dtype": torch.bfloat16}
    at_each_call = {"max_seqlen_q", "max_seqlen_k"}
    assert others.keys() == defaults().keys() - at_each_call - {"device"}
    usual = learned()
    assert usual is not None
    assert {name for name, value in others.items() if learned(**{name: value}) is None} == sized.UNTOLD.keys()
    assert all(learned(**{name: value}) != usual for name, value in others.items())


def test_every_option_that_the_planner_is_told_is_drawn() -> None:
    from fmha.harness.attention import sized

    drawn = [any_call(random.Random(seed)).options for seed in range(200)]
    changed = {name for name, value in defaults().items() if any(of[name] != value for of in drawn)}
    assert changed == sized.TOLD - {"device"}


@pytest.mark.parametrize("splits", [None, 1, 4])
@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_packed_keys_of_which_there_are_none_have_a_plan(width: int, splits: int | None, hopper: None) -> None:
    import torch

    ends = empty(3, dtype=torch.int32)
    drawn = plain(
        q=empty(4, 8, width), cu_seqlens_q=ends, max_seqlen_q=2, splits=splits,
        k=empty(0, 2, width), v=empty(0, 2, width), cu_seqlens_k=ends, max_seqlen_k=0,
    )  # fmt: skip
    assert by_python(drawn).call.s_k == 0


def test_a_gpu_of_fewer_multiprocessors_has_the_same_splits(
    driver: Driver, hopper: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a window with two sides as well: by sizes alone."""
    from fmha.harness.attention import decision

    monkeypatch.setattr(decision.cuda, "multiprocessors", lambda index: 78)
    drawn = plain(q=empty(4, 1, 32, 128), k=empty(4, 8192, 8, 128), v=empty(4, 8192, 8, 128), window=4096)
    wanted = by_python(drawn).call.splits
    assert ask(planner_of(driver), drawn).splits == wanted > 1


def test_threads_that_keep_plans_do_not_drop_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmha.harness.attention import plans

    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(plans, "MOST_PLANS", 8)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            kept = [pool.submit(plans._keep, number, None) for number in range(40000)]  # type: ignore[arg-type]
    finally:
        sys.setswitchinterval(before)
    assert [done.exception() for done in kept if done.exception()] == []
    assert len(plans._plans) == 8


def test_a_kernel_that_was_not_loaded_is_named_and_too_much_memory_is_left_to_python(driver: Driver) -> None:
    planned = ask(planner_of(driver), plain(splits=3))
    scratch = planned.outputs[3]
    assert scratch > 0
    assert ask(planner_of(driver, skip=planned.variant), plain(splits=3)) == planned.variant
    assert ask(planner_of(driver, most_scratch=scratch), plain(splits=3)) is not None
    assert ask(planner_of(driver, most_scratch=scratch - 1), plain(splits=3)) is None


def test_maps_follow_tensors_that_move_and_a_refused_one_is_made_again(driver: Driver) -> None:
    drawn = plain()
    planned, at = ask(planner_of(driver), drawn), bytearray(addresses_of(drawn))
    driver.number("refused_encode").value = 700
    assert planned(7, bytes(at), OUTPUT, STATISTICS, SCRATCH, 0) == -700
    assert driver.launches() == []
    driver.number("refused_encode").value = 0
    first = launched(driver, planned, drawn)
    struct.pack_into("<Q", at, 8, 0xABC000)
    assert planned(7, bytes(at), OUTPUT, STATISTICS, SCRATCH, 0) == 0
    moved = driver.launches()
    words = [struct.unpack_from("<112Q", params) for *_, params in (first[0], moved[0])]
    assert [i for i, (a, b) in enumerate(zip(*words, strict=True)) if a != b] == [17]  # the address in the map k
    assert words[1][17] == 0xABC000


def test_launches_are_made_in_their_context_and_leave_the_threads_own(driver: Driver) -> None:
    drawn = plain()
    planned = ask(planner_of(driver), drawn)
    context = ctypes.c_uint64.in_dll(driver.library, "context")
    context.value = 0xBAD
    assert launched(driver, planned, drawn)
    assert context.value == 0xBAD
    context.value = CONTEXT
    with pytest.raises(TypeError, match="expected a stream"):
        planned(7, b"")
    with pytest.raises(ValueError, match="addresses of all tensors"):
        planned(7, b"", OUTPUT, 0, 0, 0)
