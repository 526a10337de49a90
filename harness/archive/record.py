"""The record of a run: what was run, on what, and what came of it.

JSON has no NaN or infinity. A number that is not finite is written as one of the strings "nan", "inf" and "-inf", and
read back as the number; bare `NaN` and `Infinity` are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from fmha.harness.contract.machine import Gpu, Machine
from fmha.harness.contract.protocol import Resources
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.judge.limits import FailedCheck, Limit
from fmha.harness.judge.metrics import Measurement
from fmha.harness.judge.numbers import Number, encode_numbers
from fmha.harness.judge.pooled import Pooled
from fmha.harness.judge.status import Status

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Plain = Annotated[dict[str, JsonValue], BeforeValidator(encode_numbers)]


class Record(BaseModel):
    """What all parts of a record have in common: nothing is there that is not declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Commit(Record):
    """The commit that was run, and whether its files were as committed."""

    sha: str = Field(pattern=r"^[0-9a-f]{40,64}$", description="40 zeros outside of git, where `installed` says more")
    branch: str | None = Field(description="null when HEAD is detached")
    dirty: bool
    dirty_files: list[str] = Field(description="paths that differ from the commit, at most 100")
    dirty_count: int = Field(ge=0)
    installed: str | None = Field(
        default=None, description="version of the fmha that brought the kernels, where they are no checkout's"
    )


class HostFacts(Record):
    """Where a run was, and what kept the commit's code from that machine."""

    name: str
    kind: str
    machine: Machine
    gpu: Gpu | None = Field(None, description="null on the emulator")
    gpus: list[Gpu] = Field(default_factory=list, description="all of them, the first too, where a run had several")
    versions: dict[str, str | None] = Field(description="null when the distribution is not installed")
    mma_sums: Literal["silicon"] | None = Field(
        None, description="silicon where the emulator added as a B200 does; null for its own sums, and elsewhere"
    )
    isolation: str | None = Field(
        None,
        description="what kept the commit's code from the machine, bubblewrap or landlock, or why nothing did; null"
        " when read from before version 6",
    )
    own_harness_outside: bool | None = Field(
        None,
        description="whether a harness of the commit's own, which the default branch does not have so, judged it on a"
        " host elsewhere: it ran outside the sandbox, with the rights of the account; null when read from before that"
        " was noted",
    )
    own_harness_enclosed: bool | None = Field(
        None,
        description="whether such a harness was in a sandbox as a whole; null when read from before there was one",
    )
    hosts: list[HostFacts] = Field(
        default_factory=list, description="each, where several shared the run; the rest is then of the first"
    )


class VariantRecord(Record):
    """A build of one kernel: of what, by what, and what it uses."""

    name: str
    arch: str
    source: str
    entry: str
    head_dim: int | None = Field(description="null for a kernel of one's own")
    defines: dict[str, str]
    source_hash: str = Field(description="sha256 over the kernel sources that the build read")
    nvcc: str
    flags: list[str]
    resources: Resources | None
    p_path: str | None = Field(None, description="how P reaches the second product: tmem, smem or registers")
    combine_resources: Resources | None = Field(None, description="of the kernel that merges splits, or of `others`")
    shared_dynamic: int | None = Field(None, description="bytes of shared memory that a launch asks for")
    seconds: Seconds
    processor_seconds: Seconds | None = Field(
        None, description="of the compilers, however busy the machine was; null for a build from the cache"
    )
    special_registers: list[str] = Field(
        default_factory=list, description="that its PTX reads and that say something of the machine, with the place"
    )
    cached: bool
    error: str | None


class Selection(Record):
    """What was asked for. `filter` is empty when the whole suite was."""

    suite: str
    suites: list[str] = Field(
        default_factory=list, description="names of `suite`, one by one; empty for cases by name and before version 7"
    )
    filter: str
    random: dict[str, int] = Field(
        default_factory=dict, description="how many configurations were drawn of each random suite"
    )
    one_a_variant: bool = Field(False, description="whether the largest configuration of each variant alone was")
    seed: int
    drawn: int | None = Field(None, description="the second seed of the inputs; null where none was drawn")
    schedule: str
    matrix_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Elsewhere(Record):
    """A run that another checkout has asked for: what it was to run is then known from its host alone."""

    host: str = Field(description="on whose word `selection` is, and which commit judged")
    judge: str | None = Field(
        pattern=r"^[0-9a-f]{40,64}$", description="ancestor whose gates held; null for those of the commit itself"
    )


