"""In which order a GPU is given to those that wait for it."""

from __future__ import annotations

from fmha.harness.supervisor.locks import Claim, State, digest

GPU = "GPU-a"


def claim(run: str, uid: int, turn: int, since: float, priority: str = "normal") -> Claim:
    return Claim(f"name-{run}", digest(GPU), run, turn, since, priority, uid, 1)


def test_accounts_take_turns_and_priority_is_among_ones_own() -> None:
    """One account has queued four runs before another queues one of low priority."""
    mine = [
        claim("normal", 1, 1, 10.0),
        claim("low", 1, 2, 11.0, "low"),
        claim("high", 1, 3, 12.0, "high"),
        claim("later", 1, 4, 13.0),
    ]
    theirs = claim("theirs", 2, 1, 14.0, "low")
    elsewhere = Claim("other", digest("GPU-b"), "other", 0, 1.0, "high", 1, 1)
    held = Claim("lock", GPU, "first", 0, 1.0, "", 1, 1)
    state = State({GPU: held}, [*mine, theirs, elsewhere])
    assert [item.run for item in state.queue(digest(GPU))] == ["high", "theirs", "normal", "later", "low"]


def test_a_run_that_is_added_comes_behind_ones_own_and_no_sooner_than_those_that_have_gpus() -> None:
    held = Claim("lock", GPU, "first", 3, 1.0, "", 1, 1)
    state = State({GPU: held}, [claim("second", 1, 4, 10.0)])
    assert state.next_turn(1) == 5
    assert state.next_turn(2) == 3
