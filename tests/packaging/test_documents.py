"""The documentation hangs together: links lead to files and headings, and what a page names is there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> Iterator[str]:
    """Of the headings of a page, as GitHub and the site name them."""
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    wrong = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            wrong.append(target)
    assert wrong == []


def test_the_journals_index_has_each_page_of_it() -> None:
    journal = ROOT / "docs/journal"
    linked = re.findall(r"\]\(([^)]+\.md)\)", (journal / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in journal.glob("2*.md"))


def test_pages_that_are_named_exist() -> None:
    """In comments, messages and help, as `docs/understand/gates.md`."""
    found = subprocess.run(
        ["git", "grep", "-I", "-h", "-o", "-w", "docs/[a-zA-Z0-9_/-]*\\.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = set(found.split())
    assert named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


# As pages write them: from the root, a package, the core or the kernels of an architecture. Capitals stand for any.
SOURCE = re.compile(r"(?<![\w./*-])(?:[\w-]+/)+[\w-]+\.(?:py|pyi|cpp|hpp|cuh|cu|h|inc|yaml)(?![\w/*.])")
ROOMS = ("", "harness", "emulator", "emulator/core", "kernel", "kernel/common", "kernel/sm100", "kernel/sm90")
GUIDES = [name for name in PAGES if not name.startswith(("docs/journal/", "docs/reference/thirdparty"))]


@pytest.mark.parametrize("name", GUIDES)
def test_source_files_that_a_page_names_exist(name: str) -> None:
    missing = []
    for source in SOURCE.findall((ROOT / name).read_text(encoding="utf-8")):
        rooms = [ROOT / room for room in ROOMS if (ROOT / room / source.split("/")[0]).is_dir()]
        placeholder = any(part.isupper() for part in re.split(r"[/_.]", source))
        if rooms and not placeholder and not any((ROOT / room / source).exists() for room in ROOMS):
            missing.append(source)
    assert missing == []


MODULE = re.compile(r"(?:python -m |`)((?:fmha|tools|tests)(?:\.\w+)+)")


@pytest.mark.parametrize("name", GUIDES)
def test_modules_that_a_page_names_exist(name: str) -> None:
    """And what it says that a module has, where the module has that word."""
    missing = []
    for dotted in MODULE.findall((ROOT / name).read_text(encoding="utf-8")):
        module = ROOT / dotted.replace(".", "/")
        holders = (module.parent / "__init__.py", module.parent.with_suffix(".py"))
        texts = [path.read_text(encoding="utf-8") for path in holders if path.exists()]
        there = module.is_dir() or module.with_suffix(".py").exists()
        if not there and not any(re.search(rf"\b{module.name}\b", text) for text in texts):
            missing.append(dotted)
    assert missing == []


ARCHITECTURE = ROOT / "docs/understand/architecture.md"


def test_the_ways_of_data_name_functions_that_are_there() -> None:
    """In each line of architecture.md's two ways: a type, functions, and the files that have them."""
    page = ARCHITECTURE.read_text(encoding="utf-8")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    lines = re.findall(
        r"^.{15}(?:[\w. ,]+?) {2,}([\w:., ]+?) {2,}(\S.*)$", page.partition("## The way of a config")[2], re.MULTILINE
    )
    missing, seen = [], 0
    for functions, where in lines:
        files = [path for name in re.findall(r"[\w/]+\.(?:py|cpp)", where) for path in tracked if path.endswith(name)]
        text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in files)
        for name in re.findall(r"\w+", functions.replace("and others", "")) if files else ():
            seen += 1
            missing += [f"{name}: {where}"] if not re.search(rf"\b{name}\b", text) else []
    assert missing == []
    assert seen > 20


CODE = frozenset({".py", ".cpp", ".hpp", ".cu", ".cuh", ".h"})


def mapped() -> list[str]:
    """The folders and files of architecture.md's map, each with those above it: as `harness/judge/oracle`."""
    block = ARCHITECTURE.read_text(encoding="utf-8").partition("## Rooms")[2].split("```")[1]
    found, above = [], [""] * 4
    for indent, names in re.findall(r"^((?:  ){0,3})(?! )([\w./]+(?:, [\w./]+)*)  ", block, re.MULTILINE):
        depth = len(indent) // 2
        above[depth] = names.rstrip("/")
        found += ["/".join((*above[:depth], name.rstrip("/"))) for name in names.split(", ")]
    return found


def test_the_map_has_every_folder_and_nothing_else() -> None:
    """A folder that has code is in the map, if any that lies beside it is."""
    found = mapped()
    assert [name for name in found if not (ROOT / name).exists()] == []
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    code = {Path(name).parent for name in tracked if Path(name).suffix in CODE}
    folders = {str(folder) for path in code for folder in (path, *path.parents)} - {"."}
    opened = {str(Path(name).parent) for name in found if (ROOT / name).is_dir()} - {"tests", "docs"}
    missing = [name for name in sorted(folders) if str(Path(name).parent) in opened and name not in found]
    assert missing in ([], ["scripts"])
    assert len(found) > 70


def test_the_device_that_the_architecture_quotes_is_that_of_the_contract() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8").partition("class Device(Protocol):")[2].partition("```")[0]
    quoted = [line.partition("  #")[0].strip() for line in page.splitlines() if line.strip()]
    source = (ROOT / "harness/contract/device.py").read_text(encoding="utf-8")
    (device,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Device")
    said = [node for node in device.body if not isinstance(node, ast.Expr)]  # without its docstring
    for node in said:
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    assert [ast.unparse(node).partition(":\n")[0] for node in said] == [line.replace('"', "'") for line in quoted]


def test_records_that_pages_and_tests_name_are_committed() -> None:
    """.gitignore leaves out what runs write to results/, and with it a record that is to be kept."""
    found = subprocess.run(
        ["git", "grep", "-hIoE", r"results/[a-z0-9-]+-[hb][12]00[a-z0-9_]*\.json", "--", "docs", "tests", "tools"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    listed = subprocess.run(["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) - set(listed.stdout.split()) == set()
