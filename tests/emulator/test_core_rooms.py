"""The rooms of emulator/core: which headers a room may include, and that neither headers nor objects go in a circle."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

# A room's headers include its own and those of the rooms behind its arrow. Sources may include any: what they need in
# a circle shows in their objects.
ARROWS = {
    "isa": set(),
    "findings": {"isa"},
    "numbers": {"isa"},
    "order": {"isa", "findings"},
    "memory": {"isa", "findings", "order"},
    "machine": {"isa", "findings", "order", "memory"},
    "timing": {"isa", "findings", "order", "memory", "machine"},
    "ptx": {"isa", "findings", "numbers", "order", "memory", "machine"},
    "python": {"isa", "findings", "numbers", "order", "memory", "machine", "timing", "ptx"},
}


@pytest.fixture(scope="module")
def core(repository: Path) -> Path:
    return repository / "emulator/core"


def test_headers_include_only_rooms_below(core):
    upward = []
    for header in core.rglob("*.hpp"):
        room = header.relative_to(core).parts[0]
        for included in re.findall(r'#include "([^"]+)"', header.read_text()):
            other = included.split("/")[0]
            if other != room and other not in ARROWS[room]:
                upward.append(f"{header.relative_to(core)} includes {included}")
    assert not upward


def test_every_room_has_its_arrows(core):
    assert {p.name for p in core.iterdir() if p.is_dir()} == set(ARROWS)


def rooms_among(headers: list[Path], root: Path) -> dict[str, dict[str, str]]:
    """The rooms that the headers of each room include, with one of these headers. One within another is its own."""
    needs: dict[str, dict[str, str]] = {}
    for header in headers:
        room = needs.setdefault(header.parent.relative_to(root).as_posix(), {})
        for included in re.findall(r'#include "([^"]+)/[^"/]+"', header.read_text()):
            if included != header.parent.relative_to(root).as_posix():
                room[included] = header.name
                needs.setdefault(included, {})
    return needs


def test_no_rooms_include_one_another_in_a_circle(core):
    """Those within a room as well: a warp knows of no cluster, and a cluster not of the grid."""
    needs = rooms_among(list(core.rglob("*.hpp")), core)
    assert {"machine/warp", "machine/cluster"} <= needs["machine"].keys()
    assert list(circles(needs)) == []


def test_rooms_that_include_one_another_are_seen(tmp_path: Path) -> None:
    warp, cluster = "machine/warp/warp.hpp", "machine/cluster/cluster.hpp"
    for path, included in ((warp, cluster), (cluster, warp)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(f'#include "{included}"\n')
    assert list(circles(rooms_among(sorted(tmp_path.rglob("*.hpp")), tmp_path)))


def symbols(objects: list[Path]) -> dict[str, tuple[set[str], set[str]]]:
    """What each object defines and what it needs. Weak symbols, of templates and inline functions, are everybody's."""
    listed = subprocess.run(["nm", "-A", "-P", *objects], check=True, capture_output=True, text=True).stdout
    found: dict[str, tuple[set[str], set[str]]] = {str(o): (set(), set()) for o in objects}
    for line in listed.splitlines():
        place, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if kind in "TBDR":
            found[place][0].add(name)
        elif kind == "U":
            found[place][1].add(name)
    return found


def circles(needs: dict[str, dict[str, str]]) -> Iterator[list[str]]:
    """The circles that a walk meets: each object with the symbol that it needs of the next."""
    done: set[str] = set()
    path: list[str] = []

    def walk(at: str) -> Iterator[list[str]]:
        if at in path:
            ring = path[path.index(at) :]
            yield [f"{a} needs {needs[a][b]} of {b}" for a, b in zip(ring, [*ring[1:], at], strict=True)]
            return
        if at in done:
            return
        path.append(at)
        for other in needs[at]:
            yield from walk(other)
        path.pop()
        done.add(at)

    for start in needs:
        yield from walk(start)


