"""Calls, by putting the callee's body in place of each: fresh registers, labels and local memory a call site.

The call ABI of PTX (7.1) passes parameters in .param variables that the caller declares. A parameter of the callee is
such a variable under another name, so nothing is copied. `ret` in a callee is a branch to what follows the call. Calls
of vprintf, __assertfail, malloc and free become instructions of their own. Functions that call themselves have a stack
(frames.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from fmha.emulator.decode.builder import function_address, width_of
from fmha.emulator.decode.control.device_runtime import REFUSED, STEPS, at_call, with_runtime
from fmha.emulator.decode.control.frames import (
    STACK,
    STACK_BYTES,
    CallGraph,
    Frame,
    Framed,
    lay_out,
    stack_variable,
)
from fmha.emulator.ptx import (
    Address,
    CallOperands,
    Function,
    GuardPredicate,
    Immediate,
    Instruction,
    LabelRef,
    Negated,
    Operand,
    Parameter,
    ParsedModule,
    PredicatePair,
    PtxError,
    Register,
    Selected,
    Sink,
    SymbolRef,
    TensorAddress,
    Variable,
    Vector,
)

_MOST_INSTRUCTIONS = 300_000  # of expanded bodies: a gigabyte of them here
_MOST_SITES = 100_000  # calls of functions that do nothing but call expand to no instruction
_MOST_NESTED = 100
_MOST_CALLEES = 32


@dataclass(frozen=True, slots=True)
class _Builtin:
    """A function that the driver answers: the instruction that a call becomes, its parameters and its result."""

    opcode: str
    params: tuple[str, ...]
    result: str = ""


_BUILTINS = {
    "vprintf": _Builtin("%vprintf", ("b64", "b64"), "b32"),
    "__assertfail": _Builtin("%assertfail", ("b64", "b64", "b32", "b64")),  # those that are used
    "malloc": _Builtin("%malloc", ("b64",), "b64"),
    "free": _Builtin("%free", ("b64",)),
    **{f"__fmha_{name}": _Builtin(f"%device.{name}", *step) for name, step in STEPS.items()},
}


@dataclass(frozen=True, slots=True)
class Inlined:
    """An entry with no call left. `framed`: the variables of recursive functions, by their unique names."""

    function: Function
    framed: Mapping[str, Framed]


def inline_calls(module: ParsedModule, entry: Function) -> Inlined:
    """Raises PtxError for unknown functions, open sets of callees, and what expands to too much."""
    if all(i.opcode != "call" for i in entry.body):
        return Inlined(entry, {})
    return _Inliner(module, entry).result()


class _Recursion:
    """One call of a recursive function from outside: the frames of all that call one another there."""

    def __init__(self, pointer: Register, members: frozenset[str]) -> None:
        self.pointer = pointer
        self.members = members
        self.bodies: dict[str, tuple[_Names, Frame]] = {}  # by function, in the order in which they are first called


class _Inliner:
    def __init__(self, module: ParsedModule, entry: Function) -> None:
        self.module = module
        self.entry = entry
        self.body: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.variables: dict[str, Variable] = {}
        self.branch_targets: dict[str, tuple[str, ...]] = {}
        self.framed: dict[str, Framed] = {}
        self.keeping: list[tuple[int, _Names]] = []  # instructions that keep or restore all registers of a function
        self.calls = CallGraph(self._callees)
        self.sites = 0

    def result(self) -> Inlined:
        self.copy(self.entry, _Names("", {}), (self.entry.name,), "")
        for index, names in self.keeping:
            at = self.body[index]
            self.body[index] = replace(at, operands=(*at.operands, Vector(tuple(names.registers.values()))))
        function = replace(
            self.entry,
            body=tuple(self.body),
            labels=self.labels,
            variables=self.variables,
            branch_targets=self.branch_targets,
        )
        return Inlined(function, self.framed)

    def _callees(self, name: str) -> Iterator[str]:
        function = self.module.functions[name]
        for instruction in function.body:
            if instruction.opcode != "call":
                continue
            call = instruction.operands[0]
            assert isinstance(call, CallOperands)
            direct = isinstance(call.target, SymbolRef)
            found = [call.target.name] if direct else self._candidates(function, instruction, call)
            yield from (other for other in found if self._defined(other))

    def copy(self, function: Function, names: _Names, active: tuple[str, ...], end: str) -> None:
        """Appends a body. `end`: the label that stands for leaving it, empty for the entry's own body."""
        for variable in function.variables.values():
            self._declare(function, variable, names)
        for label, targets in function.branch_targets.items():
            self.branch_targets[names.label(label)] = tuple(names.label(t) for t in targets)
        start: list[int] = []
        for index, instruction in enumerate(function.body):
            start.append(len(self.body))
            if instruction.opcode == "call":
                self._call(function, instruction, names, active)
            elif instruction.opcode == "ret" and end:
                if index + 1 < len(function.body) or instruction.guard:
                    self._emit(instruction, names, "bra", (LabelRef(end),))
            else:
                operands = tuple(names.operand(x) for x in instruction.operands)
                self.body.append(replace(instruction, operands=operands, guard=names.guard(instruction.guard)))
            if end and len(self.body) > _MOST_INSTRUCTIONS + len(self.entry.body):
                raise PtxError(
                    "calls expand to more instructions than are modelled", instruction.line, instruction.text
                )
        start.append(len(self.body))
        for label, index in function.labels.items():
            self.labels[names.label(label)] = start[index]

    def _declare(self, function: Function, variable: Variable, names: _Names) -> None:
        """Shared variables of a function are one for all its call sites; the others belong to the site, or to the frame
        of a recursive function."""
        if names.member and variable.name in names.symbols:
            return
        unique = f"{function.name}::{variable.name}" if variable.space == "shared" else names.prefix + variable.name
        if function is self.entry:
            unique = variable.name
        names.symbols[variable.name] = unique
        self.variables[unique] = replace(variable, name=unique)

    def _emit(
        self,
        at: Instruction,
        names: _Names,
        mnemonic: str,
        operands: tuple[Operand, ...],
        guard: GuardPredicate | None = None,
    ) -> None:
        """An instruction that stands at `at`, under its guard unless one is given."""
        opcode, *modifiers = mnemonic.split(".")
        guard = guard or names.guard(at.guard)
        self.body.append(Instruction(opcode, tuple(modifiers), operands, guard, at.line, at.text, at.location))

    def _call(self, function: Function, at: Instruction, names: _Names, active: tuple[str, ...]) -> None:
        call = at.operands[0]
        assert isinstance(call, CallOperands)
        self.sites += 1
        if self.sites > _MOST_SITES or len(active) > _MOST_NESTED:
            message = f"calls expand to more than {_MOST_SITES} or nest more than {_MOST_NESTED} deep"
            raise PtxError(f"{message}, which is not modelled", at.line, at.text)
        site = f"call{self.sites}."
        if isinstance(call.target, SymbolRef) and call.target.name in _BUILTINS and not self._defined(call.target.name):
            self._builtin(at, call, names, site)
            return
        after = site + "after"
        if at.guard is not None:
            over = GuardPredicate(names.register(at.guard.register), not at.guard.negated)
            self._emit(at, names, "bra", (LabelRef(after),), over)
        at = replace(at, guard=None)
        if isinstance(call.target, SymbolRef):
            self._expand(at, self._callee(at, call.target.name), call, names, active, site)
        else:
            self._indirect(function, at, call, names, active, site)
        self.labels[after] = len(self.body)

    def _defined(self, name: str) -> bool:
        return name in self.module.functions and self.module.functions[name].defined

    def _callee(self, at: Instruction, name: str) -> Function:
        if not self._defined(name):
            why = REFUSED.get(name, "which has no body and is not modelled")
            raise PtxError(f"call of {name}, {why}", at.line, at.text)
        return at_call(self.module.functions[name], at)

    def _indirect(
        self, function: Function, at: Instruction, call: CallOperands, names: _Names, active: tuple[str, ...], site: str
    ) -> None:
        """Compares the address with that of each function it may be."""
        target, hit = names.register(call.target), Register(f"%{site}hit", "pred")
        for number, name in enumerate(self._candidates(function, at, call)):
            callee = self._callee(at, name)
            branch = f"{site}{number}."
            self._emit(at, names, "setp.eq.b64", (hit, target, SymbolRef(callee.name)))
            self._emit(at, names, "bra", (LabelRef(branch + "next"),), GuardPredicate(hit, True))
            self._expand(at, callee, call, names, active, branch)
            self._emit(at, names, "bra", (LabelRef(site + "after"),))
            self.labels[branch + "next"] = len(self.body)
        self._emit(at, names, "%nocallee", ())

    def _candidates(self, function: Function, at: Instruction, call: CallOperands) -> list[str]:
        if call.prototype in function.call_targets:
            return list(function.call_targets[call.prototype])
        prototype = function.prototypes.get(call.prototype or "")
        if prototype is None:
            raise PtxError("an indirect call without a prototype", at.line, at.text)
        shape = _sizes(prototype.returns), _sizes(prototype.params)
        found = [
            name
            for name in dict.fromkeys(_address_taken(self.module))
            if self._defined(name)
            and (_sizes(self.module.functions[name].returns), _sizes(self.module.functions[name].params)) == shape
        ]
        if len(found) > _MOST_CALLEES:
            raise PtxError(f"an indirect call with {len(found)} possible callees is not modelled", at.line, at.text)
        return found

    def _expand(
        self,
        at: Instruction,
        callee: Function,
        call: CallOperands,
        names: _Names,
        active: tuple[str, ...],
        site: str,
    ) -> None:
        if len(call.args) != len(callee.params) or len(call.returns) != len(callee.returns):
            message = f"{callee.name} takes {len(callee.params)} parameters and gives {len(callee.returns)}"
            raise PtxError(message, at.line, at.text)
        if self.calls.together(callee.name):
            self._recurse(at, callee, call, names, active, site)
            return
        inner = _Names(names.prefix + site, {}, names.recursion, names.frame)
        for parameter, argument in zip(callee.params, call.args, strict=True):
            self._pass(at, parameter, names.operand(argument), inner, into=True)
        results = []
        for parameter, argument in zip(callee.returns, call.returns, strict=True):
            if not self._pass(at, parameter, names.operand(argument), inner, into=False):
                results.append((parameter, names.operand(argument)))
        end = inner.prefix + "ret"
        frame = Register(f"%{site}stack", "b64")
        allocates = any(i.opcode == "alloca" for i in callee.body)
        if allocates:
            self._emit(at, inner, "stacksave.b64", (frame,))
        self.copy(callee, inner, (*active, callee.name), end)
        self.labels[end] = len(self.body)
        if allocates:
            self._emit(at, inner, "stackrestore.b64", (frame,))
        for parameter, argument in results:
            self._emit(at, names, *_move_out(parameter, argument, inner))

    def _pass(self, at: Instruction, parameter: Parameter, argument: Operand, inner: _Names, into: bool) -> bool:
        """Binds a parameter to its argument; False when a result is still to be moved out after the body."""
        if parameter.space == "reg":
            register = inner.register(Register(parameter.name, parameter.type))
            if into:
                self._emit(at, inner, f"mov.{_bits(parameter)}", (register, argument))
            return into
        if isinstance(argument, SymbolRef):
            inner.symbols[parameter.name] = argument.name
            return True
        name = inner.prefix + parameter.name
        inner.symbols[parameter.name] = name
        elements = parameter.nbytes
        self.variables[name] = Variable(name, "param", "b8", elements, elements, parameter.align)
        if into:
            self._emit(at, inner, f"st.param.{_bits(parameter)}", (Address(SymbolRef(name)), argument))
        return into or isinstance(argument, Sink)

    def _recurse(
        self, at: Instruction, callee: Function, call: CallOperands, names: _Names, active: tuple[str, ...], site: str
    ) -> None:
        """A call of a function that may call itself: from within its recursion a branch to its body, from outside the
        bodies of all that call one another, behind that branch."""
        outer = names.recursion
        if outer and callee.name in outer.members:
            self._activate(at, callee, call, names, site, outer)
            return
        recursion = _Recursion(Register(f"%{site}frame", "b64"), self.calls.together(callee.name))
        if outer and names.frame:
            above = (recursion.pointer, outer.pointer, Immediate(names.frame.size))
            self._emit(at, names, "add.u64", above)
        else:
            self.variables.setdefault(STACK, stack_variable())
            self._emit(at, names, "mov.b64", (recursion.pointer, SymbolRef(STACK)))
        self._activate(at, callee, call, names, site, recursion, lambda: self._place_bodies(at, recursion, active))

    def _body_of(self, callee: Function, recursion: _Recursion) -> tuple[_Names, Frame]:
        known = recursion.bodies.get(callee.name)
        if known is None:
            prefix = f"{recursion.pointer.name[1:]}.{callee.name}."
            frame = lay_out(callee, recursion.pointer, prefix)
            inner = _Names(prefix, {name: prefix + name for name in frame.variables}, recursion, frame, True)
            self.framed.update((prefix + name, place) for name, place in frame.variables.items())
            known = recursion.bodies[callee.name] = inner, frame
        return known

    def _activate(
        self,
        at: Instruction,
        callee: Function,
        call: CallOperands,
        names: _Names,
        site: str,
        recursion: _Recursion,
        place_bodies: Callable[[], None] | None = None,
    ) -> None:
        """Fills a frame of `callee`, branches to its body, and takes the results from the frame. Temporary registers of
        the site hold what passes from frame to frame: nobody keeps those."""
        inner, frame = self._body_of(callee, recursion)
        within = place_bodies is None
        assert not within or names.frame
        step = Immediate(names.frame.size if within and names.frame else 0)
        passed = [self._take(at, f"%{site}in{n}", names.operand(x), names) for n, x in enumerate(call.args)]
        limit = SymbolRef(STACK, STACK_BYTES)
        self._keep(at, names, "%frame_push", (recursion.pointer, step, Immediate(frame.size), limit), within)
        number = Immediate(len(frame.returns))
        frame.returns.append(site + "back")
        self._emit(at, names, "st.local.u32", (Address(recursion.pointer), number))
        for parameter, value in zip(callee.params, passed, strict=True):
            self._give(at, f"%{site}{parameter.name}", _place_of(parameter, inner), value, parameter, names)
        self._emit(at, names, "bra", (LabelRef(frame.entry),))
        if place_bodies:
            place_bodies()
        self.labels[site + "back"] = len(self.body)
        results = []
        for n, (parameter, argument) in enumerate(zip(callee.returns, call.returns, strict=True)):
            if not isinstance(argument, Sink):
                value = self._take(at, f"%{site}out{n}", _place_of(parameter, inner), names)
                results.append((f"%{site}{parameter.name}", names.operand(argument), value, parameter))
        if within:
            self._keep(at, names, "%frame_pop", (recursion.pointer, step), True)
        for name, argument, value, parameter in results:
            self._give(at, name, argument, value, parameter, names)

    def _keep(
        self, at: Instruction, names: _Names, opcode: str, operands: tuple[Operand, ...], registers: bool
    ) -> None:
        if registers:
            self.keeping.append((len(self.body), names))
        self._emit(at, names, opcode, operands)

    def _take(self, at: Instruction, name: str, source: Operand, names: _Names) -> Operand | Address:
        """What passes, in a register that no frame has: a value, or the address of a .param variable."""
        if isinstance(source, Immediate):
            return source
        register = Register(name, source.type if isinstance(source, Register) else "b64")
        self._emit(at, names, f"mov.{_register_bits(register)}", (register, source))
        return register if isinstance(source, Register) else Address(register)

    def _give(
        self, at: Instruction, name: str, target: Operand, value: Operand | Address, parameter: Parameter, names: _Names
    ) -> None:
        """What `_take` took, to a register or a .param variable."""
        if isinstance(target, Register):
            opcode = "ld.param" if isinstance(value, Address) else "mov"
            self._emit(at, names, f"{opcode}.{_bits(parameter)}", (target, value))
        elif isinstance(value, Address):
            address = Register(name, "b64")
            self._emit(at, names, "mov.b64", (address, target))
            assert isinstance(value.base, Register)
            self._emit(at, names, "%local_copy", (address, value.base, Immediate(parameter.nbytes)))
        else:
            assert isinstance(target, SymbolRef)
            self._emit(at, names, f"st.param.{_bits(parameter)}", (Address(target), value))

    def _place_bodies(self, at: Instruction, recursion: _Recursion, active: tuple[str, ...]) -> None:
        placed: set[str] = set()
        while waiting := [name for name in recursion.bodies if name not in placed]:
            placed.add(waiting[0])
            self._place_body(at, self.module.functions[waiting[0]], *recursion.bodies[waiting[0]], active)
        for names, frame in recursion.bodies.values():
            self.branch_targets[names.label("returns")] = tuple(frame.returns)

    def _place_body(
        self, at: Instruction, function: Function, names: _Names, frame: Frame, active: tuple[str, ...]
    ) -> None:
        self.labels[frame.entry] = len(self.body)
        saved = names.register(Register("%stack", "b64"))
        allocates = any(i.opcode == "alloca" for i in function.body)
        if allocates:
            self._emit(at, names, "stacksave.b64", (saved,))
        self.copy(function, names, (*active, function.name), frame.end)
        self.labels[frame.end] = len(self.body)
        if allocates:
            self._emit(at, names, "stackrestore.b64", (saved,))
        number = Register(names.prefix + "%number", "b32")
        self._emit(at, names, "ld.local.u32", (number, Address(frame.pointer)))
        self._emit(at, names, "brx.idx", (number, LabelRef(names.label("returns"))))

    def _builtin(self, at: Instruction, call: CallOperands, names: _Names, site: str) -> None:
        assert isinstance(call.target, SymbolRef)
        builtin = _BUILTINS[call.target.name]
        values: list[Operand] = []
        for number, (type_name, argument) in enumerate(zip(builtin.params, call.args, strict=False)):
            value = Register(f"%{site}{number}", type_name)
            source = names.operand(argument)
            if isinstance(source, SymbolRef):
                self._emit(at, names, f"ld.param.{type_name}", (value, Address(SymbolRef(source.name))))
            values.append(value if isinstance(source, SymbolRef) else source)
        if len(values) != len(builtin.params):
            raise PtxError(f"{call.target.name} takes {len(builtin.params)} parameters or more", at.line, at.text)
        if not builtin.result:
            self._emit(at, names, builtin.opcode, tuple(values))
            return
        given = Register(f"%{site}result", builtin.result)
        self._emit(at, names, builtin.opcode, (given, *values))
        for result in call.returns:
            where = names.operand(result)
            if isinstance(where, SymbolRef):
                self._emit(at, names, f"st.param.{builtin.result}", (Address(SymbolRef(where.name)), given))
            elif isinstance(where, Register):
                self._emit(at, names, f"mov.{builtin.result}", (where, given))


