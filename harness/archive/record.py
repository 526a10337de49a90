"""The record of a run: what was run, on what, and what came of it. Version 1.

JSON has no NaN or infinity. A number that is not finite is written as one of the strings "nan", "inf" and "-inf", and
read back as the number; bare `NaN` and `Infinity` are refused.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
)

from harness.status import Status
from harness.worker.protocol import Mask

SCHEMA_VERSION = 1

_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _read(value: Any) -> Any:
    return _NAMES.get(value, value) if isinstance(value, str) else value


def encode_number(value: float) -> float | str:
    """The number itself, or its name when JSON has no token for it."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def encode_numbers(value: Any) -> Any:
    """Plain JSON data with every number that is not finite replaced by its name."""
    if isinstance(value, float):
        return encode_number(value)
    if isinstance(value, dict):
        return {str(key): encode_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_numbers(item) for item in value]
    return value


Number = Annotated[
    float,
    BeforeValidator(_read),
    PlainSerializer(encode_number),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": list(_NAMES)}]}),
]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Plain = Annotated[dict[str, JsonValue], BeforeValidator(encode_numbers)]


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Commit(Record):
    sha: str = Field(pattern=r"^[0-9a-f]{40,64}$")
    branch: str | None = Field(description="null when HEAD is detached")
    dirty: bool
    dirty_files: list[str] = Field(description="paths that differ from the commit, at most 100")
    dirty_count: int = Field(ge=0)


class Machine(Record):
    cpu: str
    cores: int = Field(ge=1, description="cores this run was allowed to use")
    system: str


class HostFacts(Record):
    name: str
    kind: str
    machine: Machine
    versions: dict[str, str | None] = Field(description="null when the distribution is not installed")


class Resources(Record):
    """ptxas's figures. Bytes, except registers a thread."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared_static: int


class VariantRecord(Record):
    name: str
    arch: str
    source: str
    entry: str
    head_dim: int
    defines: dict[str, str]
    source_hash: str = Field(description="sha256 over the kernel sources that the build read")
    nvcc: str
    flags: list[str]
    resources: Resources | None
    seconds: Seconds
    cached: bool
    error: str | None


class Selection(Record):
    """What was asked for. `filter` is empty when the whole suite was."""

    suite: str
    filter: str
    seed: int
    schedule: str
    matrix_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Parameters(Record):
    """The cell of the matrix. Axes beyond these are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    head_dim: int
    t: int
    s_k: int
    batch: int
    mask: Mask
    window: int


class Metrics(Record):
    """Defined in docs/gates.md."""

    cosine: Number
    relative_l2: Number
    max_error: Number
    lse_error: Number
    row_max_error: Number
    row_sum_error: Number
    nonfinite_mismatches: int
    unwritten: int
    output_hash: str


class FailedCheck(Record):
    """One gate that was missed."""

    name: str
    value: Number
    limit: Number
    bound: Literal["at least", "at most"]


class Finding(Record):
    rule: str
    severity: Literal["error", "warning"]
    message: str
    where: Plain


class ConfigurationRecord(Record):
    id: str
    parameters: Parameters
    guard: bool
    selected: bool = Field(description="false when it ran only to guard a selection that has no guard of its own")
    variant: str | None
    status: Status
    reasons: list[str]
    failed_checks: list[FailedCheck]
    metrics: Metrics | None
    findings: list[Finding]
    stats: Plain
    seconds: Seconds


class Verdict(Record):
    word: Literal["PASS", "FAIL", "INFRASTRUCTURE", "INCOMPLETE"]
    exit_code: int = Field(ge=0, le=4)
    passed: int = Field(ge=0)
    total: int = Field(ge=1)
    counts: dict[Status, int]


class RunRecord(Record):
    """One run of a suite on one host."""

    schema_version: Literal[1] = 1
    started: AwareDatetime
    finished: AwareDatetime
    commit: Commit
    host: HostFacts
    selection: Selection
    variants: list[VariantRecord]
    durations: dict[str, Seconds] = Field(description="seconds a stage")
    configurations: list[ConfigurationRecord] = Field(min_length=1)
    verdict: Verdict
