"""Every mutant, and the tables of docs/mutants.md."""

from collections.abc import Iterator, Sequence

from tests.integration.mutants.features import FEATURES
from tests.integration.mutants.fences import FENCES
from tests.integration.mutants.numbers import NUMBERS
from tests.integration.mutants.operands import OPERANDS
from tests.integration.mutants.survivors import SURVIVORS
from tests.integration.mutants.synchronisation import SYNCHRONISATION

SECTIONS = NUMBERS | OPERANDS | FEATURES | SYNCHRONISATION | FENCES
MUTANTS = tuple(mutant for section in SECTIONS.values() for mutant in section)


def tables() -> str:
    """The tables in Markdown: mutants by section, then survivors."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, mutants in SECTIONS.items():
        rows = [(m.name, m.breaks, _codes(sorted(m.caught_by)), str(m.trial)) for m in mutants]
        yield from _table(title, ("Mutant", "Breaks", "Caught by", "Seen with"), rows)
    yield from _table(
        "Survivors", ("Change", "What it does", "Why it is not caught"), [(s.name, s.changes, s.why) for s in SURVIVORS]
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(cells)} |"
    yield ""


def _codes(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
