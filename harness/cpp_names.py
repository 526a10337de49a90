"""Names of C++ as people write them, and the symbols that a compiler makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

MOST_TOLD = 6  # names in a message
MOST = 2000  # characters of a symbol that is looked at
# Of torch's types those that are CUDA's in the headers that stand for torch's (harness/problems/include).
_CUDAS = {"Half": "__half", "BFloat16": "__nv_bfloat16"}
_TORCHS = re.compile(r"\b(?:at|c10|torch)::(Half|BFloat16)\b")
_NUMBER = re.compile(r"\b(\d+)(?:ull|ul|ll|u|l)\b")


class UnknownNameError(ValueError):
    """No symbol has the name, or several have; the message says which there are."""


@cache
def readable(symbol: str) -> str:
    """A symbol as C++ has it, a kernel's `void` left out: `add<float>(float*, int)`. Itself where it is no C++."""
    if not symbol.startswith("_Z") or len(symbol) > MOST:
        return symbol
    import cxxfilt  # loads the C++ runtime: only who meets such a name needs it

    try:
        return str(cxxfilt.demangle(symbol)).removeprefix("void ")
    except cxxfilt.InvalidName:
        return symbol


def short(symbol: str) -> str:
    """The same without parameters: `add<float>`."""
    return _without_parameters(readable(symbol))


def symbol_of(wanted: str, symbols: Iterable[str]) -> str:
    """The symbol that is meant by a name: itself; or a name of C++ with or without parameters, template arguments or
    namespaces, the most that is written first; at::Half for CUDA's __half where torch's own is not there.
    UnknownNameError where there is none, or more than one."""
    known = list(symbols)
    if wanted in known:
        return wanted
    for forms in zip(*(list(_forms(readable(symbol))) for symbol in known), strict=True):
        found = [symbol for symbol, names in zip(known, forms, strict=True) if _plain(wanted) in names]
        if len(found) == 1:
            return found[0]
        if found:
            raise UnknownNameError(f"{wanted} is the name of several: {', '.join(map(readable, found))}")
    if (cudas := _TORCHS.sub(lambda name: _CUDAS[name[1]], wanted)) != wanted:
        return symbol_of(cudas, known)
    theirs = [symbol for symbol in known if not symbol.startswith("fmha_")]  # ours are nobody's kernels but our own
    names = [readable(symbol) for symbol in theirs or known]
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    there = ", ".join(names[:MOST_TOLD]) + more or "none"
    raise UnknownNameError(f"there is no {wanted}; there are {there}")


def _forms(name: str) -> Iterator[set[str]]:
    """What a name may be written as, from the whole of it to its last word; the same number of each."""
    bare = _without_parameters(name)
    last = _without_arguments(bare)
    for form in (name, bare, last):
        yield {_plain(form)}
    for form in (name, bare, last):
        yield set(_without_namespaces(_plain(form)))


def _plain(name: str) -> str:
    """Without what compilers and people write in several ways."""
    name = re.sub(r"\s+", "", name).replace("(anonymousnamespace)::", "")
    name = name.replace("(bool)1", "true").replace("(bool)0", "false")
    return _NUMBER.sub(r"\1", name)


def _without_parameters(name: str) -> str:
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at]
    return name


def _without_arguments(name: str) -> str:
    if not name.endswith(">"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at]
    return name


def _without_namespaces(name: str) -> Iterator[str]:
    depth, at = 0, 0
    while at < len(name):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(name[at], 0)
        if depth == 0 and name.startswith("::", at):
            yield name[at + 2 :]
            at += 1
        at += 1
