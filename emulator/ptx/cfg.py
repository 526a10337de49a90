"""The control-flow graph of a function, and where divergent lanes meet again.

A block's successors are block numbers; `EXIT` is leaving the function: `ret`, `exit`, `trap`, the end of the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fmha.emulator.ptx.parsed_module import Function, Instruction, LabelRef

EXIT = -1
_LEAVING = frozenset(("ret", "exit", "trap"))


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that are executed one after the other, whatever happens."""

    first: int  # index into Function.body
    end: int  # one past the last
    successors: tuple[int, ...]  # without duplicates; a guarded branch: the target, then the next block


def _targets(function: Function, instruction: Instruction) -> list[int]:
    """The body indices an instruction may jump to, `len(body)` for leaving."""
    end = len(function.body)
    if instruction.opcode == "bra":
        label = instruction.operands[0]
        assert isinstance(label, LabelRef)
        return [function.labels[label.name]]
    if instruction.opcode == "brx":
        table = instruction.operands[-1]
        assert isinstance(table, LabelRef)
        return [function.labels[name] for name in function.branch_targets[table.name]]
    return [end]


def _ends_block(instruction: Instruction) -> bool:
    return instruction.opcode in ("bra", "brx") or instruction.opcode in _LEAVING


def blocks(function: Function) -> list[Block]:
    """The basic blocks in the order of the body; empty for an empty body."""
    body = function.body
    leaders = {0, *(index for index in function.labels.values())}
    leaders.update(index + 1 for index, instruction in enumerate(body) if _ends_block(instruction))
    starts = sorted(index for index in leaders if index < len(body))
    number = {index: position for position, index in enumerate(starts)}
    result = []
    for position, first in enumerate(starts):
        end = starts[position + 1] if position + 1 < len(starts) else len(body)
        last = body[end - 1]
        following = _targets(function, last) if _ends_block(last) else [end]
        if _ends_block(last) and last.guard is not None:
            following.append(end)
        successors = dict.fromkeys(number.get(index, EXIT) for index in following)
        result.append(Block(first, end, tuple(successors)))
    return result


def _order(nodes: Iterable[int], edges: Sequence[Sequence[int]], seen: list[bool]) -> list[int]:
    """Depth-first postorder from `nodes`, over what is not yet `seen`."""
    order: list[int] = []
    for root in nodes:
        if seen[root]:
            continue
        seen[root] = True
        stack = [(root, 0)]
        while stack:
            node, position = stack.pop()
            if position < len(edges[node]):
                stack.append((node, position + 1))
                following = edges[node][position]
                if not seen[following]:
                    seen[following] = True
                    stack.append((following, 0))
            else:
                order.append(node)
    return order


def _reverse(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    reverse: list[list[int]] = [[] for _ in edges]
    for node, following in enumerate(edges):
        for other in following:
            reverse[other].append(node)
    return reverse


def _open_infinite_loops(edges: list[list[int]], leave: int) -> list[int]:
    """Give every loop without a way out an edge to `leave`. Adds nodes to `edges`; the node that each stands before.

    The edge starts at a new node put before the loop's header, its first block in reverse postorder: so lanes that part
    within the loop meet at its header, and lanes of which only some enter the loop do not wait for one another.
    """
    forward = _order(range(len(edges)), edges, [False] * len(edges))
    reverse = _reverse(edges)
    seen = [False] * len(edges)
    component = [0] * len(edges)
    headers = []
    for header in reversed(forward):  # Kosaraju's algorithm: `members` is a strongly connected component
        members = _order([header], reverse, seen)
        for node in members:
            component[node] = header
        if members:
            headers.append((header, members))
    added = []
    for header, members in headers:
        if header == leave or any(component[other] != header for node in members for other in edges[node]):
            continue
        for node in reverse[header]:
            edges[node] = [len(edges) if other == header else other for other in edges[node]]
        edges.append([header, leave])
        added.append(header)
    return added


def _immediate_dominators(edges: Sequence[Sequence[int]], reverse: Sequence[Sequence[int]], root: int) -> list[int]:
    """Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm". Every node must be reachable from `root`."""
    order = _order([root], edges, [False] * len(edges))
    position = [0] * len(edges)
    for place, node in enumerate(order):
        position[node] = place
    dominator = [-1] * len(edges)
    dominator[root] = root
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            best = -1
            for other in reverse[node]:
                if dominator[other] < 0:
                    continue
                if best < 0:
                    best = other
                    continue
                while best != other:
                    while position[best] < position[other]:
                        best = dominator[best]
                    while position[other] < position[best]:
                        other = dominator[other]
            if dominator[node] != best:
                dominator[node] = best
                changed = True
    return dominator


def post_dominators(successors: Sequence[Sequence[int]]) -> list[int]:
    """For each node of a graph whose node 0 is the entry: its immediate post-dominator, or EXIT.

    In a loop that never ends, this is the loop's header for a node that no other post-dominates, even for the header
    itself. Of a node from which some paths end in such a loop and some leave, it is EXIT where they part for good.
    """
    leave = len(successors)
    edges = [[leave if other == EXIT else other for other in following] for following in successors]
    edges.append([])
    added = _open_infinite_loops(edges, leave)
    dominators = _immediate_dominators(_reverse(edges), edges, leave)
    names = [*range(leave), EXIT, *added]
    return [names[dominators[node]] for node in range(leave)]


def reconvergence(function: Function) -> list[int]:
    """For each instruction that ends a block with more than one successor, the body index where its lanes meet again.

    That is the first instruction of the immediate post-dominator. -1 where that is the function's exit, and for all
    other instructions.
    """
    result = [-1] * len(function.body)
    graph = blocks(function)
    meeting = post_dominators([block.successors for block in graph])
    for block, where in zip(graph, meeting, strict=True):
        if len(block.successors) > 1 and where != EXIT:
            result[block.end - 1] = graph[where].first
    return result
