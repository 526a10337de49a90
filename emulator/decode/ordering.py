"""Modifiers of memory accesses: ordering semantics, scope, state space, and hints that change no value."""

from __future__ import annotations

from fmha.emulator._core import MODS
from fmha.emulator.decode.builder import SPACES, Builder
from fmha.emulator.decode.modifiers import Modifiers

SCOPES = {"cta": MODS["cta_scope"], "cluster": 0, "gpu": 0, "sys": 0}
_CACHE_OPERATORS = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")
_PRIORITIES = ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
_HINTS = (
    *_CACHE_OPERATORS,
    *(f"{level}::{priority}" for level in ("L1", "L2") for priority in _PRIORITIES),
    *(f"L2::{size}B" for size in (64, 128, 256)),
)


def take_hints(m: Modifiers) -> bool:
    """Takes caching hints; whether a cache policy operand follows the others."""
    for hint in _HINTS:
        m.take(hint)
    return m.take("L2::cache_hint")


def take_space(m: Modifiers) -> str:
    """Takes a state space; generic without."""
    names = {name: name for name in SPACES if name != "generic"}
    return m.choose(names | {"param::entry": "param", "param::func": "param"}, "generic")


def take_ordering(b: Builder, m: Modifiers, semantics: dict[str, int]) -> tuple[bool, int]:
    """Whether the access is strong, and its modifier bits. `semantics`: what the instruction may have."""
    if m.take("mmio"):
        m.need("relaxed", "sys")
        return True, 0
    if m.take("volatile"):
        return True, 0
    if m.take("weak"):
        return False, 0
    order = m.choose(semantics, -1)
    if order < 0:
        return False, 0
    return True, order | m.choose(SCOPES)
