"""PTX text -> Module."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fmha.emulator.ptx.body import Body, parse_pragma
from fmha.emulator.ptx.declarations import SPACES, TYPE_BITS, parse_parameters, parse_variables
from fmha.emulator.ptx.deferred import LARGE, blanked, deferred, entry_bodies
from fmha.emulator.ptx.expressions import parse_integer
from fmha.emulator.ptx.lexer import END, Tokens, is_identifier, unquote
from fmha.emulator.ptx.line_info import DebugInfo, skip_file, skip_section
from fmha.emulator.ptx.parsed_module import DirectiveArgument, Function, Parameter, ParsedModule, Variable
from fmha.emulator.ptx.scope import FunctionNames
from fmha.emulator.ptx.uncollected import uncollected

_LINKAGE = frozenset((".extern", ".visible", ".weak", ".common"))


def parse(text: str, path: str | None = None) -> ParsedModule:
    """Parse a whole PTX module. Raises PtxError, naming the line, for whatever it does not know; of a large module,
    for what it does not know of an entry's body, at the first look at it."""
    with uncollected():
        bodies = entry_bodies(text) if len(text) >= LARGE else {}
        if len(bodies) < 2:
            return _ModuleParser(text, path).parse()
        module = _ModuleParser(blanked(text, bodies.values()), path).parse()

    def load(name: str) -> Function:
        with uncollected():
            others = (span for other, span in bodies.items() if other != name)
            return _ModuleParser(blanked(text, others), path).parse().functions[name]

    functions = {
        name: deferred(function, partial(load, function.name)) if function.name in bodies else function
        for name, function in module.functions.items()
    }
    return replace(module, functions=functions, source=text)


