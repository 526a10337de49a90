"""Records are packed as the core that runs lays them out, and a core with others is refused."""

from __future__ import annotations

import pytest

from fmha.emulator import _core
from fmha.emulator.decode.builder import CONST, INST, packing

NAMES = [name for name, _, _ in _core.INST_FIELDS]


def test_a_record_has_each_field_where_the_core_reads_it() -> None:
    assert (INST.size, CONST.size) == (_core.INST_RECORD_BYTES, _core.CONST_RECORD_BYTES)
    packed = INST.pack(*range(1, len(NAMES) + 1))
    for number, (name, offset, _) in enumerate(_core.INST_FIELDS, 1):
        assert packed[offset] == number, name


def test_what_alignment_leaves_is_packed_too() -> None:
    made = packing([("a", 0, "B"), ("b", 4, "I"), ("c", 8, "H")], 12, ("a", "b", "c"))
    assert made.pack(1, 2, 3) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0])


@pytest.mark.parametrize("core", [NAMES[::-1], NAMES[:-1], [*NAMES, "more"]])
def test_a_core_with_other_fields_is_refused(core: list[str]) -> None:
    fields = [(name, 8 * number, "q") for number, name in enumerate(core)]
    with pytest.raises(ValueError, match="the core's record has the fields"):
        packing(fields, 8 * len(core), NAMES)


def test_state_spaces_have_their_names_in_ptx() -> None:
    assert _core.SPACES["shared"] == _core.SPACES["shared::cta"] != _core.SPACES["shared::cluster"]
    assert len(set(_core.SPACES.values())) == len(_core.SPACES) - 1