def _bits(parameter: Parameter) -> str:
    return "pred" if parameter.type == "pred" else f"b{8 * parameter.nbytes}"


def _register_bits(register: Register) -> str:
    width = width_of(register.type)
    return "pred" if width == 1 else f"b{width}"


def _place_of(parameter: Parameter, inner: _Names) -> Register | SymbolRef:
    """Where a parameter of a recursive function is."""
    if parameter.space == "reg":
        return inner.register(Register(parameter.name, parameter.type))
    return SymbolRef(inner.symbols[parameter.name])


def _move_out(parameter: Parameter, argument: Operand, inner: _Names) -> tuple[str, tuple[Operand, ...]]:
    if parameter.space == "reg":
        return f"mov.{_bits(parameter)}", (argument, inner.register(Register(parameter.name, parameter.type)))
    return f"ld.param.{_bits(parameter)}", (argument, Address(SymbolRef(inner.symbols[parameter.name])))


def _sizes(parameters: tuple[Parameter, ...]) -> tuple[int, ...]:
    return tuple(p.nbytes for p in parameters)


def _address_taken(module: ParsedModule) -> Iterator[str]:
    """Functions named anywhere but as the target of a call."""
    for function in module.functions.values():
        for instruction in function.body:
            for operand in instruction.operands:
                for name in _named(operand):
                    if name in module.functions:
                        yield name
    for variable in module.variables.values():
        yield from (r.symbol for r in variable.relocations if r.symbol in module.functions)


