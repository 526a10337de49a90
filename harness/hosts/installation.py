"""What is installed here: version, commit and core, as `fmha --version` says them and a bug report wants them."""

from __future__ import annotations

from fmha.harness.git import git
from fmha.harness.hosts.this_machine import distribution_version
from fmha.harness.judge.core_digest import of_installed
from fmha.harness.judge.identity import installed_root

_DIGITS = 12  # of a commit and of a core, enough to look either up


def described() -> str:
    """`0.1.0, commit 77c808443a2e, core 5d0f0b4c6c1e`: a plus behind the commit says that files had been changed. What
    is not known is left out: a wheel that was built without git has no commit."""
    parts = [distribution_version("fmha") or "not installed"]
    if commit := _commit():
        parts.append(f"commit {commit.rstrip('+')[:_DIGITS]}{'+' * commit.endswith('+')}")
    if core := of_installed():
        parts.append(f"core {core[:_DIGITS]}")
    return ", ".join(parts)


def _commit() -> str:
    """That of the checkout which this fmha runs from, or the one that its wheel was built of; empty if neither says."""
    root = installed_root()
    if (root / ".git").exists():
        head = git(root, "rev-parse", "HEAD")
        changed = git(root, "diff", "--quiet", "HEAD").returncode != 0
        return head.stdout.strip() + "+" * changed if head.returncode == 0 else ""
    try:
        return (root / "commit.txt").read_text(encoding="ascii").strip()
    except OSError:
        return ""
