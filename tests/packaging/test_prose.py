"""Guides can be read: lines that fit, sentences and pages of a length, the field's words in place of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.prose import COLUMNS, PAGE_WORDS, SENTENCE_WORDS, faults, glossary, wrap

ROOT = Path(__file__).parents[2]
DEFINED = glossary((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
GUIDES = sorted(
    subprocess.run(
        [
            "git",
            "ls-files",
            "README.md",
            "CONTRIBUTING.md",
            "docs/glossary.md",
            "docs/use/*.md",
            "docs/understand/*.md",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
)


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_can_be_read(name: str) -> None:
    assert faults((ROOT / name).read_text(encoding="utf-8"), DEFINED) == []


WORD = "word "


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (f"{WORD * 30}.\n", f"1: {len(WORD) * 30 + 1} columns"),
        ("Short.\n\n- A\n" + "  word\n" * SENTENCE_WORDS, f"3: a sentence of {SENTENCE_WORDS + 1} words"),
        ("A walker takes\nthe next row tile.\n", "'walker' is a private word; persistent CTA"),
        ("The walks of a CTA.\n", "'walk' is a private word"),
        ("A word.\n" * (PAGE_WORDS // 2 + 1), f"{PAGE_WORDS + 2} words"),
    ],
)
def test_what_is_hard_to_read_is_said(page: str, said: str) -> None:
    (fault,) = faults(page)
    assert said in fault


@pytest.mark.parametrize(
    "page",
    [
        f"| a table | {WORD * 60}|\n",
        f"```\n{WORD * 60}\n```\n",
        f"- An item:\n\n  ```\n  {WORD * 60}\n  ```\n",
        f"<!-- mark -->\n{WORD * 60}\n<!-- end -->\n",
        f"![{WORD * 30}](picture.svg)\n",
        f"A link of\n[two words](page.md#{'x' * COLUMNS}).\n",
        "`walker` is code.\n",
    ],
)
def test_what_is_no_prose_is_let_be(page: str) -> None:
    assert faults(page) == []


def test_a_word_that_the_glossary_defines_is_allowed() -> None:
    defined = glossary("**Walk, walker.** What a CTA does.\n")
    assert defined == {"walk", "walker"}
    assert faults("A walker.\n", defined) == []
    assert faults("Two rooms.\n", glossary("**Room.** A folder.\n")) == []


def test_lines_are_broken_where_they_may_be() -> None:
    link = f"[{WORD * 8}](page.md#an-anchor)"
    item = f"- {WORD * 8}{link} `some code` {WORD * 14}.\n- other\n"
    code = "- An item:\n\n  ```\n  one\n  two\n  ```\n- Another.\n"
    page = f"# Heading\n\n{item}\n| a | {WORD * 40}|\n\n    code  as it is\n\n{code}"
    wrapped = wrap(page)
    assert "columns" in faults(page)[0]
    assert faults(wrapped) == []
    assert wrapped.split() == page.split()
    assert link in wrapped
    assert "\n    code  as it is\n" in wrapped
    assert code in wrapped
    assert wrap(wrapped) == wrapped
