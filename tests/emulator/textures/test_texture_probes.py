"""The program that compares textures with a GPU's: it runs here, and a word that differs is seen."""

from __future__ import annotations

import pytest

from tests.probes.textures import compare, read, run_emulator


@pytest.mark.nvcc
def test_the_probes_run_and_one_changed_word_is_a_difference() -> None:
    ours = run_emulator("strict")
    assert len(ours) > 160
    assert sum(map(len, ours.values())) > 40_000
    assert compare(ours, ours) == []
    for name in ("line/f16x4", "2d/mode2/linear/normalized", "surface/written"):
        changed = ours | {name: [*ours[name][:-1], ours[name][-1] ^ 1]}
        (found,) = compare(changed, ours)
        assert (found.name, found.words, found.documented) == (name, 1, True)
    (found,) = compare({name: words for name, words in ours.items() if name != "open/sums"}, ours)
    assert (found.name, found.documented) == ("open/sums", False)


def test_a_probe_is_a_line() -> None:
    assert read("line/u8 0 1f ffffffff\nNO HAZARD: 2 launches\nopen/a\n") == {
        "line/u8": [0, 31, 0xFFFFFFFF],
        "open/a": [],
    }
