"""Functions that call themselves, directly or by others: a frame a call, in local memory.

A set of functions that call one another is put once into the place of a call from outside. Within it a call keeps the
caller's registers, moves a hidden pointer to the callee's frame and branches to the callee's first instruction; `ret`
branches to what follows the call whose number is in the frame. A frame has that number, the parameters and results, and
the .local and .param variables of the function, so that a pointer to a caller's variable stays good. Registers are kept
by the machine, and take no room in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fmha.emulator._core import CALL_PARAMS
from fmha.emulator.ptx import Function, Parameter, Register, Variable

STACK_BYTES = 16384  # a thread's; a call that needs more is out of bounds
STACK = "%frames"
_FIRST = 8  # bytes of the number of the call, and a gap
_ALIGN = 16


@dataclass(frozen=True, slots=True)
class Framed:
    """A variable of a frame: where it lies behind the pointer, of its own state space."""

    pointer: Register
    offset: int


@dataclass(slots=True)
class Frame:
    """What calls of one function need, within one place of calls from outside."""

    pointer: Register
    size: int
    variables: dict[str, Framed]  # by the function's own names
    entry: str
    end: str
    returns: list[str] = field(default_factory=list)  # labels, by the number of the call


def stack_variable() -> Variable:
    """The variable of local memory that is a function's stack."""
    return Variable(STACK, "local", "b8", STACK_BYTES, STACK_BYTES, _ALIGN)


def lay_out(function: Function, pointer: Register, prefix: str) -> Frame:
    """The frame of `function`; `prefix` makes its labels unique."""
    places: dict[str, Framed] = {}
    end = _FIRST
    everything: tuple[Parameter | Variable, ...] = (*function.params, *function.returns, *function.variables.values())
    for variable in everything:
        if variable.space not in ("local", "param"):
            continue
        end = -(-end // variable.align) * variable.align
        places[variable.name] = Framed(pointer, end + CALL_PARAMS * (variable.space == "param"))
        end += variable.nbytes
    return Frame(pointer, -(-end // _ALIGN) * _ALIGN, places, prefix + "entry", prefix + "ret")


class CallGraph:
    """Which functions may come to call themselves."""

    def __init__(self, callees: Callable[[str], Iterable[str]]) -> None:
        self._callees = callees
        self._reached: dict[str, frozenset[str]] = {}

    def _from(self, name: str) -> frozenset[str]:
        """What calls lead to from `name`."""
        known = self._reached.get(name)
        if known is None:
            seen: set[str] = set()
            todo = [name]
            while todo:
                fresh = set(self._callees(todo.pop())) - seen
                seen |= fresh
                todo += fresh
            known = self._reached[name] = frozenset(seen)
        return known

    def together(self, name: str) -> frozenset[str]:
        """The functions that `name` calls and that call it, itself among them; none if it is not recursive."""
        reached = self._from(name)
        if name not in reached:
            return frozenset()
        return frozenset(other for other in reached if name in self._from(other))
