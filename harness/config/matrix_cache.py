"""matrix.yaml as it was read before: reading it takes a model of every section, most of what a command's start takes.

What is kept is plain data in the account's own folder (harness/account.py). Its name is a digest of all that it comes
of: the bytes of the file and of one's own hosts, this Python, and the code that reads them. What is damaged, or cannot
be had, is read anew. Files that name kernels are never kept: what they mean is not in their text alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmha.harness import account
from fmha.harness.errors import FmhaError

if TYPE_CHECKING:
    from fmha.harness.config.matrix_model import Matrix

FOLDER = "matrices"
MOST_KEPT = 32
# What decides how a file is read, below harness/.
_CODE = ("config/*.py", "contract/*.py", "judge/*.py", "worker/subjects/peers.py", "depth.py", "own_settings.py")


def name_of(raw: bytes, own: bytes | None) -> str:
    """The name under which the meaning of matrix.yaml's bytes is kept, with one's own hosts, or without at all."""
    digest = hashlib.sha256(_code())
    for part in (sys.version.encode(), raw, b"" if own is None else b"own" + own):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def plain(root: Path, name: str) -> dict[str, Any] | None:
    """What is kept under a name, as it was written; None where there is nothing. `root` is the checkout, in which it
    cannot lie: a commit could bring it."""
    with contextlib.suppress(FmhaError, OSError, ValueError):
        text = account.take(account.folder(FOLDER, outside=root) / name)
        found = None if text is None else json.loads(text)
        return found if isinstance(found, dict) else None
    return None


def take(root: Path, name: str) -> Matrix | None:
    """The matrix that is kept under a name, if there is one."""
    found = plain(root, name)
    if found is not None:
        from fmha.harness.config.plain import matrix_of

        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            return matrix_of(found)
    return None


def keep(root: Path, name: str, matrix: Matrix) -> None:
    """Keeps a matrix of the attention kernels alone under a name. That it cannot is no failure."""
    from fmha.harness.config.plain import plain_of

    text = json.dumps(plain_of(matrix), separators=(",", ":")).encode()
    with contextlib.suppress(FmhaError, OSError):
        account.keep(account.folder(FOLDER, outside=root) / name, text, MOST_KEPT)


@functools.cache
def _code() -> bytes:
    """A digest of the code that makes a matrix of text."""
    harness = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in (path for pattern in _CODE for path in sorted(harness.glob(pattern))):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(harness)} {len(data)}\n".encode() + data)
    return digest.digest()


def hosts_of(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of each host in what is kept."""
    hosts = found.get("hosts")
    return hosts if isinstance(hosts, dict) else {}
