"""Mistakes planted in the planner: each applies to today's source, and one is planted and seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.planner import DEVICES, load


def test_each_mistake_is_in_one_place_of_the_source(repository: Path) -> None:
    mistakes = load()
    assert len({mistake.name for mistake in mistakes}) == len(mistakes) >= 20
    for mistake in mistakes:
        source = (repository / DEVICES / "native" / mistake.file).read_text(encoding="utf-8")
        assert mistake.applied(source) != source


def test_a_mistake_whose_place_is_gone_is_named() -> None:
    with pytest.raises(ValueError, match=r"mean-of-all-planes: found 0 times in cheapest\.hpp, not once"):
        load()[0].applied("")