class Parameters(Record):
    """The cell of the matrix. Axes beyond these are kept as they are; a kernel of one's own has its own alone."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    kernel: str | None = Field(None, description="what matrix.yaml calls a kernel of one's own; of attention, absent")
    # Of attention; a kernel of one's own may have fields of these names, of either kind.
    head_dim: int | str | None = None
    t: int | str | None = None
    s_k: int | str | None = None
    batch: int | str | None = None
    mask: str | int | None = None
    window: int | str | None = None

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what the cell does not have."""
        return {name: value for name, value in handler(self).items() if value is not None}

    @property
    def family(self) -> str:
        """What is shown together."""
        return f"hd {self.head_dim}" if self.kernel is None else self.kernel


class Judge(Record):
    """By what a run was judged: docs/use/evidence.md, "The judge"."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="sha256 over `files` and their whole sha256")
    files: dict[str, str] = Field(description="start of the sha256 of every file that the verdict depends on, by path")
    commit: str | None = Field(None, description="where the judge was taken from; null for the one that is installed")
    changed: list[str] = Field(
        default_factory=list, description="files of the judge that the judged commit has otherwise than `commit`"
    )
    beside: list[str] = Field(
        default_factory=list,
        description="other files of the harness that the judged commit has otherwise than `commit`, whose ran",
    )
    harness: str = Field(
        "", pattern=r"^([0-9a-f]{64})?$", description="sha256 of the rest of the harness; empty before version 6"
    )
    own: str | None = Field(None, description="what the commit's own judge said, in one line; before version 6")
    accepted: str | None = Field(None, description="why `changed` was accepted; null when it was not")


def _plain(finding: object) -> object:
    """A worker's finding without numbers that JSON has no words for."""
    return replace(finding, where=encode_numbers(finding.where)) if isinstance(finding, FindingRecord) else finding


class Timing(Record):
    """Speed on a GPU. Interleaved with another build's launches when `beside` names its commit."""

    seconds: list[Seconds] = Field(min_length=1, description="of one launch, one value a round")
    clock_mhz: list[float] = Field(description="of the SMs, one value a round, or none")
    bytes_moved: float | None = Field(description="least traffic to and from device memory, bytes")
    operations: float | None = Field(description="floating-point operations of the two products")
    bytes_per_second: float | None = Field(description="of a copy, measured in the same run")
    operations_per_second: float | None = Field(description="of a dense bf16 product, measured in the same run")
    load_clock_mhz: float | None = Field(None, description="of the SMs under the copy and the product, their median")
    load_watts: float | None = Field(None, description="likewise")
    throttled: list[str] = Field(default_factory=list, description="what held the GPU back meanwhile, as power cap")
    beside: str | None = Field(description="commit of the other build")
    beside_seconds: list[Seconds]
    beside_clock_mhz: list[float]


class ConfigurationRecord(Record):
    """What came of one configuration."""

    id: str
    parameters: Parameters
    guard: bool
    selected: bool = Field(description="false when it ran only to guard a selection that has no guard of its own")
    suites: list[str] = Field(
        default_factory=list, description="those of the selection that have it; empty where none was asked for"
    )
    variant: str | None
    status: Status
    withheld: Literal["guard", "stopped"] | None = Field(
        None, description="why it was not run although it could be: the guard failed, or the run was stopped"
    )
    reasons: list[str]
    failed_checks: list[FailedCheck]
    metrics: Measurement | None
    drawn: Measurement | None = Field(None, description="on the inputs of the seed that the run drew")
    met: list[str] = Field(default_factory=list, description="schedules that the run drew for it besides its own")
    findings: list[Annotated[FindingRecord, BeforeValidator(_plain)]]
    stats: Plain
    seconds: Seconds
    timing: Timing | None = None
    limits: int | None = Field(None, ge=0, description="which of the run's `limits` it was held to; null before 3")
    place: str | None = Field(None, description="host, GPU or node it ran on, where the run had several; else null")
    hashes: dict[str, str] = Field(
        default_factory=dict, description="of the output by place, where several hosts ran the configuration"
    )

    @property
    def lenient(self) -> bool:
        """Whether it was held to the lenient rules, where a pass says less."""
        return self.stats.get("profile") == "lenient"


