"""What a bisection on several hosts refuses to look for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from fmha.harness.archive import RunRecord
from fmha.harness.errors import UserError
from fmha.harness.evidence import bisect as stage
from fmha.harness.judge.comparison.comparison import Comparison, Kind, Regression
from fmha.harness.stages.outcome import Observer
from fmha.harness.stages.pipeline import Request


@pytest.mark.parametrize(("hosts", "refused"), [(("a", "b"), True), (("a", "a"), False)])
def test_times_of_several_hosts_are_not_held_against_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...], refused: bool
) -> None:
    slower = Regression(Kind.SPEED, "hd64_t1_sk128", "seconds", 1.0, 2.0, "slower")
    found = Comparison((slower,), (), 1)
    monkeypatch.setattr(stage._Search, "_compare", lambda *_: found)
    places = [stage._Place(host, tmp_path) for host in hosts]
    asked = stage.Bisection("good", "bad", Request(tmp_path))
    search = stage._Search(tmp_path, tmp_path, places, asked, cast(Observer, None))
    ends = [stage.Tested(sha, cast(RunRecord, object()), None) for sha in ("good", "bad")]
    if refused:
        with pytest.raises(UserError, match="times of several hosts"):
            search._target(*ends)
    else:
        assert search._target(*ends) == (slower,)
