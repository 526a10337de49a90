"""All probes, in the order of their reports."""

from __future__ import annotations

from tests.probes import (
    address,
    carries,
    cooperative,
    groups,
    im2col,
    masks,
    matrix,
    mbarrier,
    memory,
    nans,
    programs,
    scalar,
    tma,
    video,
)
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
    "masks": masks,
    "carries": carries,
    "groups": groups,
    "cooperative": cooperative,
    "video": video,
    "nans": nans,
}
SOURCES = tuple(_FAMILIES)


def cases(source: str | None = None) -> list[Case]:
    found = [case for name, family in _FAMILIES.items() if source in (None, name) for case in family.cases()]
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("two probes have one name")
    return found
