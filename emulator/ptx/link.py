"""Several modules as one, as a device linker makes it of the translation units of nvcc -rdc=true."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fmha.emulator.ptx.parsed_module import Function, ParsedModule, Variable
from fmha.emulator.ptx.parser import parse
from fmha.emulator.ptx.ptx_error import PtxError


def link(texts: Sequence[str]) -> ParsedModule:
    """Parses the modules and links them. Lines are those of each module's own text.

    A name that is a module's own, as nvcc gives one to a string, is renamed where another module has it, too. PtxError
    where one has two definitions that are not weak.
    """
    modules = [parse(text) for text in texts]
    if len(modules) == 1:
        return modules[0]
    users = Counter(name for module in modules for name in (*module.functions, *module.variables))
    for n, (module, text) in enumerate(zip(modules, texts, strict=True)):
        if own := [name for name in _own(module) if users[name] > 1]:
            names = re.compile(rf"(?<![\w$%])({'|'.join(map(re.escape, own))})(?![\w$])")
            modules[n] = parse(names.sub(rf"\g<1>$unit{n}", text))
    functions: dict[str, Function] = {}
    variables: dict[str, Variable] = {}
    for module in modules:
        for function in module.functions.values():
            _add_function(functions, function)
        for variable in module.variables.values():
            _add_variable(variables, variable)
    return replace(
        modules[0],
        version=max(module.version for module in modules),
        functions=functions,
        variables=variables,
        source="\n".join(module.source for module in modules),
        aliases={alias: name for module in modules for alias, name in module.aliases.items()},
    )


def _own(module: ParsedModule) -> list[str]:
    functions = [f.name for f in module.functions.values() if f.defined and not (f.visible or f.weak or f.extern)]
    return functions + [v.name for v in module.variables.values() if not (v.visible or v.extern)]


def _add_function(functions: dict[str, Function], function: Function) -> None:
    before = functions.get(function.name)
    if before is None or (function.defined and (before.weak or not before.defined)):
        functions[function.name] = function
    elif function.defined and not function.weak:
        raise PtxError(f"{function.name} is defined by two modules that are linked", function.line)


def _add_variable(variables: dict[str, Variable], variable: Variable) -> None:
    before = variables.get(variable.name)
    if before is None or (before.extern and not variable.extern):
        variables[variable.name] = variable
    elif before.extern:  # as arrays of dynamic shared memory are everywhere
        variables[variable.name] = replace(before, align=max(before.align, variable.align))
