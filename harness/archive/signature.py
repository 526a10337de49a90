"""Signatures of baselines, by the SSH keys that people have: `ssh-keygen -Y`.

A checksum tells damage, not forgery: whoever edits a file can redo it. So a baseline may have a signature beside it,
`NAME.json.sig`. Where the folder has a file `allowed_signers`, in the form that ssh-keygen(1) describes, every baseline
in it must be signed by one of those.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fmha.harness.archive.folder import writing
from fmha.harness.errors import InfrastructureError, UserError
from fmha.harness.git import git

SIGNERS = "allowed_signers"
NAMESPACE = "fmha-baseline"  # so that a signature made for something else is none
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Signed:
    """`by` is the signer as `allowed_signers` names them; None when nobody vouches, and `note` says so."""

    by: str | None
    note: str


def check(path: Path) -> Signed:
    """Who signed a baseline. Raises UserError for one that its folder's signers do not vouch for."""
    signers, signature = path.with_name(SIGNERS), signature_of(path)
    if not signers.is_file():
        if signature.is_file():
            return Signed(None, f"baseline {path.stem} has a signature that nobody can check: there is no {signers}")
        return Signed(None, f"baseline {path.stem} is not signed")
    step = f"look at who changed it; fmha baseline sign {path.stem} vouches for what is there"
    if not signature.is_file():
        raise UserError(f"is not signed, and {SIGNERS} says who has to", where=str(path), next_step=step)
    found = _run("find-principals", "-f", str(signers), "-s", str(signature))
    names = found.stdout.splitlines() if found.returncode == 0 else []
    for name in names:
        told = ("-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
        if _run("verify", *told, stdin=path.read_bytes()).returncode == 0:
            return Signed(name, f"baseline {path.stem} is signed by {name}")
    why = "is not what was signed: it was edited" if names else f"is signed by nobody in {SIGNERS}"
    raise UserError(why, where=str(path), next_step=step)


def sign(path: Path, key: Path) -> Path:
    """Sign a baseline with a private key, or with the agent's for a public one. Returns the signature's file.

    ssh-keygen asks for a passphrase on the terminal if the key has one. Raises UserError when it does not sign.
    """
    with tempfile.TemporaryDirectory(prefix="fmha-sign-") as folder, writing(path.parent):
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        done = _run("sign", "-f", str(key), "-n", NAMESPACE, str(copy), terminal=True)
        made = signature_of(copy)
        if done.returncode != 0 or not made.is_file():
            words = done.stderr.strip().splitlines() or [f"ssh-keygen ended with {done.returncode}"]
            raise UserError(f"cannot sign: {words[-1]}", where=str(key), next_step="name another key with --key")
        target = signature_of(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copyfile(made, temporary)
        os.replace(temporary, target)
    return target


def signature_of(path: Path) -> Path:
    """Where the signature of a file lies, beside it."""
    return path.with_name(f"{path.name}.sig")


def usual_key(root: Path) -> Path | None:
    """The key that git signs with in this checkout, if it is an SSH key in a file."""
    if git(root, "config", "gpg.format").stdout.strip() != "ssh":
        return None
    key = git(root, "config", "--type=path", "user.signingkey").stdout.strip()
    return Path(key) if key and not key.startswith("key::") and Path(key).is_file() else None


def _run(
    what: str, *arguments: str, stdin: bytes | None = None, terminal: bool = False
) -> subprocess.CompletedProcess[str]:
    command = ["ssh-keygen", "-Y", what, *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=None if terminal else SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise InfrastructureError("ssh-keygen is not on PATH", next_step="install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"ssh-keygen -Y {what} took longer than {SECONDS:g} s") from error
    text = [stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr)]
    return subprocess.CompletedProcess(command, done.returncode, *text)
