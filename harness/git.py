"""git as a child process: no locks taken for looking, no prompts, messages in English, bounded in time."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from fmha.harness.errors import InfrastructureError, UserError

GIT_SECONDS = 30


def environment() -> dict[str, str]:
    """No optional locks: looking at a tree must not get in the way of a commit made beside it."""
    return os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def git(
    directory: Path,
    *arguments: str,
    seconds: float = GIT_SECONDS,
    text: str = "",
    more: Mapping[str, str] | None = None,
    errors: str = "replace",
) -> subprocess.CompletedProcess[str]:
    """Run git, `text` on its standard input, and return what came of it, whatever its exit code.

    `more` are variables of its environment, `errors` says what becomes of bytes that are no UTF-8. Raises
    InfrastructureError when git cannot run.
    """
    return begun(directory, *arguments, seconds=seconds, text=text, more=more, errors=errors)()


def begun(
    directory: Path,
    *arguments: str,
    seconds: float = GIT_SECONDS,
    text: str = "",
    more: Mapping[str, str] | None = None,
    errors: str = "replace",
) -> Callable[[], subprocess.CompletedProcess[str]]:
    """The same, begun: what is returned waits for what came of it. For questions that do not wait for each other."""
    # A bare repository in a folder of the tree would bring a configuration, and that programs of its own.
    words = ["git", "-c", "safe.bareRepository=explicit", *arguments]
    variables, pipe = environment() | dict(more or {}), subprocess.PIPE
    try:
        process = subprocess.Popen(
            words, cwd=directory, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8", errors=errors
        )
    except FileNotFoundError as error:
        raise InfrastructureError("git is not installed or not on PATH", next_step="install git") from error

    def ended() -> subprocess.CompletedProcess[str]:
        with process:
            try:
                out, said = process.communicate(text, seconds)
            except BaseException as error:
                process.kill()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                what = f"git {arguments[0]} took longer than {seconds:g} s"
                raise InfrastructureError(what, where=str(directory)) from error
        return subprocess.CompletedProcess(words, process.returncode, out, said)

    return ended


def git_failure(process: subprocess.CompletedProcess[str]) -> InfrastructureError:
    """The error for a git that should have succeeded."""
    words = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    return InfrastructureError(f"git {process.args[3]} failed: {words[0]}")


def git_text(directory: Path, *arguments: str, seconds: float = GIT_SECONDS) -> str:
    """What git prints, without the newline at the end. Raises InfrastructureError when it fails."""
    process = git(directory, *arguments, seconds=seconds)
    if process.returncode != 0:
        raise git_failure(process)
    return process.stdout.removesuffix("\n")


def resolve_commit(directory: Path, name: str) -> str | None:
    """The full name of the commit that `name` means, or None. Raises UserError for a name of several refs, of which git
    takes one with a word to standard error: a tag of a branch's name, for one, comes with a fetch."""
    asked = ("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    found = git(directory, "-c", "core.warnAmbiguousRefs=true", *asked)
    if "is ambiguous" in found.stderr:
        raise UserError(
            f"{name!r} is the name of several refs",
            where=str(directory),
            next_step="name one in full, as refs/heads/... or refs/tags/..., or by its hash",
        )
    return found.stdout.strip() if found.returncode == 0 else None
