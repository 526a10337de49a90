"""All probes, in the order of their reports."""

from __future__ import annotations

from tests.probes import address, carries, groups, im2col, masks, matrix, mbarrier, memory, programs, scalar, tma
from tests.probes.case import Case

_FAMILIES = {
    "tma": tma,
    "im2col": im2col,
    "mbarrier": mbarrier,
    "scalar": scalar,
    "matrix": matrix,
    "address": address,
    "memory": memory,
    "programs": programs,
}
SOURCES = tuple(_FAMILIES)
# Those that no GPU has answered yet: built and run when they are named. `python -m tests.probes.store GPU.npz` puts the
# answers to the others', and the family moves up.
_AWAITED = {"masks": masks, "carries": carries, "groups": groups}
AWAITED = tuple(_AWAITED)


def cases(source: str | None = None) -> list[Case]:
    families = _FAMILIES if source is None else _FAMILIES | _AWAITED
    found = [case for name, family in families.items() if source in (None, name) for case in family.cases()]
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("two probes have one name")
    return found
