"""What is decoded, found by asking: a decoder that is a function is walked through every choice that it makes.

A row of the table says what it takes. Of a function nothing is written down a second time: it gets modifiers that
answer its questions, one way and then the other, and what it has taken when it says that it is done is supported.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import NoReturn, TypeVar

from fmha.emulator._core import TYPES
from fmha.emulator.decode.builder import Builder, Symbols
from fmha.emulator.decode.modifiers import Modifiers
from fmha.emulator.ptx import Function, Instruction, ParsedModule, PtxError

T = TypeVar("T")
Decoder = Callable[[Builder, Modifiers], None]
Goal = tuple[object, int]  # a question and an answer to it
_TRIES = 256  # of one answer to one question, among whatever others, before it counts as refused


class _AllTakenError(Exception):
    """The decoder has all its modifiers."""


class _ContradictionError(Exception):
    """A modifier is needed that was said to be absent, or nobody takes one that was said to be there."""


class _Answers(Modifiers):
    """The modifiers of an instruction that is made up as questions come: `script` has the answers, then all are 0."""

    def __init__(self, instruction: Instruction, script: list[int], parts: frozenset[str]) -> None:
        super().__init__(instruction)
        self._script = script
        self._parts = parts
        self._there: dict[str, bool] = {}  # what was said
        self.taken: list[str] = []
        self.asked: list[tuple[object, int, int]] = []  # the question, how many answers it has, the one that it got

    def _answer(self, about: Iterable[str | None], count: int) -> int:
        """A question is about names, at a place of the decoder."""
        place = len(self.asked)
        answer = self._script[place] if place < len(self._script) else 0
        frame, where = sys._getframe(2), []
        while frame is not None and frame.f_globals["__name__"] != __name__:
            where.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]
        self.asked.append(((tuple(where), tuple(about), self._parts.intersection(self.taken)), count, answer))
        return answer

    def _takes(self, name: str) -> None:
        self._there[name] = True
        self.taken.append(name)

    def take(self, *names: str) -> bool:
        for name in names:
            if self._there.get(name) and name not in self.taken:
                self._takes(name)
                return True
        free = [name for name in names if name not in self._there]
        answer = self._answer(free, len(free) + 1) if free else 0
        self._there.update(dict.fromkeys(free, False))
        if answer:
            self._takes(free[answer - 1])
        return answer > 0

    def has(self, name: str) -> bool:
        if name not in self._there:
            self._there[name] = self._answer((name,), 2) > 0
        return self._there[name] and name not in self.taken

    def those(self, *names: str) -> list[str]:
        ways = [[], *([name] for name in names), *map(list, permutations(names, 2))]
        chosen = ways[self._answer(names, len(ways))]
        self._there.update({name: name in chosen for name in names})
        return chosen

    def need(self, *names: str) -> None:
        for name in names:
            if self._there.get(name) is False:
                raise _ContradictionError
            self._takes(name)

    def choose(self, table: Mapping[str, T], default: T | None = None) -> T:
        for name in table:
            if self._there.get(name) and name not in self.taken:
                self._takes(name)
                return table[name]
        # One that is taken may be there again, as the types of matrices are.
        free: list[str | None] = [name for name in table if self._there.get(name, True)]
        if default is not None:
            free.insert(0, None)
        if not free:
            raise _ContradictionError
        chosen = free[self._answer(free, len(free))]
        if chosen is None:
            assert default is not None
            self._there.update({name: False for name in free if name})
            return default
        self._takes(chosen)
        return table[chosen]

    def type(self, allowed: Iterable[str] | None = None) -> str:
        names = [name for name in (TYPES if allowed is None else allowed) if name != "none"]
        chosen = names[self._answer(names, len(names))]
        self.taken.append(chosen)
        return chosen

    def done(self) -> NoReturn:
        if any(there and name not in self.taken for name, there in self._there.items()):
            raise _ContradictionError
        raise _AllTakenError


@dataclass
class Supported:
    """What a decoder takes: names in the order in which it asks for them, and what it says of what it refuses."""

    ways: list[tuple[str, ...]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def supported(opcode: str, decoder: Decoder, parts: Iterable[str] = (), target: str = "sm_100a") -> Supported:
    """Ways through `decoder`, in a module for `target`: each answer to each question is in one, if it is in any that a
    search finds. `parts` are modifiers that make other instructions of an opcode: each has its own questions."""
    found = Supported()
    accepted: set[Goal] = set()
    tried: Counter[Goal] = Counter()
    pending: deque[tuple[list[int], tuple[Goal, ...]]] = deque([([], ())])
    while pending:
        script, goals = pending.popleft()
        wanted = tuple(goal for goal in goals if goal not in accepted and tried[goal] < _TRIES)
        if goals and not wanted:
            continue
        tried.update(wanted)
        answers, refusal = _walk(opcode, decoder, script, frozenset(parts), target)
        if refusal is None:
            found.ways.append(tuple(answers.taken))
            accepted.update((question, answer) for question, _, answer in answers.asked)
            wanted = ()
        elif refusal:
            found.refusals.append(refusal)
        given = [answer for _, _, answer in answers.asked]
        for place in range(len(script), len(given)):
            question, count, _ = answers.asked[place]
            # After a refusal, what was wanted may still be had with another answer here.
            pending.extend(
                ([*given[:place], other], (*wanted, (question, other)))
                for other in range(count)
                if other != given[place]
            )
    return found


def _walk(
    opcode: str, decoder: Decoder, script: list[int], parts: frozenset[str], target: str
) -> tuple[_Answers, str | None]:
    """With what the decoder refuses: None where it comes to its end, empty where answers contradict each other."""
    instruction = Instruction(opcode, (), (), None, 0, opcode, None)
    answers = _Answers(instruction, script, parts)
    function = Function(opcode, True, True, False, (), (), (), {}, {}, {}, {}, 0)
    builder = Builder(ParsedModule((9, 0), target, 64, {}, {}, {}, ""), function, Symbols())
    builder.begin(instruction, 0)
    try:
        decoder(builder, answers)
    except _AllTakenError:
        return answers, None
    except _ContradictionError:
        return answers, ""
    except PtxError as error:
        return answers, error.message
    raise AssertionError(f"{opcode} is decoded without a look at what is left of its modifiers")
