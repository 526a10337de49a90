"""Mistakes drawn from the harness's own lines, and whether the tests that `make test` runs see them, or the night's.

    python -m tests.planted_drawn --seed 4560 --jobs 14 --seconds 300

Each changes one comparison, condition, number or statement of a module whose tests tests/nightly.txt has thinned out.
Of the group's tests those of the day run until one fails, and where none does, those of the night. Nobody has chosen
what is changed: some of it changes nothing that can be seen, and is told as seen by none.
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.planted import ROOT, NotBegunError, first_red, lay_out

_KEPT = Path("build") / "test-kernels"


@dataclass(frozen=True, slots=True)
class Group:
    """Modules, by patterns below the root, and the files of tests that could notice a mistake in them: cheap ones
    first."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _tests(room: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{room}/test_{name}.py" for name in names.split())


GROUPS = (
    Group(
        "compilers",
        ("harness/worker/compilers/*.py",),
        (
            *_tests("worker", "cache ptxas special_registers nvcc build never_stale enclosed_compilers"),
            "tests/integration/test_build_faults.py",
        ),
    ),
    Group(
        "pool",
        ("harness/worker/pool/*.py",),
        (*_tests("worker", "node spread process executor_faults"), "tests/integration/test_worker_faults.py"),
    ),
    Group(
        "adapters",
        ("harness/worker/subjects/*.py",),
        (
            *_tests("worker", "dtypes calls watched called across adapter"),
            *_tests("integration", "in_place own_kernels commits_fault"),
        ),
    ),
    Group(
        "comparison",
        ("harness/judge/comparison/*.py", "harness/evidence/*.py"),
        (
            *_tests(
                "evidence", "comparison distributions boxes story suspects asked baseline build_time speed commands"
            ),
            *_tests("evidence", "ci_output index measured bisect_hosts seeded_history verdict watch"),
        ),
    ),
    Group(
        "planner",
        ("harness/worker/planner/*.py",),
        (*_tests("worker", "offer sides"), *_tests("harness", "planner"), "tests/evidence/test_wall.py"),
    ),
    Group(
        "calls",
        ("harness/attention/*.py",),
        tuple(
            f"tests/harness/test_attention{of}.py"
            for of in (
                *["_arguments", "_options", "_values", "_layouts", "_statistics", "_head_dims", "_memory", "_operator"],
                "",
            )
        ),
    ),
    Group("problems", ("harness/problems/*.py",), _tests("problems", "begin problems")),
    Group(
        "modelled",
        ("harness/see/modelled.py", "harness/see/calibration.py", "harness/see/call_time.py", "emulator/timing/*.py"),
        (
            "tests/emulator/test_timing.py",
            *_tests("see", "modelled calibration"),
            "tests/trends/test_modelled_times.py",
        ),
    ),
    Group("mutants", ("tools/mutants/*.py",), _tests("tools", "mutants")),
    Group("programs", ("emulator/programs/*.py",), _tests("programs", "library cases builds again")),
)
_OTHER = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """`old`, between two offsets of a file's text, becomes `new`."""

    group: Group
    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(words.split()) for words in (self.old, self.new))
        return f"`{self.file}:{self.line}`, `{old[:70]}` -> `{new[:70]}`"


def mistakes(text: str) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What could be wrong in a module's functions: a node, and the text in its place."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    seen: set[int] = set()
    for node in itertools.chain.from_iterable(map(ast.walk, functions)):
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            made = copy.deepcopy(node)
            made.ops = [_OTHER[type(node.ops[0])]()]
            yield node, f"({ast.unparse(made)})"
        elif isinstance(node, ast.BoolOp):
            yield node, f"({ast.unparse(ast.BoolOp(_OTHER[type(node.op)](), node.values))})"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test, "False"
            if isinstance(node, ast.If):
                yield node.test, "True"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, f"({ast.unparse(node.operand)})"
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, str(node.value + 1)
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield node, "pass"


def drawn(group: Group, rng: random.Random, root: Path = ROOT) -> Iterator[Drawn]:
    """Without end but for what there is, each once: a line of code is as likely as any other."""
    found = []
    for path in sorted({path for pattern in group.modules for path in root.glob(pattern)}):
        text = path.read_text(encoding="utf-8")
        data = text.encode()
        starts = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]
        for node, new in mistakes(text):
            start, end = (
                len(data[: starts[line - 1] + column].decode())
                for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
            )
            name = path.relative_to(root).as_posix()
            found.append(Drawn(group, name, node.lineno, start, end, text[start:end], new))
    rng.shuffle(found)
    yield from found


