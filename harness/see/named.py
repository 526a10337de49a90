"""What a person types for a launch, and the launch that it names: every command that looks on asks here.

It is a configuration as `fmha run-matrix` prints it, a file of PTX with its launch.yaml, a program that nvcc has built,
or a Python script. A program or a script with arguments stands behind `--`, or is one quoted word.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fmha.harness.errors import UserError
from fmha.harness.scripted.script_machine import ARCHS
from fmha.harness.see.configurations import of_configuration
from fmha.harness.see.launch_subject import LaunchSubject
from fmha.harness.see.program_launches import of_program, of_script
from fmha.harness.see.ptx_files import of_file
from fmha.harness.stages.preflight import project_of

_PYTHON = re.compile(r"python[\d.]*")
_PTX = (".ptx", ".cubin", ".fatbin", ".o")
_YAML = (".yaml", ".yml")
ARCH = "sm_100a"  # of a program's GPU and a script's kernels, where nobody says


def named(
    words: Sequence[str],
    launch: str | None = None,
    *,
    command: bool = False,
    schedule: str | None = None,
    arch: str | None = None,
    root: Path | None = None,
    cache: Path | None = None,
) -> LaunchSubject:
    """The launch, or launches, that `words` name; `command` where `--` stood before them. `launch` is the launch.yaml
    of a file of PTX; of anything else the number of a launch, or a part of its entry's name. Configurations are of
    `root` or of the checkout that we are in, or else of the kernels that fmha brings. Raises UserError.
    """
    if not words:
        raise UserError(
            "nothing is named", next_step="name a configuration, a file of PTX with --launch, or -- PROGRAM"
        )
    if arch is not None and arch not in ARCHS:
        raise UserError(f"--arch: {arch!r} is not one of {', '.join(ARCHS)}")
    if not command and len(words) > 1:
        step = "a program and its arguments stand behind `--`"
        raise UserError(f"{words[1]!r}: one kernel is looked at, {words[0]}", next_step=step)
    word = words[0]
    kind = _kind_of_words(words) if command else kind_of(word, launch)
    if kind == "file of PTX":
        if launch is None:
            raise UserError(f"{word}: a file of PTX needs its launch", next_step="give --launch LAUNCH.yaml")
        return of_file(Path(word), Path(launch), schedule)
    if launch is not None and launch.endswith(_YAML):
        raise UserError(f"--launch: {launch} is the launch of a file of PTX, and {word} is none")
    if kind == "configuration":
        home = root or project_of(Path.cwd())
        found = of_configuration(home, word, schedule=schedule or "realistic", cache=cache)
    else:
        words = words if command else _split(word)
        if kind == "script":
            found = of_script(words[1:] if _PYTHON.fullmatch(Path(words[0]).name) else words, arch or ARCH, schedule)
        else:
            found = of_program(words, arch or ARCH, schedule)
    return replace(found, which=launch)


Kind = Literal["configuration", "file of PTX", "program", "script"]


def kind_of(word: str, launch: str | None) -> Kind:
    """What one word names."""
    if word.endswith(_PTX) or (launch is not None and launch.endswith(_YAML)):
        return "file of PTX"
    words = _split(word)
    if len(words) > 1 or _PYTHON.fullmatch(word) or Path(word).is_file():
        return _kind_of_words(words)
    if os.sep in word:
        raise UserError("there is no such file", where=word)
    return "configuration"


def _kind_of_words(words: Sequence[str]) -> Kind:
    return "script" if _PYTHON.fullmatch(Path(words[0]).name) or words[0].endswith(".py") else "program"


def _split(word: str) -> Sequence[str]:
    """A quoted command's words; a file's name is one, whatever it has in it."""
    if Path(word).exists():
        return (word,)
    try:
        return shlex.split(word) or ("",)
    except ValueError as error:
        raise UserError(str(error), where=word) from error
