"""Configurations of kernels of one's own: their names, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmha.harness.contract.codec import CodecError, decode, encode
from fmha.harness.contract.protocol import Job
from fmha.harness.judge.case import Case, Field, case_of, parse_case
from fmha.harness.judge.configuration import Configuration

FIELDS = (Field("rows"), Field("s_k", least=0), Field("data", ("normal", "steps"), "normal"), Field("warps", default=4))


@given(st.integers(1, 2**31 - 1), st.integers(0, 9), st.sampled_from(["normal", "steps"]), st.integers(1, 8))
def test_a_name_is_read_back(rows: int, keys: int, data: str, warps: int) -> None:
    case = case_of("mine", FIELDS, {"rows": rows, "s_k": keys, "data": data, "warps": warps})
    assert parse_case("mine", FIELDS, case.id) == case
    assert (case.rows, case.s_k, case.data, case.warps) == (rows, keys, data, warps)


def test_what_has_its_default_is_not_in_the_name() -> None:
    assert case_of("mine", FIELDS, {"rows": 3, "s_k": 0}).id == "mine_rows3_s_k0"
    assert case_of("mine", FIELDS, {"rows": 3, "s_k": 0, "data": "steps"}).id == "mine_rows3_s_k0_data-steps"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 3}, "s_k: is required"),
        ({"rows": 0, "s_k": 1}, "rows: must be at least 1"),
        ({"rows": "3", "s_k": 1}, "rows: must be a whole number, not '3'"),
        ({"rows": True, "s_k": 1}, "rows: must be a whole number, not True"),
        ({"rows": 2**31, "s_k": 1}, "at most 2147483647"),
        ({"rows": 3, "s_k": 1, "data": "odd"}, "data: must be one of normal, steps, not 'odd'"),
        ({"rows": 3, "s_k": 1, "lanes": 1}, "lanes: kernel mine has no such field; it has rows, s_k, data, warps"),
    ],
)
def test_values_that_no_case_has(given: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        case_of("mine", FIELDS, given)


@pytest.mark.parametrize(
    "name", ["mine", "mine_s_k1_rows3", "mine_rows3_s_k1_data-normal", "mine_rows03_s_k1", "yours_rows3_s_k1"]
)
def test_names_that_no_case_has(name: str) -> None:
    with pytest.raises(ValueError, match=r"required|it is "):
        parse_case("mine", FIELDS, name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "Rows"}, "a name has lower-case letters"),
        ({"name": "data", "choices": ("a_b",)}, "is no word"),
        ({"name": "rows", "default": 0}, "its default must be at least 1"),
    ],
)
def test_fields_that_cannot_be(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Field(**arguments)


def test_a_job_carries_both_kinds_of_configurations() -> None:
    case = case_of("mine", FIELDS, {"rows": 3, "s_k": 0, "data": "steps"})
    job = Job("emulator", (), (case, Configuration(64, 1, 128)), 0, kernels={"mine": "a.py:Mine"}, root="/somewhere")
    assert decode(Job, encode(job), "job") == job
    broken = encode(job)
    broken["configurations"][0]["extra"] = 1
    with pytest.raises(CodecError, match=r"configurations\[0\]"):
        decode(Job, broken, "job")


def test_a_field_that_is_not_there_is_no_attribute() -> None:
    case = case_of("mine", FIELDS, {"rows": 3, "s_k": 0})
    with pytest.raises(AttributeError, match="kernel mine has no field 'columns'"):
        _ = case.columns
    assert dataclasses.replace(case, id="x") == Case("mine", "x", case.values)
