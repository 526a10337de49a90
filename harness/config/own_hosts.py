"""One's own hosts: settings that are nobody else's, in a file that is in no repository.

`~/.config/fmha/hosts.yaml`, or the file that FMHA_HOSTS names, has a section `hosts` like matrix.yaml. A host that
matrix.yaml has too takes from it what this file does not say.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from fmha.harness.config.host_sections import HostSection
from fmha.harness.config.section import HostName, Section
from fmha.harness.config.settings import HostSettings
from fmha.harness.config.validation import conforming, mapping
from fmha.harness.errors import ConfigError, UserError
from fmha.harness.own_settings import VARIABLE, hosts_file


class OwnFile(Section):
    """What ~/.config/fmha has: hosts of one's own."""

    hosts: dict[HostName, HostSection] = Field(default={})


def own_hosts(shared: Mapping[str, Mapping[str, Any]]) -> dict[str, HostSettings]:
    """The settings of every host of the file; `shared` are the sections of matrix.yaml, by name. Raises UserError."""
    path = hosts_file()
    try:
        text = path.read_text(encoding="utf-8-sig") if path else ""
    except FileNotFoundError:
        if VARIABLE in os.environ:
            raise UserError(f"{VARIABLE} names a file that is not there", where=str(path)) from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {error}", where=str(path)) from error
    if not text.strip():
        return {}
    document = mapping(text, str(path))
    if not isinstance(hosts := document.data.get("hosts", {}), dict):
        raise ConfigError([document.problem(("hosts",), "must be a mapping of hosts by name")])
    merged = {name: merge(shared.get(name, {}), section) for name, section in hosts.items()}
    file = conforming(OwnFile, document.data | {"hosts": merged}, document)
    return {name: _owned(section.settings(name), hosts[name]) for name, section in file.hosts.items()}


def _owned(settings: HostSettings, section: Mapping[str, Any]) -> HostSettings:
    """The settings, with the names of those that this file has: what they name, one has chosen oneself."""
    if settings.remote is None:
        return settings
    inner = {f"{name}.{word}" for name, value in section.items() if isinstance(value, dict) for word in value}
    return replace(settings, remote=replace(settings.remote, own=frozenset({*section, *inner})))


def add(name: str, alias: str) -> Path:
    """Adds a host that ssh reaches to the file, which is made when there is none; its path. Raises UserError."""
    from fmha.harness.archive import replace  # here, for no other command needs to load it for its settings

    path = hosts_file()
    if path is None:
        raise UserError(f"{VARIABLE} is empty, so that there is no file of one's own", next_step="unset it")
    text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    lines = ["  kind: ssh", f"  alias: {json.dumps(alias)}"]
    if not text.strip():
        text = "hosts:\n" + _indented(name, lines, "  ")
    else:
        document = mapping(text, str(path))
        hosts = document.data.get("hosts")
        if isinstance(hosts, dict) and name in hosts:
            raise UserError(f"host {name!r} is there already", where=f"{path}:{document.line(('hosts', name))}")
        found = re.search(r"^hosts:[ \t]*(?:#.*)?\n(?=(?:[ ]*#.*\n|[ \t]*\n)*([ ]+)[^\s#])", text, re.MULTILINE)
        if found is None:
            raise UserError("its section hosts has no line of its own to add to", where=str(path))
        text = text[: found.end()] + _indented(name, lines, found[1]) + text[found.end() :]
    conforming(OwnFile, {"hosts": {name: mapping(text, str(path)).data["hosts"][name]}}, mapping(text, str(path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(text.encode(), path)
    return path


def _indented(name: str, lines: list[str], indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in (f"{name}:", *lines))


def merge(shared: Mapping[str, Any], own: Any) -> Any:
    """`own` over `shared`, section by section; what is no section replaces."""
    if not isinstance(own, dict):
        return own
    inner = {name: merge(shared[name], value) for name, value in own.items() if isinstance(shared.get(name), dict)}
    return {**shared, **own, **inner}
