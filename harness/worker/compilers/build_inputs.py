"""What a build has read, and what it looked for in vain: both must be as they were for the build to be taken again.

As in ccache's direct mode the list comes from the compiler. It is not enough: a header that appears in a folder that is
searched earlier takes the place of the one that was read. So the names that were not there are kept as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmha.harness.worker.compilers.hashes import Hashes

# What a file asks for, by itself or through a macro that hands on what it is given. All of these patterns are for text
# of any size that a commit's author has written: none of them may take the square of its length.
_ASKED = re.compile(r'(?:__has_(?:include(?:_next)?|embed)|HAS_INCLUDE\w{0,64})\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)')
# All that could be a question, and what stands around one that is of a name, or around none.
_QUESTION = re.compile(r"\b__has_(?:include_next|include|embed|)(?!\w)")
_OF_A_NAME = re.compile(r'\s*\(\s*[<"]')
_OF_NOTHING = re.compile(r"(?:\bdefined\s*\(?|#\s*(?:ifdef|ifndef|undef))\s*\Z")
_BEFORE = 256  # characters before a question, in which `defined` stands where it asks for nothing
# Lines that a compiler joins, within a word as well; the second where it knows trigraphs.
_JOINED = (re.compile(r"\\[ \t\f\v]*(?:\r\n?|\n)"), re.compile(r"(?:\\|\?\?/)[ \t\f\v]*(?:\r\n?|\n)"))
# Parted at blanks and ends of lines alone: a name may have any other space, a tab behind a backslash.
_WORD = re.compile(r"(?:\\[ \t#\n]|\$\$|[^ \n\\]|\\)+")


@dataclass(frozen=True, slots=True)
class CompilerInputs:
    """Paths are relative to the root of the sources where they lie below it."""

    files: Mapping[str, str] = field(default_factory=dict)  # what was read: its sha256
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by folder, names that were not in it
    folders: Mapping[str, Sequence[str]] = field(default_factory=dict)  # that were there; what was in those listed

    def hold(self, root: Path, hashes: Hashes) -> bool:
        """Whether a build below `root` would read the same now."""
        base = str(root)
        return (
            all(hashes.of(os.path.join(base, path)) == digest for path, digest in self.files.items())
            and all(hashes.names(os.path.join(base, folder)).isdisjoint(names) for folder, names in self.absent.items())
            and all(_as_it_was(os.path.join(base, folder), names, hashes) for folder, names in self.folders.items())
        )

    def plain(self) -> dict[str, Any]:
        """As JSON has it; `inputs_of` reads it back."""
        named = {"absent": self.absent, "folders": self.folders}
        return {"files": dict(self.files)} | {
            what: {folder: list(names) for folder, names in found.items()} for what, found in named.items()
        }


def inputs_of(plain: Mapping[str, Any]) -> CompilerInputs:
    """Those that `plain` has written; KeyError where one part is missing."""
    return CompilerInputs(plain["files"], plain["absent"], plain["folders"])


def _as_it_was(folder: str, names: Sequence[str], hashes: Hashes) -> bool:
    """Whether a folder is there, and where it was listed has the same in it: its own name stands first then."""
    return os.path.isdir(folder) and (not names or hashes.names(folder) == set(names[1:]))


def made_of(
    root: Path,
    read: Sequence[str],
    search: Sequence[str] | None,
    hashes: Hashes,
    missing: Iterable[str] = (),
    listed_ones: Iterable[str] = (),
) -> CompilerInputs:
    """The inputs of a build in `root` that has `read` these files, and looks for includes in the folders `search`,
    beside the folder of the file that includes; None where nothing is included. `missing` were not there either; of the
    folders `listed_ones` it has asked what is in them."""
    base = str(root)
    files: dict[str, str] = {}
    vain = set(missing)
    there = {path: [path, *sorted(hashes.names(path))] for path in listed_ones if os.path.isdir(path)}
    vain.update(path for path in listed_ones if path not in there)
    for path in dict.fromkeys(read):
        if os.path.isdir(os.path.join(base, path)):
            there.setdefault(path, [])
        elif digest := hashes.of(os.path.join(base, path)):
            files[_label(base, path)] = digest
        else:
            vain.add(path)
    folders: tuple[str, ...] = ()
    if search is not None:
        folders = tuple(dict.fromkeys([*search, *(os.path.dirname(path) for path in files)]))
    asked = [name for path in (files if folders else ()) for name in _asked(os.path.join(base, path))]
    for folder in folders:
        for name in asked:
            if digest := hashes.of(os.path.join(base, folder, name)):
                files[_label(base, os.path.join(folder, name))] = digest
    names = {*asked, *_names(files, folders)}
    absent: dict[str, set[str]] = {}
    for path in (*vain, *(os.path.join(folder, name) for folder in folders for name in names)):
        if gap := _gap(base, path, hashes):
            absent.setdefault(_label(base, gap[0]), set()).add(gap[1])
    return CompilerInputs(
        {path: files[path] for path in sorted(files, key=os.path.isabs)},  # those that change come first
        {folder: sorted(found) for folder, found in sorted(absent.items())},
        {_label(base, folder): names for folder, names in sorted(there.items())},
    )


def _label(base: str, path: str) -> str:
    """How a path is kept: from the root, which is another folder in each checkout, the root itself included."""
    return os.path.relpath(path, base) if path == base or path.startswith(base + "/") else path


def _names(files: Iterable[str], folders: Sequence[str]) -> Iterator[str]:
    """Under what names an include may have asked for the files."""
    starts = [folder + "/" if folder else "" for folder in folders]
    for path in files:
        yield from (path[len(start) :] for start in starts if path.startswith(start))


def _asked(path: str) -> list[str]:
    """What a file asks for by __has_include, which no compiler lists."""
    return [quoted or bracketed for text in _readings(path) for quoted, bracketed in _ASKED.findall(text)]


def asks_by_macro(root: Path, inputs: CompilerInputs, toolchain: Sequence[str]) -> bool:
    """Whether a file outside of the folders `toolchain` asks by __has_include for what a macro makes up: no reading of
    its text tells which file that is. Or for the time of its file, which is no part of what was read."""
    known = tuple(f"{folder}/" for folder in toolchain)
    paths = (os.path.join(root, path) for path in inputs.files)
    return any(_made_up(text) for path in paths if not path.startswith(known) for text in _readings(path))


def _made_up(text: str) -> bool:
    return "__TIMESTAMP__" in text or any(
        not _OF_A_NAME.match(text, found.end())
        and not _OF_NOTHING.search(text[max(0, found.start() - _BEFORE) : found.start()])
        for found in _QUESTION.finditer(text)
    )


def _readings(path: str) -> list[str]:
    """A file's text, and the same as a compiler may read it: with the lines joined that end in a backslash. A name has
    any bytes, and ends of lines that are none of a compiler's."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except OSError:
        return []
    return list(dict.fromkeys([text, *(joined.sub("", text) for joined in _JOINED)]))


