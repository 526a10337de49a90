"""Why a launch hangs, in the words that are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmha import emulator
from fmha.emulator.debug.hang import HangWatch, explained
from tests.pages import assert_shown

SOURCE = Path(__file__).parents[1] / "hangs" / "hangs.ptx"
LAUNCHES = {
    "count": (1, 128), "parity": (1, 64), "bytes": (1, 64), "peer": (2, 32), "circle": (1, 64), "columns": (1, 64),
    "unannounced": (2, 32),
}  # fmt: skip
WITH_X = ("bytes", "unannounced")


def line_of(text: str, nth: int = 0) -> int:
    """The PTX line of the nth statement that has `text`."""
    return [n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line][nth]


def why(entry: str, schedule: str = "realistic") -> list[str]:
    module = emulator.load_ptx(SOURCE)
    device = emulator.Device(schedule=schedule)
    buffer = device.alloc(4096, "x")
    watch = HangWatch()
    grid, block = LAUNCHES[entry]
    with watch(device, module, entry):
        report = device.launch(module, entry, grid, block, [buffer.address] if entry in WITH_X else [])
    assert [f.rule for f in report.findings if f.rule in ("deadlock", "livelock")] == ["deadlock"]
    (hang,) = watch.hangs
    return explained(hang)


def cause(entry: str, schedule: str = "realistic") -> str:
    (said,) = [line for line in why(entry, schedule) if line.startswith("likely cause: ")]
    return said.removeprefix("likely cause: ")


@pytest.mark.parametrize("schedule", ["realistic", "early", "late"])
def test_a_count_that_is_not_the_number_of_threads(schedule):
    said = cause("count", schedule)
    made, arrive = line_of("[full], 128"), line_of("mbarrier.arrive.shared::cta.b64 _, [full];")
    assert said.startswith("the mbarrier at 0x")
    assert f"is initialised at PTX line {made} for 128 arrivals, and 32 come (warp 0 at PTX line {arrive})" in said


def test_a_wrong_parity():
    wait = line_of("[full], %phase")
    assert f"warp 1 waits with parity 1 at PTX line {wait}" in cause("parity")
    assert "phase 0, of parity 0, is the last that completes" in cause("parity")


@pytest.mark.parametrize("schedule", ["realistic", "early", "late", "random"])
def test_bytes_expected_against_bytes_sent(schedule):
    said = cause("bytes", schedule)
    expects, copies = line_of("expect_tx"), line_of("cp.async.bulk")
    assert said == (
        f"expect_tx at PTX line {expects} announces 4096 bytes; the copies at PTX line {copies} have brought 2048, "
        "and none is in flight"
    )


def test_a_commit_that_misses_the_peer():
    said = cause("peer")
    assert said.startswith(f"the commit at PTX line {line_of('tcgen05.commit')} arrives on the mbarrier at 0x")
    assert "of CTA 0 and misses that of CTA 1" in said


def test_a_circle_of_waits():
    said = why("circle")
    empty, full = line_of("[empty], 0"), line_of("[full], 0;", 3)
    assert said[0] == "2 waits form a circle:"
    text = "\n".join(said)
    assert f"warp 0 waits at PTX line {empty} for the mbarrier at" in text
    assert f"warp 1 waits at PTX line {full} for the mbarrier at" in text
    assert f"which warp 0 would arrive on at PTX line {line_of('_, [full];', 2)}" in text
    assert f"which warp 1 would arrive on at PTX line {line_of('_, [empty];')}" in text


def test_columns_that_another_warp_holds():
    said = why("columns")
    asks = line_of("tcgen05.alloc.cta_group::1", 1)
    (told,) = [line for line in said if line.startswith("likely cause: ")]
    assert told.startswith(f"likely cause: warp 1 waits at PTX line {asks} for tensor memory that is still allocated")
    assert "barrier" not in told, "warp 0 waits for warp 1, not the other way round"


def test_bytes_that_nobody_has_announced():
    said = "\n".join(why("unannounced"))
    wait = line_of("[full], 0;", -1)
    missing = "(phase 0, 1 of 1 arrivals missing and 1024 bytes too many: no expect_tx has announced them)"
    assert f"warp 0 of CTA 1 waits at PTX line {wait} for the mbarrier at 0x1400 ('full') {missing}" in said
    assert "likely cause: 1024 bytes have come to the mbarrier at 0x1400 ('full') of CTA 1 that nobody has" in said


def test_who_looks_on_changes_nothing():
    """The launch that was watched reports what the launch alone does."""
    module = emulator.load_ptx(SOURCE)

    def report(watched: bool) -> list[str]:
        device = emulator.Device()
        watch = HangWatch()
        if not watched:
            return [str(f) for f in device.launch(module, "circle", 1, 64, []).findings]
        with watch(device, module, "circle"):
            return [str(f) for f in device.launch(module, "circle", 1, 64, []).findings]

    assert report(watched=True) == report(watched=False)


def test_the_transcript_in_the_guide(repository):
    told = [f"`{entry}`:\n\n" + "\n".join(f"    {line}" for line in why(entry)) for entry in LAUNCHES]
    assert_shown(repository / "docs/use/see.md", "hangs", "\n\n".join(told))