def needs_among(objects: list[Path], root: Path) -> dict[str, dict[str, str]]:
    """Which of `objects` each needs, with one of the symbols. They are named as their sources, from `root`."""
    found = symbols(objects)
    owner = {name: place for place, (defined, _) in found.items() for name in defined}
    short = {place: str(Path(place).relative_to(root)).removesuffix(".cpp.o") for place in found}
    needs: dict[str, dict[str, str]] = {short[place]: {} for place in found}
    for place, (_, needed) in found.items():
        for name in needed & owner.keys():
            needs[short[place]][short[owner[name]]] = name
    return needs


@pytest.mark.parametrize(("third", "seen"), [("first()", True), ("3", False)])
def test_a_planted_circle_is_seen(third: str, seen: bool, tmp_path: Path) -> None:
    values = {"first": "second()", "second": "third()", "third": third}
    bodies = [f"int {name}() {{ return {value}; }}" for name, value in values.items()]
    for name, body in zip("abc", bodies, strict=True):
        (tmp_path / f"{name}.cpp").write_text(f"int first(), second(), third();\n{body}\n")
    subprocess.run(["c++", "-c", "a.cpp", "b.cpp", "c.cpp"], cwd=tmp_path, check=True)
    for name in "abc":
        (tmp_path / f"{name}.o").rename(tmp_path / f"{name}.cpp.o")
    found = list(circles(needs_among(sorted(tmp_path.glob("*.o")), tmp_path)))
    assert bool(found) == seen
    if seen:
        assert [line.split()[::4] for line in found[0]] == [["a", "b"], ["b", "c"], ["c", "a"]]


@pytest.fixture(scope="module")
def build(repository: Path) -> Path:
    built = sorted(repository.glob("build/*/CMakeCache.txt"), key=lambda p: p.stat().st_mtime)
    assert built, "make install leaves it there"
    return built[-1].parent


def test_no_objects_need_one_another_in_a_circle(build, core):
    if "FMHA_UNITS:BOOL=ON" in (build / "CMakeCache.txt").read_text():
        pytest.skip("make run has compiled whole folders; `make clean develop` compiles the core's files apart")
    built = build / "CMakeFiles/_core.dir/emulator/core"
    objects = [o for s in sorted(core.rglob("*.cpp")) if (o := built / f"{s.relative_to(core)}.o").exists()]
    assert len(objects) > 80
    assert list(circles(needs_among(objects, built))) == []


def folders_that_do_not_compile(sources: Iterable[Path], command: list[str], folder: Path) -> dict[str, str]:
    """What the compiler says of each folder of `sources` whose files, one behind the other, are no translation unit."""
    said = {}
    by_folder = sorted(sources, key=lambda source: (source.parent, source.name))
    for place, files in itertools.groupby(by_folder, key=lambda source: source.parent):
        unit = "".join(f'#include "{file}"\n' for file in files)
        ran = subprocess.run([*command, "-x", "c++", "-"], input=unit, cwd=folder, capture_output=True, text=True)
        if ran.returncode:
            said[place.name] = ran.stderr
    return said


@pytest.mark.nightly
def test_each_folder_compiles_as_one_unit(build, core):
    """As `make run` compiles it: the names that a file keeps to itself are its folder's own."""
    commands = json.loads((build / "compile_commands.json").read_text())
    words = next(shlex.split(c["command"]) for c in commands if "/python/module.cpp" in c["file"])
    command = [*words[: words.index("-o")], "-fsyntax-only", "-w"]
    sources = [source for source in core.rglob("*.cpp") if source.parent.name != "python"]
    assert folders_that_do_not_compile(sources, command, build) == {}


def test_a_name_that_two_files_of_a_folder_keep_to_themselves_is_seen(tmp_path: Path) -> None:
    for folder, second in (("apart", "other"), ("alike", "same")):
        (tmp_path / folder).mkdir()
        for file, name in (("a", "same"), ("b", second)):
            (tmp_path / folder / f"{file}.cpp").write_text(f"namespace {{ int {name}() {{ return 1; }} }}\n")
    said = folders_that_do_not_compile(tmp_path.rglob("*.cpp"), ["c++", "-fsyntax-only"], tmp_path)
    assert said.keys() == {"alike"}
    assert "same" in said["alike"]
