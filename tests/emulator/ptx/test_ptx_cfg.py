"""Control-flow graphs and post-dominators, against hand-made graphs and a brute-force oracle."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.emulator.ptx import Function, parse
from fmha.emulator.ptx.cfg import EXIT, blocks, post_dominators, reconvergence


def function(body: str) -> Function:
    text = ".version 8.8\n.target sm_100a\n.entry k() {\n.reg .b32 %r<9>; .reg .pred %p<9>; .reg .b64 %rd<2>;\n"
    return parse(text + body + "\n}\n").functions["k"]


def meetings(body: str) -> dict[str, int]:
    """Where the lanes of each guarded or indexed branch meet again, by the text of the branch."""
    parsed = function(body)
    where = reconvergence(parsed)
    assert len(where) == len(parsed.body)
    return {
        instruction.text: where[index]
        for index, instruction in enumerate(parsed.body)
        if instruction.opcode in ("bra", "brx") and (instruction.guard or instruction.opcode == "brx")
    }


# Blocks


def test_blocks_of_straight_code() -> None:
    assert [(b.first, b.end, b.successors) for b in blocks(function("mov.b32 %r1, 1; bar.sync 0; ret;"))] == [
        (0, 3, (EXIT,))
    ]
    assert [(b.first, b.end, b.successors) for b in blocks(function("mov.b32 %r1, 1;"))] == [(0, 1, (EXIT,))]
    assert blocks(function("")) == []
    assert reconvergence(function("")) == []
    assert reconvergence(function("A:")) == []


def test_blocks_end_at_branches_and_begin_at_labels() -> None:
    parsed = function("mov.b32 %r1, 1; @%p1 bra L; mov.b32 %r1, 2; L: mov.b32 %r1, 3; bra.uni E; trap; E: exit;")
    assert [(b.first, b.end, b.successors) for b in blocks(parsed)] == [
        (0, 2, (2, 1)),
        (2, 3, (2,)),
        (3, 5, (4,)),
        (5, 6, (EXIT,)),
        (6, 7, (EXIT,)),
    ]


def test_a_guarded_exit_falls_through() -> None:
    for leave in ("ret", "exit", "trap"):
        parsed = function(f"@%p1 {leave}; mov.b32 %r1, 1; {leave}; mov.b32 %r1, 2;")
        assert [b.successors for b in blocks(parsed)] == [(EXIT, 1), (EXIT,), (EXIT,)]
        assert reconvergence(parsed) == [-1] * 4


def test_an_indexed_branch_goes_to_its_targets() -> None:
    body = "T: .branchtargets A, B, A; {} brx.idx %r1, T; A: mov.b32 %r1, 1; B: ret;"
    assert blocks(function(body.format("")))[0].successors == (1, 2)
    assert blocks(function(body.format("mov.b32 %r1, 0; @%p1")))[0].successors == (1, 2)
    guarded = "T: .branchtargets B; @%p1 brx.idx %r1, T; mov.b32 %r1, 1; B: ret;"
    assert blocks(function(guarded))[0].successors == (2, 1)


def test_a_branch_to_the_end_of_the_body_leaves() -> None:
    parsed = function("@%p1 bra E; mov.b32 %r1, 1; E:")
    assert blocks(parsed)[0].successors == (EXIT, 1)
    assert reconvergence(parsed) == [-1, -1]


# Reconvergence


def test_if_then() -> None:
    assert meetings("@%p1 bra L; mov.b32 %r1, 1; L: ret;") == {"@%p1 bra L": 2}


def test_if_then_else() -> None:
    body = "@%p1 bra A; mov.b32 %r1, 1; bra.uni B; A: mov.b32 %r1, 2; B: ret;"
    assert meetings(body) == {"@%p1 bra A": 4}


def test_nested_ifs_meet_at_their_own_ends() -> None:
    body = "@%p1 bra E; @%p2 bra D; mov.b32 %r1, 1; D: mov.b32 %r1, 2; E: ret;"
    assert meetings(body) == {"@%p1 bra E": 4, "@%p2 bra D": 3}


def test_a_loop_meets_at_its_exit() -> None:
    assert meetings("L: mov.b32 %r1, 1; @%p1 bra L; ret;") == {"@%p1 bra L": 2}


def test_a_wait_loop_meets_after_it() -> None:
    body = "W: mbarrier.try_wait.b64 %p1, [%r1], %rd1; @%p1 bra D; bra.uni W; D: ret;"
    assert meetings(body) == {"@%p1 bra D": 3}


def test_a_break_out_of_a_loop_meets_where_both_ways_join() -> None:
    body = "L: @%p1 bra B; mov.b32 %r1, 1; @%p2 bra L; mov.b32 %r1, 2; B: ret;"
    assert meetings(body) == {"@%p1 bra B": 4, "@%p2 bra L": 4}


def test_a_switch() -> None:
    body = (
        "T: .branchtargets A, B, C; brx.idx %r1, T; A: mov.b32 %r1, 1; bra E; B: mov.b32 %r1, 2; bra E; "
        "C: mov.b32 %r1, 3; E: ret;"
    )
    assert meetings(body) == {"brx.idx %r1, T": 6}


def test_ways_that_leave_separately_do_not_meet() -> None:
    assert meetings("@%p1 bra A; ret; A: ret;") == {"@%p1 bra A": -1}
    assert meetings("@%p1 bra A; mov.b32 %r1, 1; trap; A: ret;") == {"@%p1 bra A": -1}


def test_a_loop_without_a_way_out_meets_at_its_header() -> None:
    body = (
        "mov.b32 %r1, 0; L: mov.b32 %r1, 1; @%p1 bra A; mov.b32 %r1, 2; A: mov.b32 %r1, 3; @%p2 bra B; bra L; B: bra L;"
    )
    assert meetings(body) == {"@%p1 bra A": 4, "@%p2 bra B": 1}
    assert meetings("L: @%p1 bra L; bra L;") == {"@%p1 bra L": 0}


def test_lanes_caught_in_a_loop_for_ever_are_not_waited_for() -> None:
    assert meetings("@%p1 bra L; mov.b32 %r1, 1; ret; L: bra L;") == {"@%p1 bra L": -1}
    assert meetings("@%p1 bra L; @%p2 bra M; ret; L: bra L; M: bra M;") == {"@%p1 bra L": -1, "@%p2 bra M": -1}


def test_unreachable_code_is_analysed_like_any_other() -> None:
    body = "ret; @%p1 bra L; mov.b32 %r1, 1; L: @%p2 bra L; bra.uni M; M: bra M;"
    assert meetings(body) == {"@%p1 bra L": 3, "@%p2 bra L": 4}


def test_labels_repeated_in_inline_assembly() -> None:
    wait = "{ W: @%p1 bra D; bra W; D: }"
    parsed = function(wait + wait + "ret;")
    assert reconvergence(parsed) == [2, -1, 4, -1, -1]


def test_a_long_chain_of_branches_needs_no_stack() -> None:
    count = 5000
    body = "".join(f"@%p1 bra L{i}; mov.b32 %r1, {i}; L{i}: " for i in range(count)) + "ret;"
    where = reconvergence(function(body))
    assert where[::2] == [*(2 * i + 2 for i in range(count)), -1]


# Properties


def reaches(graph: list[list[int]], start: int, target: int, without: int | None) -> bool:
    seen, stack = {start}, [start]
    while stack:
        node = stack.pop()
        if node == target:
            return True
        for other in graph[node] if node != EXIT else ():
            if other != without and other not in seen:
                seen.add(other)
                stack.append(other)
    return False


def brute_force(graph: list[list[int]], node: int) -> int:
    """The immediate post-dominator of a node from which the exit can be reached and nothing else goes on for ever."""
    strict = [d for d in range(len(graph)) if d != node and not reaches(graph, node, EXIT, d)]
    for candidate in strict:  # the nearest: all others post-dominate it
        if all(other == candidate or not reaches(graph, candidate, EXIT, other) for other in strict):
            return candidate
    return EXIT


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 12))
    node = st.integers(EXIT, size - 1)
    return [draw(st.lists(node, min_size=1, max_size=3, unique=True)) for _ in range(size)]


@given(graphs())
def test_post_dominators_agree_with_the_definition(graph: list[list[int]]) -> None:
    found = post_dominators(graph)
    assert len(found) == len(graph)
    for node in range(len(graph)):
        onward = [other for other in range(len(graph)) if reaches(graph, node, other, None)]
        if all(reaches(graph, other, EXIT, None) for other in onward):
            assert found[node] == brute_force(graph, node)


@given(graphs())
def test_lanes_that_wait_are_always_met(graph: list[list[int]]) -> None:
    """Wherever lanes wait for others, all ways from the branch lead there, even those that never leave."""
    found = post_dominators(graph)
    for node, where in enumerate(found):
        if where == EXIT:
            continue
        for first in graph[node]:
            assert first == where or reaches(graph, first, where, None)
            # cut the meeting place out: no exit and no endless loop may be left to run into
            assert not reaches(graph, first, EXIT, where) or first == where
            left = {n for n in range(len(graph)) if n != where and first != where and reaches(graph, first, n, where)}
            assert not any(reaches_itself(graph, n, where) and not can_leave(graph, n, where) for n in left)


def reaches_itself(graph: list[list[int]], node: int, without: int) -> bool:
    return any(other not in (without, EXIT) and reaches(graph, other, node, without) for other in graph[node])


def can_leave(graph: list[list[int]], node: int, target: int) -> bool:
    return reaches(graph, node, target, None)


@given(st.lists(st.sampled_from(["op", "bra", "guarded", "ret", "guarded ret", "trap"]), max_size=30), st.data())
def test_any_body_is_analysed(shape: list[str], data: st.DataObject) -> None:
    lines = []
    for index, kind in enumerate(shape):
        target = data.draw(st.integers(0, len(shape)))
        text = {
            "op": "mov.b32 %r1, 1;",
            "bra": f"bra L{target};",
            "guarded": f"@%p1 bra L{target};",
            "ret": "ret;",
            "guarded ret": "@%p1 ret;",
            "trap": "trap;",
        }[kind]
        lines.append(f"L{index}: {text}")
    parsed = function("\n".join([*lines, f"L{len(shape)}:"]))
    where = reconvergence(parsed)
    starts = {block.first for block in blocks(parsed)}
    assert len(where) == len(shape)
    for index, meeting in enumerate(where):
        assert meeting == -1 or meeting in starts
        assert meeting == -1 or parsed.body[index].guard is not None


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_small_graph(size: int) -> None:
    """All graphs of up to three nodes with up to two ways on, not only those that a generator happens to think of."""
    nodes = range(EXIT, size)
    ways = [[a] for a in nodes] + [[a, b] for a, b in itertools.combinations(nodes, 2)]
    for graph in itertools.product(ways, repeat=size):
        edges = list(graph)
        found = post_dominators(edges)
        for node in range(size):
            onward = [other for other in range(size) if reaches(edges, node, other, None)]
            if all(reaches(edges, other, EXIT, None) for other in onward):
                assert found[node] == brute_force(edges, node), edges
