"""Every .sync instruction under every shape of member masks, against its definition (PTX ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulator.clusterlab import Run, run

Words = NDArray[np.uint32]
LANES = np.arange(32)
RNG = np.random.default_rng(3)
VALUES = RNG.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32)
PREDICATES = (VALUES >> 7 & 1).astype(bool)


def members(mask: int) -> NDArray[Any]:
    return LANES[(mask >> LANES) & 1 == 1]


def ballot(chosen: NDArray[Any], of: NDArray[Any]) -> int:
    return int(sum(1 << int(lane) for lane in of if chosen[lane]))


def shuffled(mode: str, amount: int) -> Callable[[int], dict[int, int]]:
    """c = 31: one segment of 32. A lane whose source is not of the group is left out: its value is undefined."""

    def result(mask: int) -> dict[int, int]:
        of = members(mask)
        source = {"up": of - amount, "down": of + amount, "bfly": of ^ amount, "idx": of * 0 + amount}[mode]
        source = np.where((source < 0) | (source > 31), of, source)
        return {int(to): int(VALUES[at]) for to, at in zip(of, source, strict=True) if mask >> int(at) & 1}

    return result


def same(value: Callable[[NDArray[Any]], int]) -> Callable[[int], dict[int, int]]:
    return lambda mask: {int(lane): value(members(mask)) & 0xFFFFFFFF for lane in members(mask)}


def signed(x: Words) -> NDArray[Any]:
    return x.view(np.int32).astype(np.int64)


# Text (of %r1, the value, %p1, the predicate and %r2, the mask, to %r3), and what each lane of a group gets.
OPERATIONS: dict[str, tuple[str, Callable[[int], dict[int, int]]]] = {
    **{
        f"shfl.{mode}.{n}": (
            f"shfl.sync.{mode}.b32 %r3, %r1, {n}, {0 if mode == 'up' else 31}, %r2;",
            shuffled(mode, n),
        )
        for mode in ("up", "down", "bfly", "idx")
        for n in (1, 8)
    },
    "ballot": ("vote.sync.ballot.b32 %r3, %p1, %r2;", same(lambda of: ballot(PREDICATES, of))),
    "ballot of !p": ("vote.sync.ballot.b32 %r3, !%p1, %r2;", same(lambda of: ballot(~PREDICATES, of))),
    "any": ("vote.sync.any.pred %p2, %p1, %r2; selp.u32 %r3, 1, 0, %p2;", same(lambda of: int(PREDICATES[of].any()))),
    "all": ("vote.sync.all.pred %p2, %p1, %r2; selp.u32 %r3, 1, 0, %p2;", same(lambda of: int(PREDICATES[of].all()))),
    "uni": (
        "vote.sync.uni.pred %p2, %p1, %r2; selp.u32 %r3, 1, 0, %p2;",
        same(lambda of: int(len(set(PREDICATES[of])) == 1)),
    ),
    "elect": (
        "elect.sync %r3|%p2, %r2; @%p2 add.u32 %r3, %r3, 100;",
        lambda mask: {int(x): int(members(mask)[0]) + 100 * (x == members(mask)[0]) for x in members(mask)},
    ),
    "redux.add": ("redux.sync.add.u32 %r3, %r1, %r2;", same(lambda of: int(VALUES[of].astype(np.uint64).sum()))),
    "redux.min": ("redux.sync.min.s32 %r3, %r1, %r2;", same(lambda of: int(signed(VALUES)[of].min()))),
    "redux.max": ("redux.sync.max.u32 %r3, %r1, %r2;", same(lambda of: int(VALUES[of].max()))),
    "redux.xor": ("redux.sync.xor.b32 %r3, %r1, %r2;", same(lambda of: int(np.bitwise_xor.reduce(VALUES[of])))),
    "match.any": (
        "and.b32 %r4, %r1, 3; match.any.sync.b32 %r3, %r4, %r2;",
        lambda mask: {int(x): ballot(VALUES[x] & 3 == VALUES & 3, members(mask)) for x in members(mask)},
    ),
    "match.any.b64": (
        "and.b32 %r4, %r1, 3; cvt.u64.u32 %d2, %r4; match.any.sync.b64 %r3, %d2, %r2;",
        lambda mask: {int(x): ballot(VALUES[x] & 3 == VALUES & 3, members(mask)) for x in members(mask)},
    ),
    "match.all": (
        "and.b32 %r4, %r1, 1; match.all.sync.b32 %r3|%p2, %r4, %r2; @%p2 xor.b32 %r3, %r3, 0x5555;",
        same(lambda of: ballot(LANES >= 0, of) ^ 0x5555 if len(set(VALUES[of] & 1)) == 1 else 0),
    ),
}

SHAPES: dict[str, list[int]] = {
    "one of all": [0xFFFFFFFF],
    **{f"tiles of {n}": [((1 << n) - 1) << k for k in range(0, 32, n)] for n in (1, 2, 4, 8, 16)},
    "odd and even": [0x55555555, 0xAAAAAAAA],
    "three by value": [ballot(k == VALUES % 3, LANES) for k in range(3)],
    "one lane and the rest": [1 << 13, 0xFFFFFFFF ^ 1 << 13],
    "some lanes in none": [0x0000F00F, 0x0FF00000],
}
# How lanes come to the instruction. %p3: the lane is in a group; %r7: the group's number.
FLOWS = {
    "together": "@!%p3 bra END; {op} END:",
    "under a guard": "@!%p3 bra END; setp.ge.u32 %p4, %r7, 0; {guarded} END:",
    "one after the other": "@!%p3 bra END; mov.b32 %r8, %r7;"
    "AGAIN: setp.eq.u32 %p4, %r8, 0; @%p4 bra COME; sub.u32 %r8, %r8, 1; bra AGAIN; COME: {op} END:",
    "each in a branch of its own": "@!%p3 bra END; and.b32 %r8, %r7, 1; setp.eq.u32 %p4, %r8, 0; @%p4 bra EVEN;"
    "{op} bra END; EVEN: {op} END:",
    "lanes of a group in two branches": "@!%p3 bra END; and.b32 %r8, %tid, 4; setp.eq.u32 %p4, %r8, 0; @%p4 bra EVEN;"
    "{op} bra END; EVEN: {renamed} END:",
    "after the others have left": "@!%p3 ret; {op} END:",
}


def launch(op: str, masks: list[int], flow: str, **options: Any) -> Run:
    """What each lane has in %r3 afterwards, 77 where it had nothing to do."""
    named, group = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    for n, mask in enumerate(masks):
        named[members(mask)], group[members(mask)] = mask, n
    first, _, _rest = op.partition(";")
    renamed = op.replace("%r1", "%r11").replace("%p1", "%p11")
    text = FLOWS[flow].format(op=op, renamed=renamed, guarded=op.replace(first, "@%p4 " + first, 1))
    body = f"""
    mul.wide.u32 %d1, %tid, 4; .reg .b64 %at<4>;
    add.u64 %at0, %d1, %named; ld.global.u32 %r2, [%at0]; add.u64 %at1, %d1, %group; ld.global.u32 %r7, [%at1];
    add.u64 %at2, %d1, %values; ld.global.u32 %r1, [%at2]; add.u64 %at3, %d1, %out;
    shr.u32 %r5, %r1, 7; and.b32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; setp.ne.u32 %p3, %r2, 0;
    mov.b32 %r11, %r1; setp.ne.u32 %p11, %r5, 0; mov.b32 %r3, 77; setp.ne.u32 %p2, 0, 0;
    {text}
    st.global.u32 [%at3], %r3;
    """
    out = np.full(32, 77, np.uint32)
    return run(body, {"named": named, "group": group, "values": VALUES, "out": out}, **options)


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_group_for_itself(name: str, shape: str, flow: str) -> None:
    op, define = OPERATIONS[name]
    masks = SHAPES[shape]
    want: dict[int, int] = {}
    for mask in masks:
        want |= define(mask)
    idle = [lane for lane in range(32) if not any(mask >> lane & 1 for mask in masks)]
    undefined = 32 - len(want) - len(idle)
    for options in ({}, {"schedule": "random", "seed": 1}):
        done = launch(op, masks, flow, **options)
        assert done.rules == ({"shfl-inactive-lane"} if undefined else set()), done.report.findings
        got = done.arrays["out"]
        assert {lane: int(got[lane]) for lane in want} == want
        assert set(got[idle]) <= {77}


@pytest.mark.parametrize("schedule", ["realistic", "random"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_mask_that_leaves_its_lane_out(name: str, schedule: str) -> None:
    done = launch(OPERATIONS[name][0], [0xFFFF], "together").rules
    assert done <= {"shfl-inactive-lane"}
    body = OPERATIONS[name][0].replace("%r2", "0xFFFF")
    setup = "mov.b32 %r1, %tid; setp.eq.u32 %p1, 0, 0; setp.eq.u32 %p2, 0, 0;"
    for profile in ("strict", "lenient"):
        found = run(setup + body, {"out": np.zeros(4, np.uint32)}, schedule=schedule, profile=profile)
        assert found.rules == {"membermask"}


# What names more lanes than come. The others have gone past, or execute it under another mask; then they exit.
ABSENT = {
    "a branch around it": "@!%p1 bra AROUND; {op} AROUND:",
    "a guard": "@%p1 {op}",
    "another mask": "selp.b32 %r2, 0xFFFFFFFF, 0xFFFF0000, %p1; {op}",
    "another instruction": "@!%p1 bra OTHER; {op} bra AROUND; OTHER: bar.warp.sync 0xFFFF0000; AROUND:",
}


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
@pytest.mark.parametrize("case", ABSENT)
@pytest.mark.parametrize(
    "op",
    [
        "shfl.sync.bfly.b32 %r3, %r1, 1, 31, %r2;",
        "vote.sync.ballot.b32 %r3, %p1, %r2;",
        "redux.sync.add.u32 %r3, %r1, %r2;",
        "match.any.sync.b32 %r3, %r1, %r2;",
        "elect.sync %r3|%p2, %r2;",
        "bar.warp.sync %r2;",
    ],
)
def test_a_lane_that_never_comes(op: str, case: str, schedule: str) -> None:
    setup = "mov.b32 %r1, %tid; setp.lt.u32 %p1, %tid, 16; mov.b32 %r2, 0xFFFFFFFF; mov.b32 %r3, 0;"
    body = setup + ABSENT[case].format(op=op) + "mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out;"
    body += "st.global.u32 [%d1], %r3;"
    arrays = {"out": np.zeros(32, np.uint32)}
    assert run(body, arrays, schedule=schedule).rules == {"membermask-absent"}
    run(body, arrays, schedule=schedule, profile="lenient").clean()


def test_lanes_that_have_exited_are_not_waited_for() -> None:
    for leave in ("@%p1 ret;", "@%p1 bra END;"):
        body = f"setp.gt.u32 %p1, %tid, 7; {leave} redux.sync.add.u32 %r1, %tid, 0xFFFFFFFF;"
        body += "@%leader st.global.u32 [%out], %r1; END:"
        assert run(body, {"out": np.zeros(4, np.uint32)}).clean().arrays["out"][0] == 28


def test_lanes_that_meet_in_two_branches_do_not_wait_for_those_that_have_exited() -> None:
    sync = "redux.sync.add.u32 %r1, %tid, 0xFFFFFFFF;"
    body = f"""setp.gt.u32 %p2, %tid, 23; @%p2 ret; setp.lt.u32 %p1, %tid, 8; @%p1 bra OTHER; {sync} bra END;
    OTHER: {sync}
    END: mul.wide.u32 %d1, %tid, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r1;"""
    done = run(body, {"out": np.zeros(32, np.uint32)}).clean()
    assert done.arrays["out"].tolist() == 24 * [sum(range(24))] + 8 * [0]
