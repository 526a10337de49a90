"""Names within a function: nested `{ }` blocks, register ranges, and unique names for what is declared twice."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping

from fmha.emulator.ptx.parsed_module import LabelRef, Register, Special, SymbolRef

_DIGITS = "0123456789"


_PLAIN_SPECIALS = """
    %laneid %warpid %nwarpid %smid %nsmid %gridid %is_explicit_cluster %cluster_ctarank %cluster_nctarank
    %lanemask_eq %lanemask_le %lanemask_lt %lanemask_ge %lanemask_gt %clock %clock_hi %clock64
    %globaltimer %globaltimer_lo %globaltimer_hi %current_graph_exec
    %reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap
    %reserved_smem_offset_0 %reserved_smem_offset_1 %total_smem_size %aggr_smem_size %dynamic_smem_size
"""


def _special_names() -> dict[str, Special]:
    names = {"WARP_SZ"}
    for vector in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        names.update({f"%{vector}", *(f"%{vector}.{axis}" for axis in "xyzw")})
    names.update(_PLAIN_SPECIALS.split())
    names.update(f"%envreg{i}" for i in range(32))
    names.update(f"%pm{i}" for i in range(8))
    names.update(f"%pm{i}_64" for i in range(8))
    return {name: Special(name) for name in names}


SPECIALS = _special_names()

Named = Register | SymbolRef | LabelRef | Special


class FunctionNames:
    """The names given out in one function, so that each is given once."""

    __slots__ = ("_last", "_taken", "element_bytes", "in_module", "registers")

    def __init__(self, in_module: Callable[[str], bool], element_bytes: Mapping[str, int]) -> None:
        self.in_module = in_module  # is this the name of a variable or function of the module?
        # Bytes of a scalar of each variable, by unique name; those of the module behind those of the function.
        self.element_bytes: ChainMap[str, int] = ChainMap({}, dict(element_bytes))
        self.registers: dict[str, str] = {}
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}  # the last number given to a name

    def unique(self, name: str, shadows: bool) -> str:
        """`name`, or `name$2` and so on. `shadows`: an enclosing block declares it too, and keeps the plain name."""
        chosen = name
        if shadows or name in self._taken:
            number = self._last.get(name, 1) + 1
            while f"{name}${number}" in self._taken:
                number += 1
            self._last[name] = number
            chosen = f"{name}${number}"
        self._taken.add(chosen)
        return chosen


class Scope:
    """One block. `names` holds what it declares; members of a register range enter when they are first used."""

    __slots__ = ("_numbered", "depth", "function", "names", "parent", "ranges", "tables")

    def __init__(self, function: FunctionNames, parent: Scope | None = None) -> None:
        self.function = function
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.names: dict[str, Named] = {}
        self.ranges: dict[str, tuple[int, str]] = {}  # prefix -> (count, type)
        self._numbered = False  # a prefix ends with a digit
        self.tables: dict[str, str] = {}  # labels of .callprototype, .branchtargets, .calltargets -> unique name

    def _in_range(self, name: str) -> str | None:
        """The type of `name` if a register range of this very block holds it: "%r1<5>" declares %r10 to %r14."""
        if not self.ranges:
            return None
        if not self._numbered:
            prefix = name.rstrip(_DIGITS)
            number = name[len(prefix) :]
            known = self.ranges.get(prefix)
            if known is None or not 0 < len(number) < 10 or (number[0] == "0" and number != "0"):
                return None
            return known[1] if int(number) < known[0] else None
        split = len(name) - 1
        while split > 0 and name[split] in _DIGITS and len(name) - split < 10:
            if name[split] != "0" or split == len(name) - 1:
                count, type_ = self.ranges.get(name[:split], (0, ""))
                if int(name[split:]) < count:
                    return type_
            split -= 1
        return None

    def declares(self, name: str) -> bool:
        """Whether this scope itself has the name."""
        return name in self.names or name in self.tables or self._in_range(name) is not None

    def _shadows(self, name: str) -> bool:
        scope = self.parent
        while scope is not None:
            if scope.declares(name):
                return True
            scope = scope.parent
        return self.parent is not None and self.function.in_module(name)

    def add_register(self, name: str, type_: str) -> None:
        """Declares a register, under a unique name if an outer scope has the same one."""
        unique = self.function.unique(name, self._shadows(name))
        self.names[name] = Register(unique, type_)

    def add_range(self, prefix: str, count: int, type_: str) -> None:
        """Declares `prefix`0 to `prefix`count-1, as `.reg .b32 %r<5>` does."""
        self.ranges[prefix] = (count, type_)
        self._numbered = self._numbered or prefix[-1] in _DIGITS

    def add_symbol(self, name: str) -> str:
        """Declare a variable; its unique name."""
        unique = self.function.unique(name, self._shadows(name))
        self.names[name] = SymbolRef(unique)
        return unique

    def add_label(self, name: str) -> str:
        """Declares a label and returns its unique name."""
        unique = self.function.unique(name, self._shadows(name))
        self.names[name] = LabelRef(unique)
        return unique

    def add_table(self, name: str) -> str:
        """Declares a table of branch targets and returns its unique name."""
        unique = self.function.unique(name, self._shadows(name))
        self.tables[name] = unique
        return unique

    def find(self, name: str) -> Named | None:
        """What `name` means here: a register, a variable of the function, a special register, or a label seen so far.

        A label may yet be declared again in a block that is still open: see `find_label`.
        """
        found = self.names.get(name)
        if found is None:
            found = self._find_outside(name)
        if type(found) is Register:
            self.function.registers[found.name] = found.type
        return found

    def _find_outside(self, name: str) -> Named | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            type_ = scope._in_range(name)
            if type_ is not None:
                scope.add_register(name, type_)
                return scope.names[name]
            scope = scope.parent
        return SPECIALS.get(name)

    def find_label(self, name: str) -> LabelRef | None:
        """The label `name`, or the table of targets of that name; to be asked when the function has ended."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if isinstance(found, LabelRef):
                return found
            if name in scope.tables:
                return LabelRef(scope.tables[name])
            scope = scope.parent
        return None
