"""The drawings of the documentation are those that tools/figures.py makes, and are well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tools.figures import DRAWINGS


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_as_it_is_made(repository: Path, name: str) -> None:
    made = DRAWINGS[name]()
    ElementTree.fromstring(made)
    assert (repository / "docs/pictures" / name).read_text(encoding="utf-8") == made
