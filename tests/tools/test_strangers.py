"""What is said of other projects' kernels: which entries decode, and why the others do not."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tools.strangers import SourceSeen, look, look_at, main, page, read_record

_ENTRY = ".visible .entry {name}() {{ .reg .b32 %r<4>; {body} ret; }}\n"
_HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
_GOOD, _BAD = "add.s32 %r1, 1, 2;", "sured.b.add.1d.u32.trap [7, {%r1}], %r2;"


def _module(*bodies: str) -> str:
    return _HEAD + "".join(_ENTRY.format(name=f"k{n}", body=body) for n, body in enumerate(bodies))


def test_entries_are_counted_one_by_one() -> None:
    seen = look_at("m", _module(_GOOD, _BAD, _GOOD))
    assert (seen.entries, seen.decoded) == (3, 2)
    assert seen.forms["add.s32"] == 2
    assert dict(seen.refused) == {"`sured.b.add.1d.u32.trap`: instruction sured.b.add.1d.u32.trap is not modelled": 1}


def test_a_module_that_does_not_parse_is_refused_with_all_its_entries() -> None:
    seen = look_at("m", _module(_GOOD, "add.s32 %r1, ;"))
    assert (seen.entries, seen.decoded) == (2, 0)
    assert sum(seen.refused.values()) == 2


def test_wheels_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.ptx").write_text(_module(_GOOD))
    (folder / "b.ptx").write_text(_module(_GOOD, _BAD))
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("inside/a.ptx", _module(_GOOD))  # met before: not counted again
        z.writestr("inside/c.ptx", _module(_BAD))
    found = look([folder, wheel], None, most=100, jobs=1)
    assert [(s.name, s.modules, s.entries, s.decoded) for s in found] == [("folder", 2, 3, 2), ("some.whl", 1, 1, 0)]


def test_the_page_has_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ptx").write_text(_module(_GOOD, _BAD))
    made = tmp_path / "found.json"
    assert main([str(tmp_path / "a.ptx"), "--json", str(made), "--jobs", "1"]) == 0
    assert "a.ptx: 1 of 2 entries" in capsys.readouterr().out
    assert json.loads(made.read_text())[0]["entries"] == 2
    text = page(read_record(made))
    assert "Of 2 entries 1 decode: 50.00%." in text
    assert "| 1 | `sured.b.add.1d.u32.trap`" in text


@pytest.mark.nvcc
def test_sources_are_compiled_with_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.cu").write_text("__global__ void k() { KIND; }\n")
    assert main([str(tmp_path), "--compile=-DKIND=__nanosleep(5) -arch=compute_90", "--jobs", "1"]) == 0
    assert f"{tmp_path.name}: 1 of 1 entries" in capsys.readouterr().out


def test_nothing_is_divided_by_nothing() -> None:
    assert "Of 0 entries 0 decode" in page([SourceSeen("empty")])
