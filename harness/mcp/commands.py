"""A command of fmha as a tool calls it: in a process of its own, for a time, with an answer that is JSON or an error.

A tool's words come from a program that may have read anything. They name kernels below the root and nothing else: no
option, no program, no host. What the commands run of the repository they enclose themselves; a sandbox is required, as
`--isolation require` has it, unless whoever started the server says otherwise. A file of PTX runs in one as a whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fmha.harness.errors import UserError
from fmha.harness.isolate import VARIABLE, Grant, enclose

MOST_BYTES: Final = 64 << 20  # of what a command prints
MOST_WORD: Final = 300  # characters
_WORD = re.compile(r"[A-Za-z0-9_][\w./=|,:+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: its exit code, its JSON if it printed some, and its last words."""

    code: int
    said: Any
    words: str


class Commands:
    """The commands in the folder `root`, each for `seconds` at most."""

    def __init__(self, root: Path, seconds: float) -> None:
        self.root = root.resolve()
        self._seconds = seconds

    def run(self, *words: str, ptx: bool = False) -> Done:
        """UserError when it takes too long. `ptx`: all that it reads is below the root, and it runs in the sandbox."""
        environment = {VARIABLE: "require", **os.environ}
        command = [sys.executable, "-P", "-m", "fmha", *words, "--json"]
        with tempfile.TemporaryDirectory(prefix="fmha-mcp-") as scratch:
            if ptx:
                grant = Grant(read=(self.root,), write=(Path(scratch),))
                command, environment = enclose(command, grant, cwd=self.root, environment=environment)
            return self._finished(command, environment, Path(scratch))

    def _finished(self, command: Sequence[str], environment: Mapping[str, str], scratch: Path) -> Done:
        with (scratch / "said").open("w+b") as said, (scratch / "words").open("w+b") as words:
            # The server's own standard input and output are the protocol's.
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=words,
                start_new_session=True,
            )
            try:
                process.wait(self._seconds)
            except subprocess.TimeoutExpired as error:
                raise UserError(
                    f"it took more than {self._seconds:g} s and was ended",
                    next_step="name one case, a smaller one, or fewer schedules",
                ) from error
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            texts = [_read(stream) for stream in (said, words)]
        try:
            found = json.loads(texts[0])
        except ValueError:
            found = None
        return Done(process.returncode, found, (texts[1].strip() or texts[0].strip())[-2000:])

    @contextlib.contextmanager
    def file_of(self, lines: Sequence[str]) -> Iterator[str]:
        """A file with these lines, of which a command can be told."""
        with tempfile.NamedTemporaryFile("w", prefix="fmha-mcp-", suffix=".txt", encoding="utf-8") as written:
            written.write("".join(f"{line}\n" for line in lines))
            written.flush()
            yield written.name

    def kernel(self, name: str, launch: str) -> tuple[list[str], bool]:
        """What names the launch, and whether it is a file of PTX. UserError for what it may not be."""
        word = self.word("kernel", name)
        is_file = word.endswith(".ptx")
        if is_file:
            self._below("kernel", word)
        if not launch:
            return [word], is_file
        if launch.endswith((".yaml", ".yml")):
            self._below("launch", launch)
        return [word, f"--launch={self.word('launch', launch)}"], is_file

    def word(self, what: str, text: str) -> str:
        """A name, and no option of a command's."""
        if len(text) > MOST_WORD or not _WORD.fullmatch(text) or ".." in text:
            raise UserError(f"{what} {text[:60]!r} is no name of a kernel, a case or a file below the root")
        return text

    def _below(self, what: str, name: str) -> None:
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root) or not path.is_file():
            raise UserError(f"{what}: there is no file {name[:200]} below the root", where=str(self.root))


def _read(stream: Any) -> str:
    stream.seek(0)
    data: bytes = stream.read(MOST_BYTES + 1)
    return data.decode(errors="replace") if len(data) <= MOST_BYTES else ""