def _gap(base: str, path: str, hashes: Hashes) -> tuple[str, str] | None:
    """The folder that is there, and the name that is not in it, for which `path` is not there."""
    folder, last = "", os.path.normpath(path)
    at = "/" if last.startswith("/") else ""
    for part in last.strip("/").split("/"):
        folder = at or "."
        if part not in (".", "..") and part not in hashes.names(os.path.join(base, folder)):
            return folder, part
        at = os.path.join(at, part)
    return None


def listed(text: str) -> list[str]:
    """The files of a compiler's list for make: all but the target."""
    words = [re.sub(r"\\([ \t#])", r"\1", word).replace("$$", "$") for word in _WORD.findall(text.replace("\\\n", " "))]
    start = next((at + 1 for at, word in enumerate(words) if word.endswith(":")), 0)
    return words[start:]


def searched(text: str) -> list[str]:
    """The folders that a preprocessor's -v names, in order: those it searches, and those that are not there."""
    ignored = re.findall(r'^ignoring nonexistent directory "(.*)"$', text, re.MULTILINE)
    found: list[str] = []
    for block in re.findall(r"search starts here:\n((?: .*\n)*)", text):
        found += [line.strip().removesuffix(" (framework directory)") for line in block.splitlines()]
    return list(dict.fromkeys([*found, *ignored]))
