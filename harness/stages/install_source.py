"""Where this fmha was installed from, as pip has written it down, and what else an extra of it takes.

The name `fmha` is on no index that is ours: whatever is told to install it names a place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

PAGE = "docs/use/install.md"


def place() -> str | None:
    """What stands behind `fmha @` where the same can be installed elsewhere: a commit of a public repository, or a
    wheel whose contents are known by their digest. None where it came from a folder of this machine or nobody knows."""
    try:
        text = metadata.distribution("fmha").read_text("direct_url.json")
        return _place(json.loads(text)) if text else None
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _place(said: Mapping[str, Any]) -> str | None:
    url = str(said.get("url", ""))
    if not re.fullmatch(r"https://[^\s'\"$`\\@]+", url):
        return None
    commit = said.get("vcs_info", {}).get("commit_id", "")
    if re.fullmatch(r"[0-9a-f]{40}", commit):
        return f"git+{url}@{commit}"
    digest = said.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    return f"{url}#sha256={digest}" if re.fullmatch(r"[0-9a-f]{64}", digest) else None
