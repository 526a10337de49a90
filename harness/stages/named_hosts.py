"""The hosts that `--host` names."""

from __future__ import annotations

from fmha.harness.errors import UserError

SEPARATOR = ","


def names(host: str) -> tuple[str, ...]:
    """The hosts of `--host`, in its order. Raises UserError for one that is repeated or has no name."""
    found = tuple(name.strip() for name in host.split(SEPARATOR))
    if "" in found or len(set(found)) < len(found):
        raise UserError(f"--host {host}: a name is empty or repeated", next_step="name each host once: --host a,b")
    return found
