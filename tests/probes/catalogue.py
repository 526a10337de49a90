"""All probes, in the order of their reports."""

from __future__ import annotations

from tests.probes import address, matrix, mbarrier, scalar, tma
from tests.probes.case import Case


def cases(source: str | None = None) -> list[Case]:
    families = {"tma": tma, "mbarrier": mbarrier, "scalar": scalar, "matrix": matrix, "address": address}
    found = [case for name, family in families.items() if source in (None, name) for case in family.cases()]
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("two probes have one name")
    return found
