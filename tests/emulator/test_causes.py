"""Which findings have one cause, whose a line is, and which remedy a message gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fmha.emulator.launch_report import Finding, Place

COPY = Finding("stream-race", "error", "a copy of 4096 bytes reads 'a'", None, None, 0, None, 1, ())


@pytest.mark.parametrize(
    ("source", "of_header"),
    [
        ("/usr/local/cuda/include/cooperative_groups/details/sync.h:9", True),
        ("/opt/cuda/targets/x86_64-linux/include/cccl/cooperative_groups.h:9", True),
        ("/home/a/cooperative_groups/mine.cu:9", False),
        (None, False),
    ],
)
def test_a_folder_of_the_users_is_no_header(source: str | None, of_header: bool) -> None:
    place = Place(1, "bar.warp.sync -1;", source)
    assert place.of_cooperative_groups == of_header
    lanes = replace(COPY, rule="lane-race", place=place, other=place)
    assert lanes.of_header == of_header


def test_races_of_the_hosts_work_are_told_apart() -> None:
    other = replace(COPY, message="a copy of 4096 bytes reads 'b'")
    assert COPY.cause != other.cause
    assert COPY.cause == replace(COPY, count=2).cause


def test_a_named_barrier_that_lacks_threads_has_a_remedy_of_its_own() -> None:
    hang = replace(
        COPY, rule="deadlock", details=((None, "CTA 0 warp 0 waits for barrier 3: 32 of 128 threads arrived"),)
    )
    assert "number of threads that come" in hang.remedy
    assert "number of threads that come" not in replace(hang, details=((None, "an mbarrier"),)).remedy
