"""Calls, by putting the callee's body in place of each: fresh registers, labels and local memory a call site.

The call ABI of PTX (7.1) passes parameters in .param variables that the caller declares. A parameter of the callee is
such a variable under another name, so nothing is copied. `ret` in a callee is a branch to what follows the call. Calls
of vprintf and __assertfail become instructions of their own. Recursion needs a stack and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fmha.emulator.ptx import (
    Address,
    CallOperands,
    Function,
    Guard,
    Immediate,
    Instruction,
    LabelRef,
    Module,
    Negated,
    Operand,
    Parameter,
    PredicatePair,
    PtxError,
    Register,
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
_BUILTINS = {"vprintf": ("b64", "b64"), "__assertfail": ("b64", "b64", "b32", "b64")}  # of __assertfail, the used ones
_OPCODES = {"vprintf": "%vprintf", "__assertfail": "%assertfail"}


def inline_calls(module: Module, entry: Function) -> Function:
    """`entry` with no call left. Raises PtxError for recursion, unknown functions and open sets of callees."""
    if all(i.opcode != "call" for i in entry.body):
        return entry
    return _Inliner(module, entry).result()


class _Inliner:
    def __init__(self, module: Module, entry: Function) -> None:
        self.module = module
        self.entry = entry
        self.body: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.variables: dict[str, Variable] = {}
        self.branch_targets: dict[str, tuple[str, ...]] = {}
        self.sites = 0

    def result(self) -> Function:
        self.copy(self.entry, _Names("", {}), (self.entry.name,), "")
        return replace(
            self.entry,
            body=tuple(self.body),
            labels=self.labels,
            variables=self.variables,
            branch_targets=self.branch_targets,
        )

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
        """Shared variables of a function are one for all its call sites; the others belong to the site."""
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
        guard: Guard | None = None,
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
            over = Guard(names.register(at.guard.register), not at.guard.negated)
            self._emit(at, names, "bra", (LabelRef(after),), over)
        at = replace(at, guard=None)
        if isinstance(call.target, SymbolRef):
            self._expand(at, self._callee(at, call.target.name, active), call, names, active, site)
        else:
            self._indirect(function, at, call, names, active, site)
        self.labels[after] = len(self.body)

    def _defined(self, name: str) -> bool:
        return name in self.module.functions and self.module.functions[name].defined

    def _callee(self, at: Instruction, name: str, active: tuple[str, ...]) -> Function:
        if not self._defined(name):
            raise PtxError(f"call of {name}, which has no body and is not modelled", at.line, at.text)
        callee = self.module.functions[name]
        if callee.name in active:
            raise PtxError(f"recursive call of {name} is not modelled: calls are expanded", at.line, at.text)
        return callee

    def _indirect(
        self, function: Function, at: Instruction, call: CallOperands, names: _Names, active: tuple[str, ...], site: str
    ) -> None:
        """Compares the address with that of each function it may be."""
        target, hit = names.register(call.target), Register(f"%{site}hit", "pred")
        for number, name in enumerate(self._candidates(function, at, call)):
            callee = self._callee(at, name, active)
            branch = f"{site}{number}."
            self._emit(at, names, "setp.eq.b64", (hit, target, SymbolRef(callee.name)))
            self._emit(at, names, "bra", (LabelRef(branch + "next"),), Guard(hit, True))
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
        inner = _Names(names.prefix + site, {})
        if len(call.args) != len(callee.params) or len(call.returns) != len(callee.returns):
            message = f"{callee.name} takes {len(callee.params)} parameters and gives {len(callee.returns)}"
            raise PtxError(message, at.line, at.text)
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

    def _builtin(self, at: Instruction, call: CallOperands, names: _Names, site: str) -> None:
        assert isinstance(call.target, SymbolRef)
        types = _BUILTINS[call.target.name]
        values: list[Operand] = []
        for number, (type_name, argument) in enumerate(zip(types, call.args, strict=False)):
            value = Register(f"%{site}{number}", type_name)
            source = names.operand(argument)
            if isinstance(source, SymbolRef):
                self._emit(at, names, f"ld.param.{type_name}", (value, Address(SymbolRef(source.name))))
            values.append(value if isinstance(source, SymbolRef) else source)
        if len(values) != len(types):
            raise PtxError(f"{call.target.name} takes {len(types)} parameters or more", at.line, at.text)
        if call.target.name == "__assertfail":
            self._emit(at, names, "%assertfail", tuple(values))
            return
        status = Register(f"%{site}status", "b32")
        self._emit(at, names, _OPCODES[call.target.name], (status, *values))
        for result in call.returns:
            where = names.operand(result)
            if isinstance(where, SymbolRef):
                self._emit(at, names, "st.param.b32", (Address(SymbolRef(where.name)), status))
            elif isinstance(where, Register):
                self._emit(at, names, "mov.b32", (where, status))


def _bits(parameter: Parameter) -> str:
    return "pred" if parameter.type == "pred" else f"b{8 * parameter.nbytes}"


def _move_out(parameter: Parameter, argument: Operand, inner: _Names) -> tuple[str, tuple[Operand, ...]]:
    if parameter.space == "reg":
        return f"mov.{_bits(parameter)}", (argument, inner.register(Register(parameter.name, parameter.type)))
    return f"ld.param.{_bits(parameter)}", (argument, Address(SymbolRef(inner.symbols[parameter.name])))


def _sizes(parameters: tuple[Parameter, ...]) -> tuple[int, ...]:
    return tuple(p.nbytes for p in parameters)


def _address_taken(module: Module) -> Iterator[str]:
    """Functions named anywhere but as the target of a call."""
    for function in module.functions.values():
        for instruction in function.body:
            for operand in instruction.operands:
                for name in _named(operand):
                    if name in module.functions:
                        yield name
    for variable in module.variables.values():
        yield from (r.symbol for r in variable.relocations if r.symbol in module.functions)


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
    """What a call site calls the names of the function expanded there."""

    def __init__(self, prefix: str, symbols: dict[str, str]) -> None:
        self.prefix = prefix
        self.symbols = symbols

    def label(self, name: str) -> str:
        return self.prefix + name

    def register(self, operand: Operand) -> Register:
        assert isinstance(operand, Register)
        return Register(self.prefix + operand.name, operand.type) if self.prefix else operand

    def guard(self, guard: Guard | None) -> Guard | None:
        return guard and Guard(self.register(guard.register), guard.negated)

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
        if isinstance(operand, Negated):
            return Negated(self.register(operand.register))
        if isinstance(operand, PredicatePair):
            first, second = (x if isinstance(x, Sink) else self.register(x) for x in (operand.first, operand.second))
            return PredicatePair(first, second)
        return operand

    def _address(self, address: Address) -> Address:
        base = self.operand(address.base)
        assert isinstance(base, (Register, SymbolRef, Immediate))
        return Address(base, address.offset)
