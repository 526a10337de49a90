"""Regressions planted in a real run: what the report is read by. `PLANTED` names each with what was done to the run.

Each is a change of one thing in a part of the configurations, of a size that no gate notices unless it says so.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fmha.harness.archive import RunRecord
from fmha.harness.archive.record import ConfigurationRecord, Parameters
from fmha.harness.contract.protocol import Configuration
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.limits import FailedCheck
from fmha.harness.judge.status import Status
from tests.evidence.records import record

SOURCE = "kernel/sm100/fmha_fwd.cu"
Where = Callable[[ConfigurationRecord], bool]
Change = Callable[[ConfigurationRecord, random.Random], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Plant:
    """What was done, where, and what a reader should say of it."""

    name: str
    planted: str
    make: Callable[[RunRecord], RunRecord]


def plain_run() -> RunRecord:
    """head_dim x T x s_k x mask, all as good as each other, a variant a head_dim."""
    made = record()
    first, (variant,) = made.configurations[0], made.variants
    stats = {"barrier_waits": 100, "bulk_load_bytes": 4096}
    items, head_dims = [], (64, 128, 256, 512)
    for head_dim, t, s_k, mask in itertools.product(
        head_dims, (1, 4, 32, 128), (128, 256, 384), ("none", "causal", "window")
    ):
        cell = Configuration(head_dim, t, s_k, mask=mask, window=64 if mask == "window" else 0)
        changes = {"parameters": Parameters(**asdict(cell)), "variant": f"hd{head_dim}", "stats": stats}
        items.append(first.model_copy(update={"id": cell.id} | changes))
    variants = [variant.model_copy(update={"name": f"hd{value}", "head_dim": value}) for value in head_dims]
    return made.model_copy(update={"configurations": items, "variants": variants})


def later(run: RunRecord, sha: str = "b" * 40) -> RunRecord:
    """The same run of another commit, which nobody has accepted."""
    return run.model_copy(update={"commit": run.commit.model_copy(update={"sha": sha}), "acceptance": None})


def changed(run: RunRecord, where: Where, change: Change) -> RunRecord:
    chance = random.Random(0)
    items = [
        item.model_copy(update=dict(change(item, chance))) if where(item) and item.metrics else item
        for item in run.configurations
    ]
    return _with(run, items)


def _with(run: RunRecord, items: list[ConfigurationRecord]) -> RunRecord:
    """A later run of these, and its verdict counted anew."""
    counts = Counter(item.status for item in items)
    word, code = ("PASS", 0) if set(counts) == {Status.PASS} else ("FAIL", 1)
    verdict = {"word": word, "exit_code": code, "passed": counts[Status.PASS], "counts": dict(counts)}
    return later(run).model_copy(
        update={"configurations": items, "verdict": run.verdict.model_copy(update=verdict | {"total": len(items)})}
    )


def grown(metric: str, low: float, high: float) -> Change:
    """The error larger by a factor between the two, and other bits."""

    def change(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
        factor = math.exp(chance.uniform(math.log(low), math.log(high)))
        before = getattr(item.metrics, metric)
        after = 1 - (1 - before) * factor if metric == "cosine" else before * factor
        digest = f"{chance.getrandbits(256):064x}"
        assert item.metrics
        return {"metrics": replace(item.metrics, **{metric: after}, output_hash=digest)}

    return change


def counted(counter: str, factor: float) -> Change:
    def change(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
        value = item.stats[counter]
        assert isinstance(value, int)
        return {"stats": item.stats | {counter: math.ceil(value * factor)}}

    return change


def raced(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
    where = {"source": f"{SOURCE}:75", "ptx_line": 1207, "ptx": "tcgen05.ld", "other_source": f"{SOURCE}:61"}
    finding = FindingRecord(
        rule="tmem-race", severity="error", message="two agents access the same columns", where=where
    )
    return {"status": Status.HAZARD, "reasons": ["hazards 1 > 0"], "findings": [finding]}


def missed(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
    assert item.metrics
    metrics = replace(item.metrics, lse_error=0.69, output_hash=f"{chance.getrandbits(256):064x}")
    check = FailedCheck(name="lse_error", value=0.69, limit=1e-4, bound="at most")
    reasons = ["lse_error 0.69 > 0.0001"]
    return {"status": Status.FAIL, "reasons": reasons, "failed_checks": [check], "metrics": metrics}


def bits(item: ConfigurationRecord, chance: random.Random) -> Mapping[str, Any]:
    assert item.metrics
    return {"metrics": replace(item.metrics, output_hash=f"{chance.getrandbits(256):064x}")}


def _head_dim(*values: int) -> Where:
    return lambda item: item.parameters.head_dim in values


def _registers(run: RunRecord) -> RunRecord:
    variants = [
        item.model_copy(update={"resources": replace(item.resources, registers=255, spill_loads=16)})
        if item.head_dim == 512 and item.resources
        else item
        for item in run.variants
    ]
    return later(run).model_copy(update={"variants": variants})


def _without(run: RunRecord, where: Where) -> RunRecord:
    return _with(run, [item for item in run.configurations if not where(item)])


def _judged(run: RunRecord) -> RunRecord:
    assert run.judge
    files = run.judge.files | {"harness/judge/oracle/reference.py": "0" * 16}
    return later(run).model_copy(update={"judge": run.judge.model_copy(update={"digest": "0" * 64, "files": files})})


def _both(run: RunRecord) -> RunRecord:
    first = changed(run, _head_dim(256), grown("lse_error", 50, 340))
    return changed(first, lambda item: item.parameters.t == 1, counted("barrier_waits", 1.3))


def _part(run: RunRecord) -> RunRecord:
    """head_dim 64 and 256 alone were asked for."""
    new = changed(run, _head_dim(256), grown("lse_error", 50, 340))
    asked = new.selection.model_copy(update={"filter": "hd=64|256"})
    items = [item for item in new.configurations if item.parameters.head_dim in (64, 256)]
    return _with(new, items).model_copy(update={"selection": asked})


def guard_broken(run: RunRecord, words: str, status: Status = Status.CRASH) -> RunRecord:
    """The first configuration is the guard's, and has no numbers; nothing behind it is run."""
    first, *others = run.configurations
    nothing = {"metrics": None, "drawn": None, "findings": [], "stats": {}}
    broken = first.model_copy(update=nothing | {"guard": True, "status": status, "reasons": [words]})
    kept = [f"guard: {first.id} failed ({status})"]
    idle = nothing | {"status": Status.NOT_RUN, "withheld": "guard", "reasons": kept}
    return _with(run, [broken, *(item.model_copy(update=idle) for item in others)])


