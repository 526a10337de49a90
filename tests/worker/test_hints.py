"""What is said behind a build of one's own kernel that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha.harness.worker.compilers.hints import with_hint


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            'csrc/a.cu(1): error: cannot open source file "utils/tile.h"\nmore',
            'include/utils/tile.h is in the repository: add "-Iinclude" to the adapter\'s flags',
        ),
        ("csrc/a.cu:3:10: fatal error: tile.h: No such file or directory", '"-Iinclude/utils"'),
        ('a.cu(1): error: cannot open source file "ATen/ATen.h"', "add TORCH_HEADERS"),
        ('a.cu(1): error: cannot open source file "glm/glm.hpp"', "no file of the repository is glm/glm.hpp"),
        ("entry of a.cu: there is no add; there are none", "`template __global__ void add<float>(...);`"),
        ("entry of a.cu: there is no ad; there are add, mul", "let `build` return one of those names"),
        (
            "ptxas /t/a.ptx, line 9; error   : Instruction 'cp.async' requires .target sm_80 or higher",
            "compiled for sm_70",
        ),
        ("h.h(4): error: #error C++17 or later compatible compiler is required", 'add "-std=c++17"'),
    ],
    ids=["header", "host header", "torch", "elsewhere", "no entry", "another entry", "architecture", "standard"],
)
def test_it_is_behind_the_headline(tmp_path: Path, said: str, words: str) -> None:
    (tmp_path / "include/utils").mkdir(parents=True)
    (tmp_path / "include/utils/tile.h").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/glm").mkdir()
    headline, hint, *rest = with_hint(said, "sm_70", tmp_path).split("\n")
    assert [headline, *rest] == said.split("\n")
    assert hint.startswith("next: ")
    assert words in hint


def test_what_is_not_known_is_left_as_it_is(tmp_path: Path) -> None:
    said = 'a.cu(7): error: identifier "x" is undefined'
    assert with_hint(said, "sm_90a", tmp_path) == said
