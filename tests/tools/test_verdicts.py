"""The pictures of what a run says of what is no number are those that the program draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.verdicts import PICTURES_OF, all_of_them


@pytest.mark.nvcc
@pytest.mark.slow
def test_each_picture_is_what_the_commands_say_now(tmp_path: Path) -> None:
    """After a change of words: `python -m tools.verdicts`."""
    drawn = dict(all_of_them(tmp_path))
    assert len(drawn) == len(PICTURES_OF)
    for file, svg in drawn.items():
        assert file.read_text(encoding="utf-8") == svg, file.name