@dataclass(slots=True)
class Places:
    """Copies of the tree, one for each mistake that is looked at at a time, and tests that fail without any."""

    folder: Path
    count: int
    free: queue.Queue[Path] = field(default_factory=queue.Queue)
    red: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stamp: Iterator[int] = field(default_factory=lambda: itertools.count(int(time.time()) + 1000))

    def make(self) -> None:
        with ThreadPoolExecutor(self.count) as pool:
            for place in pool.map(self._made, range(self.count)):
                self.free.put(place)

    def _made(self, number: int) -> Path:
        place = self.folder / str(number) / "tree"
        lay_out(place)
        start = "git init -q && git add -A && git -c user.name=x -c user.email=x@y commit -qm start"
        subprocess.run(start, shell=True, cwd=place, check=True)
        return place

    def write(self, path: Path, text: str) -> None:
        """With a time that no compiled module of this file has."""
        path.write_text(text, encoding="utf-8")
        with self.lock:
            now = next(self.stamp)
        os.utime(path, (now, now))

    def renew(self, place: Path) -> None:
        """What tests have compiled before is there again, and nothing that was made with a mistake."""
        shutil.rmtree(place / _KEPT, ignore_errors=True)
        if (ROOT / _KEPT).is_dir():
            shutil.copytree(ROOT / _KEPT, place / _KEPT, copy_function=_linked)


def _linked(source: str, target: str) -> None:
    """Entries of a cache are never written again."""
    try:
        os.link(source, target)
    except OSError:  # of another file system
        shutil.copy2(source, target)


def noticed(mistake: Drawn, places: Places, within: float) -> tuple[str, str]:
    """`day`, `night`, `none` or `open by` one of them, and the test. A test that fails without the mistake counts for
    nothing from then on."""
    place = places.free.get()
    path = place / mistake.file
    right = path.read_text(encoding="utf-8")
    try:
        for when in ("day", "night"):
            while True:
                places.write(path, mistake.applied(right))
                places.renew(place)
                tests = mistake.group.tests
                found = first_red(place, tests, night=when == "night", seconds=within, without=sorted(places.red))
                if not found:
                    break
                places.write(path, right)
                places.renew(place)
                if not first_red(place, [found], night=when == "night", seconds=within):
                    return when, found
                places.red.add(re.sub("@.*", "", found))
    except NotBegunError:
        return when, "no test begins"
    except subprocess.TimeoutExpired:
        return f"open by {when}", ""
    finally:
        places.write(path, right)
        places.free.put(place)
    return "none", ""


def main() -> int:
    """0 where the night alone sees nothing, 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=4560, help="of what is drawn  [default: %(default)s]")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once  [default: the cores]")
    add("--seconds", type=float, default=600.0, help="begin none after  [default: %(default)g]")
    add("--within", type=float, default=120.0, metavar="SECONDS", help="for the day, and for the night")
    add("--group", action="append", choices=[group.name for group in GROUPS], help="only these")
    options = parser.parse_args()
    start = time.monotonic()
    rng = random.Random(options.seed)
    chosen = [group for group in GROUPS if not options.group or group.name in options.group]
    turns = [mistake for round_ in zip(*(drawn(group, rng) for group in chosen), strict=False) for mistake in round_]
    seen: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        places = Places(Path(name), options.jobs)
        places.make()

        def tell(mistake: Drawn) -> None:
            if time.monotonic() - start > options.seconds:
                return
            when, test = noticed(mistake, places, options.within)
            seen[mistake.group.name, when] += 1
            words = f"`{re.sub('@.*', '', test)}`" if test else ""
            print(f"| {mistake.group.name} | {mistake} | {when} | {words} |", flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(tell, turns))
    for (group, when), count in sorted(seen.items()):
        print(f"{group}: {count} {when}", file=sys.stderr)
    print(f"red without a mistake: {sorted(places.red)}", file=sys.stderr)
    return 1 if any(when == "night" for _, when in seen) else 0


if __name__ == "__main__":
    sys.exit(main())
