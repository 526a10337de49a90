"""What pages of the documentation have from programs: between `<!-- MARK -->` and `<!-- end -->`."""

from __future__ import annotations

import os
from pathlib import Path


def assert_shown(page: Path, mark: str, text: str) -> None:
    """`page` has `text` at that mark. Under FMHA_WRITE_DOCS=1 it is written there instead."""
    begin, end = f"<!-- {mark} -->\n", "\n<!-- end -->"
    before, begun, rest = page.read_text().partition(begin)
    shown, ended, after = rest.partition(end)
    assert begun, f"{page} has no {begin}"
    assert ended, f"{page} has no end of {begin}"
    if os.environ.get("FMHA_WRITE_DOCS"):
        page.write_text(before + begin + text + end + after)
    else:
        assert shown == text
