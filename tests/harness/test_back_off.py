from __future__ import annotations

from fmha.harness.back_off import BackOff


def test_waits_double_up_to_the_longest_and_begin_anew() -> None:
    wait = BackOff(0.5, 3.0)
    assert [wait.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert wait.seconds == 3.0
    wait.restart()
    assert (wait.seconds, wait.next(), wait.seconds) == (0.5, 0.5, 1.0)


def test_those_that_begin_together_do_not_come_together() -> None:
    waits = {BackOff(1.0, 8.0, spread=0.5).next() for _ in range(50)}
    assert len(waits) > 40
    assert all(0.5 <= seconds <= 1.5 for seconds in waits)