class Verdict(Record):
    """What came of the whole run."""

    word: Literal["PASS", "FAIL", "INFRASTRUCTURE", "INCOMPLETE"]
    exit_code: int = Field(ge=0, le=4)
    passed: int = Field(ge=0)
    total: int = Field(ge=1)
    counts: dict[Status, int]


class Held(Record):
    """What regress said of the run."""

    baseline: str = Field(pattern=r"^[0-9a-f]{40,64}$", description="commit of the baseline it was held against")
    regressions: dict[str, int] = Field(description="how many there are of each kind that was not allowed")
    exit_code: int = Field(ge=0, le=4)
    words: str


class Acceptance(Record):
    """What makes a run a baseline: who took it for one and why, and how its numbers vary with the seed."""

    why: str = Field(min_length=1)
    accepted: AwareDatetime
    by: str
    replaces: str | None = Field(description="commit of the baseline before it")
    deterministic: bool = Field(description="whether the same seed gives the same bits, as far as was seen")
    seeds: list[int] = Field(description="those of `noise`, in order")
    allowances: dict[str, float] = Field(
        default_factory=dict, description="share by which a counter may grow, by its name; 0.02 where it is not named"
    )
    noise: dict[str, dict[str, list[Number]]] = Field(description="configuration, metric: one value a seed")
    builds: dict[str, list[Seconds]] = Field(
        default_factory=dict, description="variant: processor seconds of its builds in runs of this host"
    )


class Covered(Record):
    """Lines of a file, or of a PTX entry, that hold instructions."""

    lines: int = Field(ge=0)
    executed: int = Field(ge=0)
    missing: str = Field(description="lines that nothing executed, as 3-5, 9")


class Coverage(Record):
    """What a run on the emulator executed, where it was asked for."""

    ptx: dict[str, Covered] = Field(description="by variant and entry")
    source: dict[str, Covered] = Field(description="by file; a line counts once any variant executed it")


class RunRecord(Record):
    """One run of a suite on one host."""

    schema_version: Literal[7] = 7  # the one place that says so: SCHEMA_VERSION
    started: AwareDatetime
    finished: AwareDatetime
    commit: Commit
    host: HostFacts
    selection: Selection
    elsewhere: Elsewhere | None = Field(None, description="null where this checkout has asked for the run")
    variants: list[VariantRecord]
    durations: dict[str, Seconds] = Field(description="seconds a stage")
    configurations: list[ConfigurationRecord] = Field(min_length=1)
    sources: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="lines around the findings: file, line number, text"
    )
    judge: Judge | None = Field(None, description="null when read from version 1 or 2")
    limits: list[dict[str, Limit]] = Field(default_factory=list, description="the sets of gates there were, by name")
    verdict: Verdict
    regress: Held | None = Field(None, description="null where the run was held against no baseline")
    coverage: Coverage | None = Field(None, description="where it was asked for")
    pooled: list[Pooled] = Field(default_factory=list, description="of every variant, and all that miss their limit")
    acceptance: Acceptance | None = Field(None, description="in baselines only")
    checksum: str | None = Field(
        None, description="sha256 of the document without this field; null when read from version 1"
    )

    @property
    def headword(self) -> str:
        """The verdict in a word, that of regress where the run is worse than the baseline it was held against."""
        return "REGRESSED" if self.regress and self.regress.regressions else self.verdict.word


SCHEMA_VERSION: Final[int] = RunRecord.model_fields["schema_version"].default
