"""Imports between the rooms of harness/ and emulator/ point one way: down the rows below, and never in a circle.

A room is a folder, or a module that lies beside the folders. docs/understand/architecture.md says what each is for.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from tests.packaging.syntax import OF_ONE_PROCESS, tree

PACKAGE = "fmha"
pytestmark = OF_ONE_PROCESS
# From the top down. A room imports what is below its row; rooms of one row do not know each other.
ROWS = tuple(
    frozenset(row.split())
    for row in (
        "harness.cli",
        "harness.bench harness.bench.gpus harness.bench.trials harness.mcp harness.trends",
        "harness.bench.runs",
        "harness.bench.peers harness.bench.shapes harness.bench.timing",
        "harness.report",
        "harness.evidence harness.exact harness.problems harness.see harness.triton_kernel",
        "harness.scripted",
        "harness.attention harness.emulate harness.stages",
        "harness.hosts harness.judge.comparison",
        "harness.config harness.supervisor",
        "harness.archive harness.worker",
        "harness.worker.subjects",
        "harness.worker.launch",
        "harness.worker.devices harness.worker.planner",
        "harness.worker.compilers harness.worker.pool",
        "harness.worker.processes",
        "harness.kernel_side",
        "harness.contract",
        "harness.judge",
        "harness.back_off harness.depth harness.git harness.isolate harness.own_settings harness.project",
        "harness.account",
        "harness.cpp_names harness.errors harness.examples harness.extras harness.text",
        "harness.triton_choice harness.triton_target",
        "harness.triton_ptx",
        "emulator.machine_speed emulator.debug emulator.mutation emulator.programs emulator.search",
        "emulator",
        "emulator.explore",
        "emulator.device",
        "emulator.grids",
        "emulator.launch_report",
        (
            "emulator.decode emulator.executed_lines emulator.names emulator.tensormap"
            " emulator.texture_objects emulator.timing"
        ),
        "emulator._core emulator.fatbin emulator.levels emulator.ptx emulator.rules emulator.tensormap_rules",
        "emulator.core",
    )
)
Arrows = Mapping[str, Mapping[str, str]]  # from a room to another, and where one of the imports stands


@functools.cache
def arrows(root: Path) -> Arrows:
    """Which room below `root` imports which; imports within functions and for type checkers alone count as well."""
    names = {_name(root, path): path for top in ("harness", "emulator") for path in (root / top).rglob("*.py*")}
    names = {name: path for name, path in names.items() if path.suffix in (".py", ".pyi")}
    found: dict[str, dict[str, str]] = {}
    for name, path in names.items():
        room = found.setdefault(_room(name), {})
        for line, target in _imported(path, names):
            if _room(target) != _room(name):
                room.setdefault(_room(target), f"{path.relative_to(root)}:{line}")
    return found


def _name(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _room(name: str) -> str:
    """harness/ and emulator/ themselves are rooms: what their `__init__.py` imports. A folder in a room that ROWS has
    is one of its own."""
    inner = ".".join(name.split(".")[:3])
    return inner if any(inner in row for row in ROWS) else ".".join(name.split(".")[:2])


def _imported(path: Path, names: Mapping[str, Path]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports here are absolute"
            wanted = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [name if name.removeprefix(f"{PACKAGE}.") in names else str(node.module) for name in wanted]
        else:
            continue
        own = (name.removeprefix(f"{PACKAGE}.") for name in wanted if name.startswith(f"{PACKAGE}."))
        yield from ((node.lineno, name) for name in own if name in names)


def circle(found: Arrows) -> list[str]:
    """Rooms that import each other in a ring, the first again at the end; empty where there is none."""
    done: set[str] = set()

    def walk(room: str, trail: list[str]) -> list[str]:
        if room in trail:
            return [*trail[trail.index(room) :], room]
        if room not in done:
            for target in found.get(room, {}):
                if ring := walk(target, [*trail, room]):
                    return ring
            done.add(room)
        return []

    return next((ring for room in sorted(found) if (ring := walk(room, []))), [])


def upward(found: Arrows) -> list[str]:
    """The imports that do not lead to a lower row, as `FILE:LINE: ROOM imports ROOM`."""
    rows = {room: number for number, row in enumerate(ROWS) for room in row}
    return [
        f"{where}: {room} imports {target}"
        for room, targets in found.items()
        for target, where in targets.items()
        if rows[target] <= rows[room]
    ]


def test_every_room_has_its_row(repository: Path) -> None:
    rooms = [room for row in ROWS for room in row]
    assert sorted(rooms) == sorted(arrows(repository).keys() - {"harness"}), "a new room goes into ROWS"


def test_no_rooms_import_each_other_in_a_circle(repository: Path) -> None:
    found = arrows(repository)
    ring = circle(found)
    assert not ring, "; ".join(f"{a} -> {b} ({found[a][b]})" for a, b in pairwise(ring))


def test_imports_point_down(repository: Path) -> None:
    assert upward(arrows(repository)) == []


def test_the_judge_imports_nothing_that_a_commit_brings(repository: Path) -> None:
    """Nor anything that launches, plans or tells: what decides is in one folder, for whoever reads it."""
    found = arrows(repository)
    assert found["harness.judge"].keys() <= {"harness.errors"}
    assert found["harness.judge.comparison"].keys() <= {"harness.archive", "harness.judge"}


# docs/understand/architecture.md says what each does with it.
ON_THE_EMULATOR = frozenset(
    [
        "harness.bench.trials",
        "harness.cli",
        "harness.emulate",
        "harness.hosts",
        "harness.mcp",
        "harness.problems",
        "harness.report",
        "harness.scripted",
        "harness.see",
        "harness.worker.devices",
    ]
)


def test_the_rooms_that_import_the_emulator_are_those_of_the_page(repository: Path) -> None:
    found = arrows(repository)
    using = {
        room
        for room, targets in found.items()
        if room.startswith("harness") and any(target.startswith("emulator") for target in targets)
    }
    assert using == ON_THE_EMULATOR
    page = (repository / "docs/understand/architecture.md").read_text(encoding="utf-8")
    table = page.partition("| who | for what |")[2].partition("\n\n")[0]
    named = {name.replace("/", ".") for name in re.findall(r"`([a-z/]+)/`", table)}
    assert named == {room.removeprefix("harness.") for room in ON_THE_EMULATOR}


def test_one_file_speaks_with_the_driver(repository: Path) -> None:
    """Tensor maps, launches and times of a GPU have one author: what is true of it is true of the bench."""
    using = {path for path in (repository / "harness").rglob("*.py") for name in _absolute(path) if name == "cuda"}
    assert {path.relative_to(repository).as_posix() for path in using} == {"harness/worker/devices/cuda.py"}


def _absolute(path: Path) -> set[str]:
    """The packages that a file imports."""
    nodes = list(ast.walk(tree(path)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def test_a_circle_and_an_arrow_upward_are_seen(tmp_path: Path) -> None:
    """The worker that asks the stages, at the head of a file or within a function."""
    for path, text in (
        ("harness/worker/run.py", "def f():\n    from fmha.harness.stages import gate\n"),
        ("harness/stages/gate.py", "from fmha.harness.worker.run import f\n"),
        ("harness/config/matrix_model.py", "from fmha.harness import worker\n"),
        ("harness/worker/__init__.py", ""),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = arrows(tmp_path)
    assert circle(found) == ["harness.worker", "harness.stages", "harness.worker"]
    assert upward(found) == ["harness/worker/run.py:2: harness.worker imports harness.stages"]
    assert found["harness.config"] == {"harness.worker": "harness/config/matrix_model.py:1"}