class _ModuleParser:
    def __init__(self, text: str, path: str | None) -> None:
        self.source = text
        self.path = path
        self.tokens = Tokens(text.rstrip("\0"))
        self.debug = DebugInfo(self.tokens)
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.aliases: dict[str, str] = {}
        self.calls: list[tuple[str, int]] = []
        self._names: set[str] = set()

    def parse(self) -> ParsedModule:
        version, target, options, address_size = self._preamble()
        tokens = self.tokens
        while tokens.items[tokens.at] != END:
            self._item()
        self._check()
        return ParsedModule(
            version=version,
            target=target,
            address_size=address_size,
            functions=self.functions,
            variables=self.variables,
            files=self.debug.files,
            source=self.source,
            path=self.path,
            target_options=options,
            aliases=self.aliases,
        )

    def _preamble(self) -> tuple[tuple[int, int], str, tuple[str, ...], int]:
        tokens = self.tokens
        tokens.expect(".version")
        major, dot, minor = tokens.items[tokens.at].partition(".")
        if not (dot and major.isdigit() and minor.isdigit() and len(major) <= 4 and len(minor) <= 4):
            tokens.unexpected("a version such as 8.8")
        tokens.at += 1
        tokens.expect(".target")
        target = tokens.identifier("a target such as sm_100a")
        options = []
        while tokens.accept(","):
            options.append(tokens.identifier("an option of the target"))
        address_size = 64
        if tokens.accept(".address_size"):
            at = tokens.at
            address_size = parse_integer(tokens)
            if address_size != 64:
                raise tokens.error(f"address size {address_size} is not supported: only 64 is", at)
        return (int(major), int(minor)), target, tuple(options), address_size

    def _item(self) -> None:
        """One declaration, definition or directive at module level."""
        tokens = self.tokens
        linkage = set()
        while tokens.items[tokens.at] in _LINKAGE:
            linkage.add(tokens.take())
        token = tokens.items[tokens.at]
        if token in (".entry", ".func"):
            self._function(linkage)
            return
        if token in SPACES and token != ".param":
            tokens.at += 1
            visible = bool(linkage & {".visible", ".weak", ".common"})
            extern = ".extern" in linkage
            found = parse_variables(tokens, token[1:], self._variable_name, extern=extern, visible=visible)
            for variable in found:
                self._add_variable(variable)
            return
        if linkage:
            tokens.unexpected(".entry, .func or a variable")
        tokens.at += 1
        if token == ".file":
            skip_file(tokens)
        elif token == ".section":
            skip_section(tokens)
        elif token == ".loc":
            self.debug.parse_loc(tokens)
        elif token == ".pragma":
            parse_pragma(tokens)
        elif token == ".alias":
            self._alias()
        elif token == ";":
            pass
        else:
            tokens.at -= 1
            tokens.unexpected("a function, a variable or a directive")

    def _variable_name(self, name: str) -> str:
        if name in self.functions:
            raise self.tokens.error(f"{name!r} is already a function", self.tokens.at - 1)
        self._names.add(name)
        return name

    def _add_variable(self, variable: Variable) -> None:
        previous = self.variables.get(variable.name)
        if previous is not None and not (previous.extern or variable.extern):
            raise self.tokens.error_at_line(f"{variable.name!r} is declared twice", variable.line)
        if previous is None or previous.extern:
            self.variables[variable.name] = variable

    def _alias(self) -> None:
        tokens = self.tokens
        line = tokens.line()
        alias = tokens.identifier("the name of a function")
        tokens.expect(",")
        aliasee = tokens.identifier("the name of a function")
        tokens.expect(";")
        self.aliases[alias] = aliasee
        self.calls.append((aliasee, line))

    def _function(self, linkage: set[str]) -> None:
        tokens = self.tokens
        line = tokens.line()
        is_entry = tokens.take() == ".entry"
        directives: dict[str, tuple[DirectiveArgument, ...]] = {}
        if not is_entry:
            self._directives(directives)  # .func .attribute(...), .func .noreturn
        returns: tuple[Parameter, ...] = ()
        if tokens.items[tokens.at] == "(" and not is_entry:
            returns = parse_parameters(tokens)
        at = tokens.at
        name = tokens.identifier("the name of a function")
        params = parse_parameters(tokens) if tokens.items[tokens.at] == "(" else ()
        self._directives(directives)
        if name in self.variables or (name in self.functions and self.functions[name].defined and not self._declares()):
            raise tokens.error(f"{name!r} is defined twice", at)
        self._names.add(name)
        sizes = {variable.name: TYPE_BITS[variable.type] // 8 for variable in self.variables.values()}
        names = FunctionNames(self._names.__contains__, sizes)
        body = Body(tokens, self.debug, names)
        defined = not tokens.accept(";")
        if defined:
            if ".extern" in linkage:
                raise tokens.error("an .extern function cannot have a body")
            self._declare_parameters(body, params + returns, at)
            body.parse()
        elif name in self.functions and self.functions[name].defined:
            return
        if body.pragmas:
            directives["pragma"] = directives.get("pragma", ()) + tuple(body.pragmas)
        self.calls.extend(body.calls)
        self.functions[name] = Function(
            name=name,
            is_entry=is_entry,
            visible=".visible" in linkage,
            extern=".extern" in linkage,
            params=params,
            returns=returns,
            body=tuple(body.instructions),
            labels=body.labels,
            registers=names.registers,
            variables=body.variables,
            directives=directives,
            line=line,
            defined=defined,
            weak=".weak" in linkage,
            prototypes=body.prototypes,
            branch_targets=body.branch_targets,
            call_targets=body.call_targets,
        )

    def _declares(self) -> bool:
        """Whether the header just read is a declaration only."""
        return self.tokens.items[self.tokens.at] == ";"

    def _declare_parameters(self, body: Body, parameters: tuple[Parameter, ...], at: int) -> None:
        for parameter in parameters:
            if body.scope.declares(parameter.name):
                raise self.tokens.error(f"parameter {parameter.name!r} is declared twice", at)
            if parameter.space == "reg":
                body.scope.add_register(parameter.name, parameter.type)
            else:
                unique = body.scope.add_symbol(parameter.name)
                body.scope.function.element_bytes[unique] = TYPE_BITS[parameter.type] // 8

    def _directives(self, directives: dict[str, tuple[DirectiveArgument, ...]]) -> None:
        """`.maxntid 128, 1, 1`, `.noreturn`, `.pragma "...";` between the header and the body."""
        tokens = self.tokens
        pragmas: list[DirectiveArgument] = []
        while tokens.items[tokens.at][:1] == "." and tokens.items[tokens.at][1:] not in TYPE_BITS:
            token = tokens.take()
            if not is_identifier(token[1:]):
                tokens.at -= 1
                tokens.unexpected("a directive or a body")
            arguments: list[DirectiveArgument] = []
            if token == ".pragma":
                pragmas.extend(parse_pragma(tokens))
                continue
            if token == ".attribute":
                arguments.extend(self._attribute())
            elif tokens.items[tokens.at][:1].isdigit() or unquote(tokens.items[tokens.at]) is not None:
                arguments.append(self._directive_argument())
                while tokens.accept(","):
                    arguments.append(self._directive_argument())
            directives[token[1:]] = tuple(arguments)
        if pragmas:
            directives["pragma"] = tuple(pragmas)

    def _directive_argument(self) -> DirectiveArgument:
        string = unquote(self.tokens.items[self.tokens.at])
        if string is not None:
            self.tokens.at += 1
            return string
        return parse_integer(self.tokens)

    def _attribute(self) -> list[DirectiveArgument]:
        tokens = self.tokens
        tokens.expect("(")
        parts: list[DirectiveArgument] = []
        depth = 1
        while True:
            token = tokens.take()
            if token == END:
                tokens.unexpected("')'")
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return parts
            parts.append(token)

    def _check(self) -> None:
        """What could only be looked up at the end: functions called, symbols in initializers, aliases."""
        for alias, aliasee in self.aliases.items():
            if aliasee in self.functions:
                self.functions[alias] = self.functions[aliasee]
        for name, line in self.calls:
            if name not in self.functions:
                raise self.tokens.error_at_line(f"function {name!r} is not declared", line)
        for variable in self.variables.values():
            for relocation in variable.relocations:
                if relocation.symbol not in self._names:
                    message = f"{relocation.symbol!r} is not declared"
                    raise self.tokens.error_at_line(message, variable.line)
