"""Secrets that one's own hosts.yaml names: fetched when a run begins, given to the setup command, kept nowhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from fmha.harness.config import SecretSource
from fmha.harness.errors import UserError
from fmha.harness.own_settings import hosts_file

COMMAND_SECONDS = 120.0  # a password manager may ask its owner first
LEAST_CHARACTERS = 8  # with fewer it could not be told from other text in a log


def fetched(sources: Mapping[str, SecretSource], host: str) -> dict[str, str]:
    """The secrets by the names of their variables. Raises UserError, which never has any part of one."""
    return {name: _value(source, f"{hosts_file()}: hosts.{host}.secrets.{name}") for name, source in sources.items()}


def described(source: SecretSource) -> str:
    """Where a secret comes from, in words."""
    return f"of variable {source.variable}" if source.variable else f"printed by {source.command[0]}"


def _value(source: SecretSource, where: str) -> str:
    value = os.environ.get(source.variable) if source.variable else _printed(source.command, where)
    if value is None:
        raise UserError(f"variable {source.variable} is not set", where=where, next_step=f"export {source.variable}")
    if len(value) < LEAST_CHARACTERS:
        what = f"has {len(value)} characters; with fewer than {LEAST_CHARACTERS} it cannot be kept out of logs"
        raise UserError(f"what is {described(source)} {what}", where=where, next_step="use a longer one")
    if not value.isprintable():
        what = f"what is {described(source)} has more than one line, or characters that do not print"
        raise UserError(what, where=where, next_step="a secret is one line; encode what has more")
    return value


def _printed(command: tuple[str, ...], where: str) -> str:
    """What a command prints. What it says on its standard error, it says to its owner."""
    try:
        done = subprocess.run(list(command), stdout=subprocess.PIPE, timeout=COMMAND_SECONDS, check=False)
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}", where=where) from error
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} has printed nothing for {COMMAND_SECONDS:g} s", where=where) from None
    if done.returncode != 0:
        raise UserError(f"{command[0]} ended with exit code {done.returncode}", where=where, next_step="try it by hand")
    return done.stdout.decode("utf-8", "replace").rstrip("\r\n")
