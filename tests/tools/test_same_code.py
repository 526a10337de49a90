"""Two trees of the sources: the same code but for comments, and another."""

from __future__ import annotations

from pathlib import Path

from tools.same_code import sections, stripped


def test_comments_and_empty_lines_are_no_code(tmp_path: Path) -> None:
    first, second = tmp_path / "first.ptx", tmp_path / "second.ptx"
    first.write_text("// made today\n.version 9.0\n\n\tadd.s32 %r1, %r2, 1; // a sum\n")
    second.write_text(".version 9.0\n\tadd.s32 %r1, %r2, 1;\n")
    assert stripped(first) == stripped(second)
    second.write_text(".version 9.0\n\tadd.s32 %r1, %r2, 2;\n")
    assert stripped(first) != stripped(second)


def test_the_sections_of_an_elf_file_are_read() -> None:
    import sys

    found = dict(sections(Path(sys.executable).resolve().read_bytes()))
    assert found[".text"]
    assert found[".bss"] == b""
