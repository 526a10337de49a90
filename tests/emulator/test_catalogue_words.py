"""What is said of mistakes of the catalogue, and what to do: words that lead to the line which has to change."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fmha import emulator
from fmha.emulator.debug.hang import HangWatch, explained
from fmha.emulator.launch_report import Finding
from tests.emulator.micro import run_micro
from tools.catalogue import CATALOGUE, WORDS, read

# By entry: the rule, what its message or a line below it has, what to do.
SAID = {
    "tensor/commit_by_another": (
        "tmem-access-under-mma",
        (r"may still \w+ it: no commit of the thread that has issued it\n[\s\S]*"
         r"thread 0 issues the MMA and thread 1 commits, .* alone: the commit at PTX line \d+.*: tcgen05\.commit"),
        "Have the thread that issues the MMA commit",
    ),
    "tensor/accumulators_overlap": (
        "mma-unordered",
        "writes D to tensor memory columns 8-23 while an earlier tcgen05.mma writes D to columns 0-15",
        "same address and shape for both, and the second accumulates",
    ),
    "tensor/freed_in_part": (
        "tmem-dealloc",
        r"of 32 columns at 0x0 is no .*: the one there has 64 columns from 0x0, of tcgen05\.alloc at PTX line \d+",
        "with the same number of columns",
    ),
    "tensor/layout": ("matrix-descriptor", "bits 46-48 are 0", "(| 1ull << 46), and see that nothing behind"),
    "tensor/odd_columns": ("tmem-alloc-size", "of 48 columns", "in the tcgen05.dealloc"),
    "mbarriers/arrives_twice": (
        "mbarrier-split-arrival",
        r"the 32 lanes of one mbarrier\.arrive .*: 1 of its 32 arrivals came from elsewhere before, so that 31 were",
        "Remove the arrival that is too many",
    ),
    "mbarriers/old_token": (
        "mbarrier-phase-aliasing",
        "the token that it waits with is of an arrival in that phase",
        "the token that the last arrival has returned",
    ),
    "copies/group_off_by_one": (
        "cp-async-in-flight",
        (r"the wait in between leaves its group pending[\s\S]*"
         r"a wait for all but the last 2 groups, which the copy is still in: the wait at PTX line \d+.*: cp\.async"),
        "Lower the number of the wait_group",
    ),
    "copies/store_half_awaited": (
        "bulk-store-in-flight",
        r"there is a wait_group\.read, which covers the reads of .* and not its writes: the wait at PTX line \d+",
        "wait_group, without .read,",
    ),
    "copies/expect_late": (
        "mbarrier-early-completion",
        (r"no expect_tx of this phase has announced their bytes[\s\S]*in flight: the copy at PTX line \d+.*: cp\.async"
         r"[\s\S]*beside the copy, without expect_tx: the arrival at PTX line 112.*: mbarrier\.arrive"),
        "mbarrier.arrive.expect_tx",
    ),
    "copies/too_few_bytes": (
        "mbarrier-early-completion",
        "expect_tx announced too few bytes",
        "the bytes of every copy",
    ),
    "maps/map_copied": (
        "global-out-of-bounds",
        "tensor map of 128 bytes at 0x3[0-9a-f]+: that is in the window of the thread's local memory",
        "give cp.async.bulk.tensor the parameter's own address",
    ),
    "maps/store_before": (
        "tensor-coordinate",
        "at the negative coordinate -8 in dimension 1 of 2",
        "at coordinates of 0 and more",
    ),
    "maps/rank": ("tensor-map", "a 3D copy through a tensor map of rank 2", "as many dimensions and coordinates"),
    "memory/next_array": (
        "array-out-of-bounds",
        "at element 64 of 'first', which has 0..63: byte 0x500 .* computed from: 'first', 256 bytes from 0x400 on",
        "Correct the index, or, if no element is meant there, skip the access",
    ),
    "warps/shuffle_absent_lane": (
        "shfl-inactive-lane",
        "lane 8 reads lane 16, which does not take part: lanes 0x0000ffff do, and the shuffle's width is 32",
        "a width",
    ),
}  # fmt: skip


def _launched(name: str, device: emulator.Device, watch: HangWatch | None = None) -> list[Finding]:
    entry = read(Path(CATALOGUE, name + ".cu"))
    module = emulator.load_ptx(entry.ptx)
    out, given = device.alloc(4 * WORDS, "out"), device.alloc(4 * WORDS, "in")
    device.write(out.address, np.zeros(WORDS // 2, np.int32))
    device.write(given.address, np.arange(WORDS, dtype=np.int32))
    maps = [
        emulator.encode_tiled(
            dtype="s32", address=b.address, global_dim=(16, WORDS // 16), global_strides=(64,), box_dim=(16, 8)
        )
        for b in (given, out)
        if entry.maps
    ]
    arguments: list[bytes | int | float] = [out.address, given.address, *maps]
    launch = (module, "mistake", entry.grid, entry.block, arguments, entry.shared, entry.cluster)
    if watch is None:
        return list(device.launch(*launch).findings)
    with watch(device, module, "mistake"):
        return list(device.launch(*launch).findings)


@pytest.mark.parametrize("name", SAID)
def test_the_words_lead_to_the_mistake(name: str) -> None:
    rule, said, remedy = SAID[name]
    (found, *_) = [f for f in _launched(name, emulator.Device(profile="strict")) if f.rule == rule]
    assert re.search(said, str(found)), str(found)
    assert remedy in found.remedy


def test_a_wait_with_an_old_token_comes_before_the_races_that_it_lets_happen() -> None:
    found = _launched("mbarriers/old_token", emulator.Device(profile="strict"))
    assert [f.rule for f in found] == sorted(f.rule for f in found) == [*2 * ["mbarrier-phase-aliasing"], *2 * ["race"]]
    for wait, race in zip(found[:2], found[2:], strict=True):
        assert race.details == ((wait.place, race.details[0][1]),)
        assert race.remedy.startswith("Correct the wait with the old token first, and add no barrier")


def test_nothing_refers_to_a_wait_or_an_mbarrier_that_is_waived() -> None:
    rules = ("mbarrier-phase-aliasing", "mbarrier-early-completion")
    waivers = [emulator.Waiver(rule, "told apart by the turn") for rule in rules]
    for name in ("mbarriers/old_token", "copies/expect_late"):
        found = _launched(name, emulator.Device(profile="strict", waivers=waivers))
        assert any(f.waived for f in found)
        others = [f for f in found if not f.waived]
        assert others
        assert not any(rule in text for f in others for text in (str(f), f.remedy) for rule in rules)


def test_a_race_of_a_ring_refers_to_the_barrier_that_overtakes() -> None:
    found = _launched("mbarriers/consumer_parity", emulator.Device(profile="strict"))
    rules = [f.rule for f in found]
    assert rules.index("mbarrier-phase-aliasing") < rules.index("race")
    assert found[rules.index("race")].remedy.startswith("Do what mbarrier-phase-aliasing says first")


@pytest.mark.parametrize("name", ["copies/expect_late", "copies/too_few_bytes"])
def test_a_copy_in_flight_at_the_exit_has_the_remedy_of_what_did_not_wait_for_it(name: str) -> None:
    early, left = _launched(name, emulator.Device(profile="strict"))
    assert (early.rule, left.rule) == ("mbarrier-early-completion", "exit-with-work-in-flight")
    assert "completed without it: see mbarrier-early-completion" in str(left)
    assert "which cures both" in left.remedy


def test_a_copy_that_its_own_warp_has_waited_for_lacks_a_barrier() -> None:
    device = emulator.Device(profile="strict", schedule="early")
    (found,) = [f for f in _launched("copies/no_barrier", device) if f.rule == "cp-async-in-flight"]
    assert found.message.endswith("may still write it: no barrier after the wait for it in between")
    said = r"its own warp has waited for it, and no barrier .* behind the wait at PTX line \d+.*: cp\.async\.wait_gro"
    assert re.search(said, str(found))
    assert found.remedy.startswith("A barrier")


def test_a_commit_that_comes_too_early_is_of_its_own_thread() -> None:
    for name in ("tensor/committed_too_early", "tensor/last_not_committed"):
        found = [f for f in _launched(name, emulator.Device(profile="strict")) if f.rule == "tmem-access-under-mma"]
        assert found
        assert all("of its own thread alone" not in str(f) for f in found)


def test_a_count_that_nobody_makes_full_is_the_cause_of_a_circle() -> None:
    watch = HangWatch()
    _launched("mbarriers/count_long", emulator.Device(profile="strict"), watch)
    (hang,) = watch.hangs
    said = explained(hang)
    assert said[0] == "2 waits form a circle:"
    assert re.search(r"^likely cause: .*is initialised at .* for 33 arrivals, and 32 come \(warp 0 at", said[-1])


def test_columns_that_are_given_back_twice_name_the_first_time() -> None:
    body = "bar.sync 0; @%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 64;"
    (found,) = run_micro(body, "tensor")[0].findings
    assert found.rule == "tmem-dealloc"
    assert re.search(r"is no allocation of this CTA: it was given back at PTX line \d+$", found.message)
