"""The body of a function: blocks, labels, declarations and instructions."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from fmha.emulator.ptx.declarations import (
    SPACES,
    TYPE_BITS,
    parse_parameters,
    parse_register_declaration,
    parse_variables,
)
from fmha.emulator.ptx.lexer import END, Tokens, is_identifier, unquote
from fmha.emulator.ptx.line_info import DebugInfo
from fmha.emulator.ptx.operands import UndeclaredError, parse_call, parse_operands, parse_register, resolve, unresolved
from fmha.emulator.ptx.parsed_module import (
    CallOperands,
    GuardPredicate,
    Instruction,
    LabelRef,
    Location,
    Operand,
    Prototype,
    Register,
    SymbolRef,
    Variable,
)
from fmha.emulator.ptx.scope import FunctionNames, Scope

_DEEPEST = 200  # nested blocks


@lru_cache(maxsize=4096)
def _split(mnemonic: str) -> tuple[str, tuple[str, ...]]:
    opcode, *modifiers = mnemonic.split(".")
    return opcode, tuple(modifiers)


class Body:
    """Parses one body and holds what it declares. The caller has declared the parameters in `scope`."""

    def __init__(self, tokens: Tokens, debug: DebugInfo, names: FunctionNames) -> None:
        self.tokens = tokens
        self.debug = debug
        self.scope = Scope(names)
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.variables: dict[str, Variable] = {}
        self.prototypes: dict[str, Prototype] = {}
        self.branch_targets: dict[str, tuple[str, ...]] = {}
        self.call_targets: dict[str, tuple[str, ...]] = {}
        self.pragmas: list[str] = []
        self._used_bytes: int | None = None  # of the next instruction
        self.calls: list[tuple[str, int]] = []  # functions named, and the line
        self._location: Location | None = None
        self._open: list[tuple[int, Scope]] = []  # instructions with names to resolve
        self._open_tables: list[tuple[str, tuple[str, ...], Scope, int]] = []

    def parse(self) -> None:
        """From the opening brace through the closing one."""
        tokens, items = self.tokens, self.tokens.items
        tokens.expect("{")
        outermost = self.scope
        while True:
            token = items[tokens.at]
            first = token[:1]
            if token == "@":
                self._instruction()
            elif token == "}":
                tokens.at += 1
                if self.scope is outermost:
                    break
                assert self.scope.parent is not None
                self.scope = self.scope.parent
            elif token == "{":
                if self.scope.depth >= _DEEPEST:
                    raise tokens.error("blocks nested too deeply")
                self.scope = Scope(self.scope.function, self.scope)
                tokens.at += 1
            elif first == ".":
                self._directive(token)
            elif token == ";":
                tokens.at += 1
            elif token == END:
                tokens.unexpected("'}'")
            elif items[tokens.at + 1] == ":":
                self._label(token)
            else:
                self._instruction()
        self._resolve()

    def _declare_twice(self, name: str, at: int) -> NoReturn:
        raise self.tokens.error(f"{name!r} is declared twice in one block", at)

    def _check_new(self, name: str) -> None:
        if self.scope.declares(name):
            self._declare_twice(name, self.tokens.at - 1)

    def _add_register(self, name: str, type_: str) -> None:
        self._check_new(name)
        self.scope.add_register(name, type_)

    def _add_range(self, prefix: str, count: int, type_: str) -> None:
        if prefix in self.scope.ranges:
            self._declare_twice(prefix, self.tokens.at - 1)
        self.scope.add_range(prefix, count, type_)

    def _add_variable(self, name: str) -> str:
        self._check_new(name)
        return self.scope.add_symbol(name)

    def _directive(self, token: str) -> None:
        tokens = self.tokens
        tokens.at += 1
        if token == ".loc":
            self._location = self.debug.parse_loc(tokens)
        elif token == ".reg":
            parse_register_declaration(tokens, self._add_register, self._add_range)
        elif token in SPACES:
            for variable in parse_variables(tokens, token[1:], self._add_variable):
                self.variables[variable.name] = variable
                self.scope.function.element_bytes[variable.name] = TYPE_BITS[variable.type] // 8
        elif token == ".pragma":
            self._pragma()
        else:
            raise tokens.error(f"directive {token!r} is not supported here", tokens.at - 1)

    def _pragma(self) -> None:
        for string in parse_pragma(self.tokens):
            self.pragmas.append(string)
            words = string.split()
            if words[:1] != ["used_bytes_mask"]:
                continue
            try:
                (value,) = words[1:]
                self._used_bytes = int(value, 0)
            except ValueError:
                raise self.tokens.error(f"used_bytes_mask takes one number, not {' '.join(words[1:])!r}") from None

    def _label(self, name: str) -> None:
        tokens = self.tokens
        tokens.identifier("a label")
        self._check_new(name)
        tokens.expect(":")
        following = tokens.items[tokens.at]
        if following == ".callprototype":
            tokens.at += 1
            self.prototypes[self.scope.add_table(name)] = self._prototype()
        elif following in (".branchtargets", ".calltargets"):
            line = tokens.line()
            tokens.at += 1
            targets = [tokens.identifier("a label")]
            while tokens.accept(","):
                targets.append(tokens.identifier("a label"))
            tokens.expect(";")
            unique = self.scope.add_table(name)
            if following == ".branchtargets":
                self._open_tables.append((unique, tuple(targets), self.scope, line))
            else:
                self.call_targets[unique] = tuple(targets)
                self.calls.extend((target, line) for target in targets)
        else:
            self.labels[self.scope.add_label(name)] = len(self.instructions)

    def _prototype(self) -> Prototype:
        tokens = self.tokens
        returns = parse_parameters(tokens) if tokens.items[tokens.at] == "(" else ()
        tokens.expect("_")
        params = parse_parameters(tokens) if tokens.items[tokens.at] == "(" else ()
        while tokens.items[tokens.at] in (".noreturn", ".abi_preserve", ".abi_preserve_control"):
            if tokens.take() != ".noreturn":
                tokens.take()
        tokens.expect(";")
        return Prototype(returns, params)

    def _instruction(self) -> None:
        tokens, items = self.tokens, self.tokens.items
        first = tokens.at
        guard = None
        if items[first] == "@":
            tokens.at += 1
            negated = tokens.accept("!")
            guard = GuardPredicate(parse_register(tokens, self.scope), negated)
        mnemonic = items[tokens.at]
        opcode, modifiers = _split(mnemonic)
        if not is_identifier(opcode) or opcode[0] in "%$_":
            tokens.unexpected("an instruction, a label or a directive" if guard is None else "an instruction")
        tokens.at += 1
        while items[tokens.at][:1] == "." and items[tokens.at] != ".":  # written apart: `mov .b32`
            modifiers = (*modifiers, tokens.take()[1:])
        operands: tuple[Operand, ...]
        if opcode == "call":
            call = parse_call(tokens, self.scope)
            operands = (call,)
        else:
            operands = parse_operands(tokens, self.scope)
        line = tokens.line(first)
        text = tokens.text(first, tokens.at - 1)
        instruction = Instruction(opcode, modifiers, operands, guard, line, text, self._location, self._used_bytes)
        self._used_bytes = None
        for operand in operands:
            if unresolved(operand):
                self._open.append((len(self.instructions), self.scope))
                break
        if opcode == "call" and isinstance(call.target, SymbolRef):
            self.calls.append((call.target.name, line))
        self.instructions.append(instruction)

    def _resolve(self) -> None:
        for index, scope in self._open:
            instruction = self.instructions[index]
            try:
                operands = tuple(resolve(operand, scope) for operand in instruction.operands)
            except UndeclaredError as error:
                message = f"{error.name!r} is not declared"
                raise self.tokens.error_at_line(message, instruction.line) from None
            self.instructions[index] = replace(instruction, operands=operands)
        self._resolve_tables()
        for instruction in self.instructions:
            self._check_targets(instruction)

    def _resolve_tables(self) -> None:
        for unique, targets, scope, line in self._open_tables:
            found = [scope.find_label(target) for target in targets]
            for target, label in zip(targets, found, strict=True):
                if label is None or label.name not in self.labels:
                    raise self.tokens.error_at_line(f"label {target!r} is not declared", line)
            self.branch_targets[unique] = tuple(label.name for label in found if label is not None)

    def _check_targets(self, instruction: Instruction) -> None:
        """A branch names a label or a table of labels, an indirect call a table of functions or a prototype."""
        operands, wanted = instruction.operands, ""
        if instruction.opcode == "bra":
            if len(operands) != 1 or not isinstance(operands[0], LabelRef) or operands[0].name not in self.labels:
                wanted = "one label"
        elif instruction.opcode == "brx":
            table = operands[-1] if len(operands) == 2 else None
            if not isinstance(table, LabelRef) or table.name not in self.branch_targets:
                wanted = "an index and the label of a .branchtargets"
        elif instruction.opcode == "call":
            call = operands[0]
            assert isinstance(call, CallOperands)
            if call.prototype is not None:
                if call.prototype not in self.prototypes and call.prototype not in self.call_targets:
                    wanted = "the label of a .callprototype or .calltargets last"
            elif isinstance(call.target, Register):
                wanted = "the label of a .callprototype or .calltargets, which an indirect call needs"
        if wanted:
            raise self.tokens.error_at_line(f"expected {wanted}", instruction.line)


def parse_pragma(tokens: Tokens) -> list[str]:
    """After `.pragma`, through the semicolon if there is one."""
    pragmas = []
    while True:
        string = unquote(tokens.items[tokens.at])
        if string is None:
            tokens.unexpected("a string")
        pragmas.append(string)
        tokens.at += 1
        if not tokens.accept(","):
            break
    tokens.expect(";")
    return pragmas
