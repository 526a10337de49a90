"""The process that answers for a commit's kernel side: how it is asked, and what of its answers is believed.

A line of JSON each way. The first line of the process says which protocol it speaks; then it answers one request after
the other, and may ask in between for what only a device can do. It runs the commit's code: an answer is plain data of
bounded size that comes in bounded time, and what is used of it is checked against what there can be.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, Final

from fmha.harness import isolate
from fmha.harness.contract.codec import CodecError, decode
from fmha.harness.contract.protocol import Variant
from fmha.harness.kernel_side import PROTOCOL
from fmha.harness.worker.processes.groups import spawn, terminate_group
from fmha.harness.worker.processes.heard import Heard

ANSWER_SECONDS: Final = 60.0
MOST_BYTES: Final = 1 << 20  # of an answer
_MOST_WORDS: Final = 256  # of flags and defines, and characters of a name
_MOST_OF_A_FILE: Final = 200  # of a variant's name: its build is a folder that is named by it, and by two hashes
_MOST_CHARACTERS: Final = 4096  # of one flag
_MEMORY: Final = 4 << 30
_OF_A_SHELL = frozenset('$`"\\;&|<>\n')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class KernelSideError(Exception):
    """The commit's own code failed at what is its part; the message has what it said."""


class AnsweredError(KernelSideError):
    """It failed at one question, and answers others."""


@dataclass(frozen=True, slots=True)
class VariantChoice:
    """The variant for a configuration; what nvcc is given to make its PTX, and to assemble that."""

    variant: Variant
    flags: tuple[str, ...]
    assemble: tuple[str, ...]


class Planner:
    """The process of the commit that `tree` is a checkout of, started when it is first asked."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = bytearray()
        self._heard: Heard | None = None

    def say(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What it answers: an object. Raises KernelSideError for anything else, and for what it could not do."""
        process = self._process = self._process or self._started()
        answer = self._asked(process, message)
        if not isinstance(answer, dict):
            raise KernelSideError("the commit's side of the run answered with no object")
        if "error" in answer:
            raise AnsweredError(f"the commit's launcher failed: {str(answer['error'])[:_MOST_CHARACTERS]}")
        return answer

    def close(self) -> None:
        if self._process is not None:
            _ended(self._process)

    def _asked(self, process: subprocess.Popen[bytes], message: Mapping[str, Any]) -> Any:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            pass  # it has ended: its output does, too
        return self._answer(process)

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        line = self._line(process)
        if not line:
            said = self._heard.last_words() if self._heard else ""
            raise KernelSideError(f"the commit's side of the run ended early{said and f'; it last said: {said}'}")
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise KernelSideError("the commit's side of the run wrote a line that is no answer") from error

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """Its next line, empty when it has ended."""
        assert process.stdout is not None
        end = time.monotonic() + ANSWER_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise KernelSideError(f"the commit's side of the run gave no answer in {ANSWER_SECONDS:g} s")
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return b""
                self._pending += data
                if len(self._pending) > MOST_BYTES:
                    raise KernelSideError(f"the commit's side of the run wrote more than {MOST_BYTES} bytes at once")
        line, _, self._pending = self._pending.partition(b"\n")
        return bytes(line)

    def _started(self) -> subprocess.Popen[bytes]:
        command, environment = enclosed(self._tree, "fmha.harness.kernel_side", "__main__.py")
        process = spawn(
            command,
            cwd=self._tree / "harness",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        self._heard = Heard(process.stderr)
        hello = self._answer(process)
        spoken = hello.get("protocol") if isinstance(hello, dict) else None
        if spoken != PROTOCOL:
            _ended(process)
            raise KernelSideError(f"the commit's kernel side speaks protocol {spoken!r:.20}, this judge {PROTOCOL}")
        return process


def enclosed(tree: Path, module: str, file: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs a module of the commit's kernel side, which is `file` there, and its environment. Raises
    KernelSideError for a tree that has none, or that leads out of itself."""
    if not (tree / "harness" / "kernel_side" / file).is_file():
        raise KernelSideError("the commit is of before the kernel's side was a folder: it cannot be asked from here")
    # -S: an editable installation would put the judge's own modules before the commit's.
    packages = [path for path in sys.path if "site-packages" in path]
    paths = dict.fromkeys([str(tree), sysconfig.get_path("purelib"), *packages])
    read = [tree / name for name in ("fmha", "harness", "emulator", "kernel")]
    whole = tree.resolve()
    if leading := [path for path in read if not path.resolve().is_relative_to(whole)]:
        raise KernelSideError(f"the commit has a link that leads out of it: {leading[0].name}")
    return isolate.enclose(
        [sys.executable, "-S", "-P", "-m", module],
        isolate.Grant(read=tuple(path for path in read if path.exists()), memory_bytes=_MEMORY),
        cwd=tree / "harness",
        environment=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Ends it with all that it has started."""
    terminate_group(process)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def choice_of(answer: Any, arch: str) -> VariantChoice | str:
    """The choice that a kernel side has said, or the reason that it gave for none. Raises KernelSideError for what
    cannot be one: a file outside of the tree, a compiler of its own, a name that is none."""
    if isinstance(answer, dict) and isinstance(answer.get("reason"), str):
        return str(answer["reason"])[:_MOST_CHARACTERS]
    try:
        known = {field.name for field in fields(Variant)}
        given = {name: value for name, value in answer["variant"].items() if name in known}
        variant = decode(Variant, given, "variant")
        flags, assemble = (_words(answer[name], name) for name in ("flags", "assemble"))
        check(variant, arch)
    except (CodecError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KernelSideError(
            f"the commit describes its kernels in a way that the judge cannot use: {error}"
        ) from error
    return VariantChoice(variant, flags, assemble)


def _words(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_WORDS:
        raise ValueError(f"{what}: not a list of at most {_MOST_WORDS} words")
    for word in value:
        if not isinstance(word, str) or len(word) > _MOST_CHARACTERS or not word.isprintable():
            raise ValueError(f"{what}: {word!r:.80} is no printable word")
        if _OF_A_SHELL & set(word):  # nvcc hands its command lines to one
            raise ValueError(f"{what}: {word!r:.80} has what a shell would interpret")
    return tuple(value)


def check(variant: Variant, arch: str) -> None:
    """Raises ValueError for what no variant of a commit can be."""
    if variant.arch != arch:
        raise ValueError(f"variant.arch: {variant.arch!r:.40} was not asked for, {arch} was")
    if variant.compiler or variant.example:
        raise ValueError("variant.compiler: only an adapter has one")
    names = [variant.name, variant.entry, *variant.others, *([variant.combine] if variant.combine else [])]
    for name in [*names, *(define for define, _ in variant.defines)]:
        if len(name) > _MOST_WORDS or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no name")
    if len(variant.name) > _MOST_OF_A_FILE:
        raise ValueError(f"variant.name has {len(variant.name)} characters, and a file's name no more than 255")
    for text in (variant.source, *variant.sources):
        path = PurePosixPath(text)
        if not text or path.is_absolute() or ".." in path.parts or not text.isprintable():
            raise ValueError(f"{text!r:.80} is no file of the tree")
    _words([*(value for _, value in variant.defines), *variant.flags], "variant.defines")
    if len(variant.others) + len(variant.sources) > _MOST_WORDS or min(_sizes(variant)) < 0:
        raise ValueError("variant.shape: no size can be negative")


def _sizes(variant: Variant) -> tuple[int, ...]:
    shape = variant.shape
    return shape.rows, shape.keys, shape.stages, shape.threads, shape.shared_bytes