def launchable(module: ParsedModule) -> dict[int, Function]:
    """The kernels that others may launch, by their addresses: those whose address is taken, and those of the device
    runtime."""
    module = with_runtime(module)
    taken = [module.functions[name] for name in dict.fromkeys(_address_taken(module))]
    return {function_address(module, f.name): f for f in taken if f.is_entry and f.defined}


def _named(operand: Operand) -> Iterator[str]:
    if isinstance(operand, SymbolRef):
        yield operand.name
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _named(item)
    elif isinstance(operand, CallOperands):
        for item in operand.args:
            yield from _named(item)


class _Names:
    """What a call site calls the names of the function expanded there.

    `recursion`, `frame`: the innermost around it. `member`: the function is one of that recursion's, and its
    `registers` are kept while it calls another.
    """

    def __init__(
        self,
        prefix: str,
        symbols: dict[str, str],
        recursion: _Recursion | None = None,
        frame: Frame | None = None,
        member: bool = False,
    ) -> None:
        self.prefix = prefix
        self.symbols = symbols
        self.recursion = recursion
        self.frame = frame
        self.member = member
        self.registers: dict[str, Register] = {}

    def label(self, name: str) -> str:
        return self.prefix + name

    def register(self, operand: Operand) -> Register:
        assert isinstance(operand, Register)
        if not self.prefix:
            return operand
        renamed = Register(self.prefix + operand.name, operand.type)
        if self.member:
            self.registers[renamed.name] = renamed
        return renamed

    def guard(self, guard: GuardPredicate | None) -> GuardPredicate | None:
        return guard and GuardPredicate(self.register(guard.register), guard.negated)

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, (Sink, Immediate)):
            return operand
        if isinstance(operand, SymbolRef):
            return replace(operand, name=self.symbols.get(operand.name, operand.name))
        if isinstance(operand, LabelRef):
            return LabelRef(self.label(operand.name))
        return self._compound(operand)

    def _compound(self, operand: Operand) -> Operand:
        if isinstance(operand, Vector):
            return Vector(tuple(self.operand(x) for x in operand.items))
        if isinstance(operand, Address):
            return self._address(operand)
        if isinstance(operand, TensorAddress):
            return TensorAddress(self._address(operand.descriptor), tuple(self.operand(x) for x in operand.coordinates))
        if isinstance(operand, (Negated, Selected)):
            return replace(operand, register=self.register(operand.register))
        if isinstance(operand, PredicatePair):
            first, second = (x if isinstance(x, Sink) else self.register(x) for x in (operand.first, operand.second))
            return PredicatePair(first, second)
        return operand

    def _address(self, address: Address) -> Address:
        base = self.operand(address.base)
        assert isinstance(base, (Register, SymbolRef, Immediate))
        return Address(base, address.offset)
