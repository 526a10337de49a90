"""What makes a page of the documentation hard to read, as far as a program can see it.

    python -m tools.prose PAGE...          # says what is wrong, and where
    python -m tools.prose --wrap PAGE...   # breaks the lines of paragraphs and lists anew

Looked at is prose: not tables, code, pictures or what a test writes between `<!-- mark -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

COLUMNS: Final = 120
SENTENCE_WORDS: Final = 35
PAGE_WORDS: Final = 2500  # a page that is read in ten minutes
# Words that only the authors understand, and what the field says. A page may have one that the glossary defines.
PRIVATE: Final = {
    "walk": "persistent CTAs",
    "walker": "persistent CTA",
    "stranger": "a third-party kernel, or who it is",
    "rooms": "packages or folders",
    "turn of the GPU": "wave",
    "held against": "compared with",
    "whence": "from where",
    "goes alone": "what it does without others",
    "row tiles alone": "only row tiles that",
    "so many as": "as many as",
    "one that there are": "one that exists",
}
_ITEM = re.compile(r" *(?:[-*]|\d+\.) +")
_KEPT = re.compile(r"!?\[[^\]]*\]\([^)]*\)|`[^`]*`")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines of prose by their numbers; a line that separates paragraphs is empty."""
    until = ""
    indented = False
    for number, line in enumerate(text.split("\n"), 1):
        if until:
            until = "" if line.lstrip().startswith(until) else until
            yield number, ""
        elif line.lstrip().startswith("```") or line.startswith("<!--"):
            until = "<!-- end -->" if line.startswith("<!--") else "```"
            until = "" if line.startswith("<!-- end") else until
            yield number, ""
        elif line.startswith(("|", "#", "![")) or (line.startswith("    ") and not indented):
            yield number, ""
        else:
            indented = bool(line) and (indented or bool(_ITEM.match(line)))  # what follows continues the item
            yield number, line


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences by the number of the line in which their paragraph begins, code and targets of links left out."""
    begin, paragraph = 0, ""
    for number, line in [*lines(text), (0, "")]:
        if not line.strip() or _ITEM.match(line):
            plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
            yield from ((begin, sentence) for sentence in re.split(r"(?<=[.!?:;])\s+", plain.strip()) if sentence)
            begin, paragraph = number, ""
        item = _ITEM.match(line)
        paragraph += f"{line[item.end() :] if item else line} "


def faults(text: str, defined: frozenset[str] = frozenset()) -> list[str]:
    """What is wrong with a page, a line each. `defined`: words that the glossary has."""
    found = [f"{number}: {len(line)} columns" for number, line in lines(text) if _width(line) > COLUMNS]
    words = 0
    for number, sentence in sentences(text):
        length = len(sentence.split())
        words += length
        if length > SENTENCE_WORDS:
            found.append(f"{number}: a sentence of {length} words: {sentence[:60]}...")
        for private, instead in PRIVATE.items():
            if not {private, private.removesuffix("s")} & defined and re.search(
                rf"\b{private}(?:s|ed|ing)?\b", sentence, re.IGNORECASE
            ):
                found.append(f"{number}: {private!r} is a private word; {instead}")
    if words > PAGE_WORDS:
        found.append(f"{words} words; a page of more than {PAGE_WORDS} is two pages")
    return found


def glossary(text: str) -> frozenset[str]:
    """The words that a glossary defines, in lower case."""
    heads = re.findall(r"^\*\*([^*]+)\.\*\*", text, re.MULTILINE)
    return frozenset(word.strip().lower() for head in heads for word in head.split(","))


def _width(line: str) -> int:
    """Of what can be broken: a long link or piece of code stands on a line by itself."""
    return 0 if len(line.split()) <= 1 or _KEPT.fullmatch(line.strip(" -.,;:")) else len(line)


def wrap(text: str) -> str:
    """The page with its prose in lines of at most COLUMNS; links and code stay in one piece."""
    out: list[str] = []
    paragraph: list[str] = []

    def end() -> None:
        if paragraph:
            out.extend(_wrapped(paragraph))
            paragraph.clear()

    for (_, line), original in zip(lines(text), text.split("\n"), strict=True):
        if not line.strip():
            end()
            out.append(original)
            continue
        if _ITEM.match(line):
            end()
        paragraph.append(line)
    end()
    return "\n".join(out)


def _wrapped(paragraph: list[str]) -> list[str]:
    item = _ITEM.match(paragraph[0])
    lead = item[0] if item else re.match(" *", paragraph[0])[0]  # type: ignore[index]
    body = " ".join(line.strip() for line in [paragraph[0][len(lead) :], *paragraph[1:]])
    kept = _KEPT.findall(body)
    numbers = iter(range(len(kept)))

    def held(match: re.Match[str]) -> str:  # as wide as what it stands for, and without a space
        return f"\x00{next(numbers)}".ljust(len(match[0]) - 1, "\x01") + "\x02"

    broken = textwrap.wrap(
        _KEPT.sub(held, body),
        COLUMNS,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [re.sub("\x00(\\d+)\x01*\x02", lambda match: kept[int(match[1])], line) for line in broken]


def main() -> int:
    """Says what is hard to read in pages, or wraps them. 1 where there is something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--wrap", action="store_true")
    given = parser.parse_args()
    defined = glossary((Path(__file__).parents[1] / "docs/glossary.md").read_text(encoding="utf-8"))
    wrong = 0
    for page in given.pages:
        if given.wrap:
            page.write_text(wrap(page.read_text(encoding="utf-8")), encoding="utf-8")
        for fault in faults(page.read_text(encoding="utf-8"), defined):
            print(f"{page}:{fault}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
