"""Mutants of barriers that are proven redundant.

Deleted ones separate what one warp does, or only fences follow; one under another number changes its name alone.

The first proof of a deleted barrier B. Three barriers A, B, C of the same threads stand in straight-line code. Without
B, the operations between A and B are no longer ordered before those between B and C, and no other pair loses its order:
A and C still order the rest. If one warp performs all of both, in program order, no two warps lose anything. What that
warp's lanes do to each other is none of it where the operations are arrivals on mbarriers and the issue of asynchronous
work: neither reads or writes memory that the issuing threads share. That only one warp performs them is seen by running
the kernel with a trap for all others, under every schedule of the plan.

The second. Between B and C, in straight-line code, every thread executes fence.proxy.async and nothing else. With B, a
fence covers what all threads wrote before B; without it, each thread's own fence covers what it wrote, and C hands that
on to whoever comes after.

The third, of a barrier under another number, is that no other instruction names that number. Those who meet there are
those who execute this instruction, and the mutant's runs end, so they are as many as it waits for: the same as before.
"""

from __future__ import annotations

import re
from dataclasses import replace

from fmha.emulator.device import load_ptx
from fmha.emulator.mutation.notice import Launch, MutantOutcome, Plan
from fmha.emulator.mutation.statements import PtxSource, statement_of
from fmha.emulator.ptx import Function, Instruction

ONE_WARP = "proven: between the barriers around it, one warp issues asynchronous work and nobody accesses memory"
ONLY_FENCES = "proven: every thread executes fence.proxy.async between it and the next barrier, and nothing else"
RENAMED = "proven: no other instruction names the new number, so the same threads meet under it"

_BARRIER = re.compile(r"(bar|barrier)\.sync\b")
_REGISTERS = re.compile(
    r"(abs|add|and|bfe|bfi|brev|clz|cvt|cvta|div|elect|ex2|fma|lg2|lop3|mad|mapa|max|min|mov|mul|neg|not|or|popc|prmt"
    r"|rcp|redux|rem|rsqrt|selp|set|setp|shf|shfl|shl|shr|slct|sqrt|sub|tanh|vote|xor)(\.|$)|ld\.param\b"
)
_ISSUES = re.compile(
    r"mbarrier\.(arrive|expect_tx)\b|cp\.async\.bulk\.tensor\.\dd\.shared\b|cp\.async\.bulk\.shared\b"
    r"|tcgen05\.(mma|commit)\b"
)


def steps_to_barrier(function: Function, at: int, step: int) -> tuple[Instruction, ...] | None:
    """From the barrier `body[at]` to the next one of the same threads, registers aside: None unless there is one in
    straight-line code. `step`: 1 forwards, -1 backwards."""
    body, barrier = function.body, function.body[at]
    steps: list[Instruction] = []
    k = at + step
    # A label between two instructions has the index of the second.
    while 0 <= k < len(body) and (k if step > 0 else k + 1) not in function.labels.values():
        found = body[k]
        if _BARRIER.match(found.mnemonic):
            same = found.guard is None and statement_of(found.text) == statement_of(barrier.text)
            return tuple(steps) if same else None
        if not _REGISTERS.match(found.mnemonic):
            steps.append(found)
        k += step
    return None


def _only_fences(steps: tuple[Instruction, ...]) -> bool:
    return all(x.guard is None and x.mnemonic.startswith("fence.proxy.async") for x in steps)


def _is_named_alone(function: Function, number: int) -> bool:
    """Whether no barrier of the CTA, bar.arrive and bar.red included, has this number."""
    for x in function.body:
        if x.opcode == "call":
            return False
        if x.opcode not in ("bar", "barrier") or "cluster" in x.modifiers or "warp" in x.modifiers:
            continue
        name = statement_of(x.text).operands[0]
        if not name.isdigit() or int(name) == number:
            return False
    return True


def trapping_others(ptx: str, steps: tuple[Instruction, ...]) -> str:
    """The module in which a step traps in every warp but the first."""
    source = PtxSource(ptx)
    changes: list[tuple[tuple[int, int], str]] = []
    for instruction in steps:
        span = source.span(instruction)
        assert span is not None
        s = statement_of(instruction.text)
        guard = s.guard.strip().removeprefix("@")
        lines = ["{ .reg .pred %other, %here; .reg .b32 %mutated;", "mov.u32 %mutated, %warpid;"]
        lines.append("setp.ne.u32 %other, %mutated, 0;")
        if guard:
            lines.append(f"{'not' if guard.startswith('!') else 'mov'}.pred %here, {guard.removeprefix('!')};")
            lines.append("and.pred %other, %other, %here;")
        lines.append(f"@%other trap; {s} }}")
        changes.append((span, " ".join(lines)))
    text = ptx
    for span, replacement in sorted(changes, reverse=True):
        text = PtxSource(text).replaced(span, replacement)
    return text


def check_separation(outcome: MutantOutcome, ptx: str, function: Function, launch: Launch, plan: Plan) -> MutantOutcome:
    """A survivor that deletes or renames a barrier becomes "redundant" when one of the proofs holds."""
    m = outcome.mutant
    if outcome.status != "survived" or m.what not in ("deleted", "barrier +1"):
        return outcome
    at = next(k for k, x in enumerate(function.body) if (x.line, x.text) == (m.line, m.text))
    barrier = function.body[at]
    if barrier.guard is not None or not _BARRIER.match(barrier.mnemonic):
        return outcome
    if m.what == "barrier +1":
        name = statement_of(m.text).operands[0]
        proven = name.isdigit() and _is_named_alone(function, int(name) + 1)
        return replace(outcome, status="redundant", by=RENAMED) if proven else outcome
    before, after = steps_to_barrier(function, at, -1), steps_to_barrier(function, at, 1)
    if after is not None and _only_fences(after):
        return replace(outcome, status="redundant", by=ONLY_FENCES)
    if before is None or after is None or not all(_ISSUES.match(x.mnemonic) for x in before + after):
        return outcome
    steps = before + after
    module = load_ptx(trapping_others(ptx, steps))
    if any("trap" in launch(module, schedule, seed).rules for schedule, seed in plan):
        return outcome
    return replace(outcome, status="redundant", by=ONE_WARP)
