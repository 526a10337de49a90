"""Where the code came from: `.file`, `.loc`, debug sections."""

import pytest

from fmha.emulator.ptx import Location, ParsedModule, PtxError, parse


def module(text: str) -> ParsedModule:
    return parse(".version 8.8\n.target sm_100a\n.address_size 64\n" + text)


DEBUG_STR = ".section .debug_str\n{\n$L__info_string0:\n.b8 95\n.b8 90,49,102\n.b8 0\n$L__info_string1:\n.b8 103,0\n}\n"


def locations(body: str, tail: str = "") -> list[Location | None]:
    parsed = module(
        ".entry k() {\n.reg .b32 %r<3>;\n" + body + '}\n.file 1 "/src/a.cu"\n.file 2 "b.h", 1700000000, 99\n' + tail
    )
    return [instruction.location for instruction in parsed.functions["k"].body]


def test_locations_with_and_without_a_semicolon_and_files_named_later() -> None:
    found = locations(
        "mov.b32 %r1, 1;\n.loc 1 17 5 // a.cu:17:5\nmov.b32 %r1, 2; mov.b32 %r1, 3;\n.loc\t2 8 0;\nret;\n"
    )
    here = Location("/src/a.cu", 17, 5)
    assert found == [None, here, here, Location("b.h", 8, 0)]
    assert str(here) == "/src/a.cu:17:5"


def test_a_location_ends_with_its_function() -> None:
    parsed = module('.file 1 "a.cu"\n.func f() { .loc 1 2 3\nret; }\n.func g() { ret; }')
    assert parsed.functions["g"].body[0].location is None
    assert parsed.files == {1: "a.cu"}


def test_inlined_functions() -> None:
    found = locations(
        ".loc 1 30 1\nmov.b32 %r1, 1;\n"
        ".loc 1 12 7, function_name $L__info_string0, inlined_at 1 30 1\nmov.b32 %r1, 2;\n"
        ".loc 2 5 3, function_name $L__info_string0+5, inlined_at 1 12 7\nret;\n",
        DEBUG_STR,
    )
    outer = Location("/src/a.cu", 30, 1)
    middle = Location("/src/a.cu", 12, 7, "_Z1f", outer)
    assert found == [outer, middle, Location("b.h", 5, 3, "g", middle)]


def test_an_inlined_location_needs_neither_its_call_nor_its_name_nor_its_file() -> None:
    (found,) = locations(".loc 7 5 3, function_name nothing, inlined_at 2 40 1\nret;\n")
    assert found == Location("<file 7>", 5, 3, "nothing", Location("b.h", 40, 1))


def test_locations_that_inline_one_another_stay_bounded() -> None:
    inlined = ".loc 1 {} 1, function_name f, inlined_at 1 {} 1\nret;\n"
    found = locations((inlined.format(1, 2) + inlined.format(2, 1)) * 2000)
    depth, location = 0, found[-1]
    while location is not None:
        depth, location = depth + 1, location.inlined_at
    assert depth < 100
    assert hash(found[-1]) == hash(found[-1])


@pytest.mark.parametrize(
    "text",
    [".loc 1 2\nret;", ".loc a b c", ".loc 1 2 3, inlined_at 1", ".loc 1 2 3, elsewhere 5", ".loc 1.5 2 3\nret;"],
)
def test_bad_locations_are_refused(text: str) -> None:
    with pytest.raises(PtxError):
        locations(text)


def test_debug_sections_are_skipped_whatever_they_hold() -> None:
    parsed = module(
        ".func f() { ret; }\n.section .debug_abbrev\n{\n.b8 1\n.b8 17,1\n{ nested }\n}\n"
        ".section\t.debug_info { .b32 254\n.b64 $L__func_begin0-1\n.b32 .debug_abbrev }\n"
        ".section .debug_macinfo\t{\t}\n"
    )
    assert list(parsed.functions) == ["f"]
