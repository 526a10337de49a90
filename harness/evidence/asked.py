"""What a run was asked for of what an earlier run has, as of the rest nobody knows anything; whether it is timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord, Parameters, Selection
from fmha.harness.config import ALL, load
from fmha.harness.config.filters import KERNEL, KEYS
from fmha.harness.judge.configuration import DEFAULTS, OURS


def asked(base: RunRecord, new: RunRecord) -> set[str]:
    """The ids of `base` that `new` was asked for, and those besides that it has all the same, as a guard.

    A record from before version 7 does not say which suites have a configuration. Where neither that nor the suites'
    names tell, what the later run lacks was not asked for.
    """
    there = {item.id for item in new.configurations}
    if not new.selection.suite or new.selection.one_a_variant:
        return there & {item.id for item in base.configurations}
    terms = _terms(new.selection.filter)
    wanted, of_base = _suites(new.selection), _suites(base.selection)
    known = any(item.suites for item in base.configurations)
    return {
        item.id
        for item in base.configurations
        if item.id in there
        or (_accepted(item.parameters, terms) and _of_suites(item, base, new, wanted, of_base, known=known))
    }


def is_timed(root: Path, host: str) -> bool:
    """Whether a host of the matrix file below `root` runs commits on a device that is timed: not on the emulator."""
    settings = load(root).hosts.get(host)
    return settings is not None and settings.remote is not None and settings.remote.device != "emulator"


def _of_suites(
    item: ConfigurationRecord, base: RunRecord, new: RunRecord, wanted: set[str], of_base: set[str], *, known: bool
) -> bool:
    if not known:
        return ALL in wanted or of_base <= wanted
    return any(_drawn_alike(suite, base.selection, new.selection) for suite in wanted.intersection(item.suites))


def _drawn_alike(suite: str, base: Selection, new: Selection) -> bool:
    """Whether `new` has of a suite what `base` has of it, unless somebody took that away: of a random one, what is
    drawn of the same seed, and no fewer."""
    if suite not in base.random:
        return True
    return base.seed == new.seed and new.random.get(suite, 0) >= base.random[suite]


def _suites(selection: Selection) -> set[str]:
    return set(selection.suites or (name.strip() for name in selection.suite.split(",")))


def _terms(text: str) -> Mapping[str, tuple[str, ...]]:
    """A filter as records have it: each key once, with its values."""
    terms = (term.partition("=") for term in text.split(",") if term)
    return {key: tuple(values.split("|")) for key, _, values in terms}


def _accepted(parameters: Parameters, terms: Mapping[str, tuple[str, ...]]) -> bool:
    given = parameters.model_dump()
    values = {key: given.get(name, DEFAULTS.get(name, 0)) for key, name in KEYS.items()} if _ours(given) else {}
    values |= given | {KERNEL: given.get(KERNEL, OURS)}
    return all(str(values.get(key)) in wanted for key, wanted in terms.items())


def _ours(given: Mapping[str, object]) -> bool:
    """Whether its fields are those of attention: ours, or a peer's, which has the same."""
    return given.get("head_dim") is not None and "s_k" in given
