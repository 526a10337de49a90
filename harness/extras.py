"""What to install for an extra of fmha: its packages by their own names, since fmha's own is on no index of ours."""

from __future__ import annotations

import re


def install(*extras: str) -> str:
    """The command that installs what the extras are for, beside the fmha that runs."""
    from importlib import metadata  # here, for it takes a tenth of a client's start, and little that it says is said

    try:
        required = metadata.requires("fmha") or []
    except metadata.PackageNotFoundError:
        required = []
    wanted = [item for item in required if any(re.search(rf"""extra == ['"]{extra}['"]""", item) for extra in extras)]
    named = [item.partition(";")[0].replace(" ", "") for item in wanted]
    words = " ".join(f"'{item}'" for item in dict.fromkeys(named))
    return f"pip install {words}" if words else f"install the extra {','.join(extras)}"
