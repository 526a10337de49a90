"""What looks like a secret: files that a snapshot must not take along by surprise.

A small set of rules, by name for what tools keep their secrets in, by content for what names itself: keys and the
tokens whose makers gave them a prefix to be found by. It is a rail, not a wall.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

LARGEST_BYTES = 8 << 20  # that are looked at of one file
_NAMES = (
    ".env", ".env.*", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass",
    "credentials", "credentials.json", "secrets.*", "kubeconfig", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
    "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx",
)  # fmt: skip
_FOLDERS = (".ssh", ".gnupg", ".aws", ".kube", ".docker")
_HARMLESS = ("*.example", "*.sample", "*.template", "*.dist")
_CONTENTS = {
    "a private key": rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY",
    "an AWS key": rb"\bA[KS]IA[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})",
    "a GitLab token": rb"\bglpat-[A-Za-z0-9_-]{20}",
    "a Hugging Face token": rb"\bhf_[A-Za-z0-9]{30}",
    "a PyPI token": rb"\bpypi-AgE[A-Za-z0-9_-]{50}",
    "a Slack token": rb"\bxox[abprs]-[A-Za-z0-9-]{20}",
    "an API key": rb"\bsk-[A-Za-z0-9_-]{40}",
}
_RULES = {what: re.compile(rule) for what, rule in _CONTENTS.items()}


def by_name(path: str) -> bool:
    """Whether a file of this name is one that secrets are kept in."""
    *folders, name = path.lower().split("/")
    if any(fnmatchcase(name, pattern) for pattern in _HARMLESS):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _NAMES) or any(folder in _FOLDERS for folder in folders)


def by_content(data: bytes) -> str:
    """What kind of secret is in it; empty for none."""
    return next((what for what, rule in _RULES.items() if rule.search(data)), "")
