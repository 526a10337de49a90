"""Textures and surfaces give what an H100 gave for the same program, word by word; a word that differs is seen."""

from __future__ import annotations

import pytest

from tests.probes.textures import compare, read, read_h100, run_emulator


@pytest.mark.nvcc
def test_the_emulator_gives_the_words_of_an_h100() -> None:
    gpu = read_h100()
    assert (len(gpu), sum(map(len, gpu.values()))) == (189, 64_937)
    assert list(map(str, compare(gpu, run_emulator("strict")))) == []


def test_one_changed_word_is_a_difference() -> None:
    ours = read_h100()
    assert compare(ours, ours) == []
    for name in ("line/f16x4", "2d/mode2/linear/normalized", "surface/written"):
        changed = ours | {name: [*ours[name][:-1], ours[name][-1] ^ 1]}
        (found,) = compare(changed, ours)
        assert (found.name, found.words, found.documented) == (name, 1, True)
    fewer = {name: words for name, words in ours.items() if name != "open/sums"}
    assert compare(fewer, ours) == []
    (found,) = compare(ours, fewer)
    assert (found.name, found.documented) == ("open/sums", False)


def test_a_probe_is_a_line() -> None:
    assert read("line/u8 0 1f ffffffff\nNO HAZARD: 2 launches\nopen/a\n") == {
        "line/u8": [0, 31, 0xFFFFFFFF],
        "open/a": [],
    }
