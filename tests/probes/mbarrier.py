"""Cases of mbarrier.cu: scripts of operations whose outcomes test_wait shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.probes.case import Case, In, Out

_OPS = (  # as mbarrier.cu numbers them
    "init", "arrive", "expect_tx", "complete_tx", "arrive_expect_tx",
    "arrive_no_complete", "drop", "drop_expect_tx", "drop_no_complete",
)  # fmt: skip
_MOST = 2**20 - 1  # of pending counts and of tx-counts

SCRIPTS: dict[str, str] = {
    "one": "init 1, arrive 1, arrive 1, arrive 1",
    "counts": "init 5, arrive 1, arrive 3, arrive 1, arrive 5, arrive 4, arrive 1",
    "most": f"init {_MOST}, arrive {_MOST - 1}, arrive 1, arrive {_MOST}",
    "tx": "init 2, expect_tx 64, arrive 1, arrive 1, complete_tx 32, complete_tx 32, arrive 2",
    "tx_before_arrival": "init 1, expect_tx 64, complete_tx 64, arrive 1",
    "complete_first": "init 1, complete_tx 16, expect_tx 16, arrive 1",
    "complete_first_partly": "init 2, complete_tx 48, arrive 1, expect_tx 64, arrive 1, complete_tx 16",
    "complete_first_negative_at_arrival": "init 1, complete_tx 16, arrive_expect_tx 16, arrive 1",
    "arrived_with_negative_tx": "init 1, complete_tx 16, arrive 1, expect_tx 16, arrive 1",
    "expect_after_arrival": "init 1, expect_tx 16, arrive 1, expect_tx 16, complete_tx 16, complete_tx 16, arrive 1",
    "arrive_expect": "init 1, arrive_expect_tx 128, complete_tx 100, complete_tx 28, arrive_expect_tx 8, complete_tx 8",
    "arrive_expect_two": "init 2, arrive_expect_tx 128, complete_tx 128, arrive_expect_tx 32, complete_tx 32",
    "arrive_expect_zero": "init 1, arrive_expect_tx 0, arrive_expect_tx 0",
    "most_tx": f"init 1, expect_tx {_MOST}, arrive 1, complete_tx {_MOST - 1}, complete_tx 1, arrive 1",
}
RARE: dict[str, str] = {
    "drop_one": "init 2, drop 1, arrive 1, arrive 1, arrive 1",
    "drop_last": "init 3, arrive 1, arrive 1, drop 1, arrive 1, arrive 1",
    "drop_two": "init 4, drop 2, arrive 2, arrive 1, arrive 1",
    "drop_all": "init 2, drop 1, drop 1",
    "drop_expect": "init 2, drop_expect_tx 64, arrive 1, complete_tx 64, arrive 1",
    "drop_no_complete": "init 4, drop_no_complete 2, arrive 2, arrive 1, arrive 1",
    "no_complete": "init 3, arrive_no_complete 2, arrive 1, arrive_no_complete 1, arrive 2",
    "no_complete_tx": "init 2, expect_tx 8, arrive_no_complete 1, complete_tx 8, arrive 1",
}


def _case(name: str, entry: str, script: str) -> Case:
    steps = [step.strip().split() for step in script.split(",")]
    words = np.array([[_OPS.index(op), int(x)] for op, x in steps], np.uint32).ravel()
    out = np.full(4 * len(steps), 0xEEEE, np.uint32)
    return Case(f"mbarrier/{name}", "mbarrier", entry, (In(words), len(steps), Out(out)), block=(1, 1, 1))


def cases() -> Iterator[Case]:
    for name, script in SCRIPTS.items():
        yield _case(f"{name}/parity", "common_steps", script)
        yield _case(f"{name}/state", "common_states", script)
    for name, script in RARE.items():
        yield _case(f"{name}/state", "rare_states", script)