ILLEGAL = "launch of fmha_fwd_sm100_hd64_ptmem refused: block.x is 2048; 1..1024 is allowed"
RAISED = "NameError: name 'oops' is not defined (fmha_kernels.py:31)"

PLANTED = (
    Plant("lse-hd256", "LSE error x50 to x340 at head_dim 256", lambda run: changed(
        run, _head_dim(256), grown("lse_error", 50, 340))),
    Plant("max-causal", "largest relative error x2.5 to x4 with mask causal", lambda run: changed(
        run, lambda item: item.parameters.mask == "causal", grown("max_error", 2.5, 4))),
    Plant("cosine-t1", "1 - cosine x3 to x6 with T = 1", lambda run: changed(
        run, lambda item: item.parameters.t == 1, grown("cosine", 3, 6))),
    Plant("hazard", "tmem-race with head_dim 128, T of 32 and more", lambda run: changed(
        run, lambda item: item.parameters.head_dim == 128 and (item.parameters.t or 0) >= 32, raced)),
    Plant("counter", "bulk_load_bytes 25% more with s_k = 384", lambda run: changed(
        run, lambda item: item.parameters.s_k == 384, counted("bulk_load_bytes", 1.25))),
    Plant("registers", "255 registers and 16 bytes spilled at head_dim 512", _registers),
    Plant("not-run", "T = 128 is not run any more", lambda run: _without(
        run, lambda item: item.parameters.t == 128)),
    Plant("judge", "harness/judge/oracle/reference.py is another", _judged),
    Plant("fails", "LSE in base 2 at head_dim 64 with mask window: the gate is missed", lambda run: changed(
        run, lambda item: item.parameters.head_dim == 64 and item.parameters.mask == "window", missed)),
    Plant("bits", "other bits at head_dim 512, errors as before", lambda run: changed(run, _head_dim(512), bits)),
    Plant("part", "head_dim 64 and 256 alone were asked for; LSE error x50 to x340 at head_dim 256", _part),
    Plant("illegal", "2048 threads a block: refused, and nothing else is run", lambda run: guard_broken(run, ILLEGAL)),
    Plant("adapter", "the adapter raises in its line 31, and nothing else is run", lambda run: guard_broken(
        run, RAISED)),
    Plant("two", "LSE error at head_dim 256, and barrier_waits 30% more with T = 1", _both),
)  # fmt: skip
