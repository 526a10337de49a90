"""Where one's own settings are. Loads next to nothing: a connection is begun before the rest of the client is there."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "FMHA_HOSTS"  # another file of hosts; empty: none


def hosts_file() -> Path | None:
    """The file of one's own hosts, whether it exists or not; None when there is to be none."""
    if (named := os.environ.get(VARIABLE)) is not None:
        return Path(named).expanduser() if named else None
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "fmha" / "hosts.yaml"
