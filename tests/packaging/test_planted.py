"""The mistakes that tests/planted.py and tests/planted_core.py put into copies of the tree: each has its place."""

from __future__ import annotations

from tests.planted import PLANTED, ROOT
from tests.planted_core_mistakes import MISTAKES as OF_THE_CORE


def test_each_planted_mistake_has_its_place_once() -> None:
    places = [(m.name, m.file, m.old) for m in PLANTED]
    places += [(m.name, f"emulator/core/{m.file}", m.old) for m in OF_THE_CORE]
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for _, file, _ in places}
    assert [name for name, file, old in places if texts[file].count(old) != 1] == []
