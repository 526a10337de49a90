"""All that a host may say: the one place where it is checked, before anybody uses any of it.

A host is not trusted. It may be broken, run another version, or be somebody else's by now. What it says has the types,
ranges and sizes given here and is about what was asked, or the run is void: an InfrastructureError, never a verdict.
Only raw numbers count, and the gates that they are held against are this side's.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from fmha.harness.contract.codec import CodecError, decode
from fmha.harness.contract.protocol import BuildResult, Event, Timed, Variant
from fmha.harness.errors import InfrastructureError
from fmha.harness.judge.metrics import METRICS

MOST_WORDS = 1 << 20  # characters of a text; what is beyond is cut off
MOST_ITEMS = 100_000  # of what has no schema of its own: statistics, the place of a finding
MOST_DEPTH = 16
MOST_INTEGER = 2**63
ROUNDING = 1e-9  # by which a quotient of sums may leave the range that its definition gives it

_BUILDING = threading.RLock()  # what a model is checked by is built when first needed, and hosts answer in threads
_Model = TypeVar("_Model", bound=BaseModel)
_Kind = TypeVar("_Kind")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]} [{len(text) - MOST_WORDS} characters more]"


def _plain(value: Any) -> Any:
    """JSON data of bounded size, depth and numbers."""
    left, pending = MOST_ITEMS, [(value, 0)]
    while pending:
        item, depth = pending.pop()
        left -= 1
        if left < 0 or depth > MOST_DEPTH:
            raise ValueError("is too large or nested too deeply")
        if type(item) is int and not -MOST_INTEGER <= item < MOST_INTEGER:
            raise ValueError("has a whole number beyond 64 bits")
        if isinstance(item, str) and len(item) > MOST_WORDS:
            raise ValueError("has a text that is too long")
        if isinstance(item, Mapping):
            pending += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, Sequence) and not isinstance(item, str):
            pending += [(part, depth + 1) for part in item]
    return value


def _cosine(value: float) -> float:
    if abs(value) > 1 + ROUNDING:
        raise ValueError(f"is {value:.9g}, which no cosine is")
    return value


def _error(value: float) -> float:
    if value < 0:
        raise ValueError(f"is {value:.9g}, which no error is")
    return value


Words = Annotated[str, AfterValidator(_cut)]
Name = Annotated[str, Field(max_length=4096)]
Count = Annotated[int, Field(ge=0, lt=MOST_INTEGER)]
Moment = Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]  # seconds since 1970, by the host's clock
Seconds = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RunName = Annotated[str, Field(pattern=r"^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}-[0-9a-f]{8}$")]
# NaN and the infinities are honest results of a wrong kernel; no gate lets them pass.
Cosine = Annotated[float, AfterValidator(_cosine)]
Error = Annotated[float, AfterValidator(_error)]
Signed = Annotated[float, AfterValidator(float)]
Plain = Annotated[dict[str, Any], AfterValidator(_plain)]


class Answer(BaseModel):
    """A part of what a host says. Fields that are not known here are from a later version, and are not used."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, defer_build=True)


class Refusal(Answer):
    """What a host says in place of an answer: the error, what to do next, and whose fault it is."""

    error: Words
    next: Words = ""
    usage: bool = False


class StatusAnswer(Answer):
    """How a run ended, and the size and hash of its events."""

    state: Literal["done", "failed", "cancelled", "lost"]
    reason: Words = ""
    next_step: Words = ""
    events_bytes: Count
    events_sha256: Digest
    finished: Moment


class SaidGpu(Answer):
    """A GPU as the host's supervisor tells of it."""

    name: Name
    uuid: Name
    driver: Name


class StateEvent(Answer):
    """A run entered another state, and which GPUs it has."""

    state: Annotated[str, Field(pattern=r"^[a-z][a-z-]{0,30}$")]
    at: Moment
    gpu: SaidGpu | None = None
    gpus: Annotated[list[SaidGpu], Field(max_length=1024)] = []


class WaitingEvent(Answer):
    """Why a run waits, and how many are before it."""

    reason: Words
    position: Count


class NoteEvent(Answer):
    """A line for people."""

    text: Words


class IsolationEvent(Answer):
    """What the supervisor has put the runner into."""

    mechanism: Literal["bubblewrap", "landlock", "none"]
    missing: Words
    whole: bool = False


class SaidMachine(Answer):
    """A machine as the host's supervisor tells of it."""

    cpu: Name
    cores: Annotated[int, Field(ge=1, le=1 << 20)]
    system: Name


class FactsEvent(Answer):
    """What a host is: machine and versions."""

    machine: SaidMachine
    versions: Annotated[dict[Name, Name | None], Field(max_length=100)]
    isolation: Name | None = None  # a version before said nothing of it


class _Bias(Answer):
    """The ranges of a Bias, likewise."""

    slope: Signed
    slope_deviation: Error
    slope_bias: Error
    lse_bias: Error
    lse_mean: Signed
    coarse: Error


class _Worst(Answer):
    """The ranges of a Worst."""

    output: Name
    index: Annotated[tuple[Count, ...], Field(max_length=64)]
    got: Signed | None
    expected: Signed


class _Counts(Answer):
    """What a Measurement has beside its metrics."""

    nonfinite_mismatches: Count
    unwritten: Count
    output_hash: Digest


@functools.cache
def numbers(of_attention: bool, lacking: tuple[str, ...] = ()) -> type[Answer]:
    """The ranges of a Measurement, by the definitions in docs/understand/gates.md, of a configuration without the
    metrics that are `lacking`. A kernel of one's own does not have what is of attention alone."""
    fields: dict[str, Any] = {"bias": (_Bias if of_attention else None, ...)}
    fields["sentinels"] = (Count, 0)
    fields["worst"] = (None if of_attention else _Worst | None, None)
    for metric, known in METRICS.items():
        had = metric not in lacking and (of_attention or not known.of_attention)
        fields[metric] = ((Cosine if known.least else Error) if had else None, ...)
    return create_model("_Numbers", __base__=_Counts, **fields)


class _Resources(Answer):
    registers: Count
    spill_stores: Count
    spill_loads: Count
    stack: Count
    shared_static: Count


class _Shape(Answer):
    rows: Annotated[int, Field(ge=1, le=1 << 20)]
    keys: Annotated[int, Field(ge=1, le=1 << 20)]
    stages: Annotated[int, Field(ge=1, le=1 << 20)]
    threads: Annotated[int, Field(ge=1, le=1 << 20)]
    shared_bytes: Annotated[int, Field(ge=0, le=1 << 30)]


class _Built(Answer):
    source_hash: Digest
    nvcc: Name
    flags: Annotated[list[Name], Field(max_length=1000)]
    seconds: Seconds
    processor_seconds: Seconds | None
    special_registers: Annotated[list[Name], Field(max_length=1000)]
    error: str | None
    resources: _Resources | None
    combine_resources: _Resources | None


class _Finding(Answer):
    rule: Name
    severity: Literal["error", "warning"]
    message: Annotated[str, Field(max_length=MOST_WORDS)]
    where: Plain


class _Said(Answer):
    """An event of a worker, beside its measurement."""

    config: Name
    findings: Annotated[list[_Finding], Field(max_length=10_000)]
    stats: Plain
    seconds: Seconds
    status: Name
    message: Annotated[str, Field(max_length=MOST_WORDS)]
    place: Name


class _Timing(Answer):
    seconds: Annotated[list[Positive], Field(min_length=1, max_length=10_000)]
    clock_mhz: list[Positive]
    beside: Annotated[str, Field(pattern=r"^([0-9a-f]{40}([0-9a-f]{24})?)?$")]
    beside_seconds: list[Positive]
    beside_clock_mhz: list[Positive]


class Asked(Answer):
    """What a run was asked to run, as the client wrote it into the job; named as in the pipeline's Request."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    suite: Name | None = None
    filters: Annotated[list[Name], Field(max_length=10_000)] = []
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    schedule: Words | None = None
    schedules: Annotated[int, Field(ge=1, le=10_000)] | None = None
    one_a_variant: bool = False
    random_cases: Annotated[int, Field(ge=1, le=10_000)] | None = None
    cases: Annotated[list[Name], Field(max_length=100_000)] = []
    noise_seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=100_000)] = []
    drawn: Annotated[int, Field(ge=0, lt=2**63)] | None = None


class StoredOrder(Answer):
    """What a run was asked to do, as the host kept it."""

    branch: Name | None
    request: Asked
    matrix_sha256: Digest
    own: bool = False  # the judge is the fmha that was installed where the run was started


class StoredJob(Answer):
    """A run's job, as the host kept it."""

    run: RunName
    sha: Sha
    beside: Sha | None = None
    judge: Sha | None = None  # the commit whose gates hold; None: the run's own
    order: StoredOrder


class ListedRun(Answer):
    """A run in the list of `fmha ps`."""

    run: RunName
    host: Name
    sha: Sha
    label: Words
    state: Words
    reason: Words
    live: bool
    age_seconds: Seconds
    silent_seconds: Seconds


class Occupant(Answer):
    """Who has a GPU, or waits for it at a position; what the host's other accounts say may be among it."""

    gpu: Name
    position: Count
    account: Name
    run: Annotated[str, Field(pattern=r"^([0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}-[0-9a-f]{8})?$")]
    pid: int
    priority: Annotated[str, Field(pattern=r"^(high|normal|low)?$")]
    seconds: Seconds | None
    until: Moment = 0.0  # when a reservation ends, by the host's clock; 0 of a run


class Reserved(Answer):
    """What has come of a reservation: a GPU and until when, or a place in the queue and why."""

    gpu: Name = ""
    until: Moment = 0.0
    position: Count = 0
    reason: Words = ""


class Released(Answer):
    """Whether a reservation was there to be given back."""

    released: bool


class LogAnswer(Answer):
    """A log of a run."""

    log: Name
    text: Annotated[str, Field(max_length=16 << 20)]


class Cancelled(Answer):
    """Whether a run was there to be cancelled, and how it ended."""

    cancelled: bool
    status: StatusAnswer | None


class Removed(Answer):
    """Something that `fmha clean` deleted."""

    kind: Name
    name: Name
    bytes: Count


class Examined(Answer):
    """A line of `fmha doctor` about a host; `good` is None for what is only told."""

    name: Words
    good: bool | None
    seen: Words
    fix: Words


class ExaminationAnswer(Answer):
    """What the host's supervisor found when it looked at itself."""

    time: Moment
    findings: Annotated[list[Examined], Field(max_length=10_000)]


class Wanted(Answer):
    """What the host has of the commits that it is to be sent."""

    send: Annotated[list[Sha], Field(max_length=10_000)]


class UploadAnswer(Answer):
    """How many bytes of the pack the host has from before."""

    start: Annotated[Count, Field(alias="from")]


class ForcedCommand(Answer):
    """What `command=` of a line in authorized_keys is to have."""

    command: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Started(Answer):
    """The name of a run that has begun."""

    started: RunName


class EventsAnswer(Answer):
    """What follows: a run's events, as they were written."""

    events: str


def checked(model: type[_Model], said: Any, where: str) -> _Model:
    """What was said, as `model`. Raises InfrastructureError that names the field and `where` it was said."""
    try:
        with _BUILDING:
            model.model_rebuild()
        return model.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "it"
        _void(where, f"{field}: {first['msg'].removeprefix('Value error, ')}")


def build_of(said: Any, asked: Mapping[str, Variant], where: str) -> BuildResult:
    """What became of one of the variants that were asked for, by name. Of one that an adapter describes this side knows
    every word."""
    result = _decoded(BuildResult, said, where)
    fields = asdict(result)
    checked(_Built, fields | {"flags": list(result.flags), "special_registers": list(result.special_registers)}, where)
    variant = asked.get(result.variant.name)
    if variant is None:
        _void(where, f"variant {result.variant.name!r} was not asked for")
    own = variant.head_dim is None
    if not own:
        checked(_Shape, fields["variant"]["shape"], where)
    known = ("arch", "source", "entry", "head_dim", "p_path", "combine")
    for name in (*known, "shape", "defines", "flags", "sources", "compiler", "others") if own else known:
        if getattr(result.variant, name) != getattr(variant, name):
            _void(where, f"variant {variant.name}: its {name} is {getattr(result.variant, name)!r}")
    used = result.resources is not None or not variant.source
    beside = variant.combine or variant.others
    if result.error is None and (not used or (beside and result.combine_resources is None)):
        _void(where, f"variant {variant.name} was built, and what it uses was left out")
    return result


def worker_event_of(
    said: Any,
    beside: str | None,
    where: str,
    bare: Collection[str] = (),
    lacking: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> Event:
    """An event of a worker, with numbers that its measurements can have: of `bare` configurations those of any kernel,
    of others those of attention without what is `lacking`, by configuration."""
    event = _decoded(Event, said, where)
    fields = asdict(event)
    checked(_Said, fields | {"findings": [*fields["findings"]]}, where)
    more = [*(drawn.measurement for drawn in event.noise), *(met.measurement for met in event.met)]
    ranges = numbers(event.config not in bare, lacking.get(event.config, ()))
    for measurement in (event.measurement, *more):
        if measurement is not None:
            checked(ranges, asdict(measurement), where)
    if event.event == "result" and event.measurement is None:
        _void(where, f"the result of {event.config!r} has no numbers")
    if event.timing is not None:
        _check_timing(event.timing, beside, where)
    return event


def _check_timing(timing: Timed, beside: str | None, where: str) -> None:
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(timing).items()}
    checked(_Timing, fields, where)
    if timing.beside and timing.beside != beside:
        _void(where, f"it was timed beside {timing.beside}, which was not asked for")
    rounds = len(timing.seconds)
    counts = {len(timing.clock_mhz), len(timing.beside_seconds), len(timing.beside_clock_mhz)}
    if not counts <= {0, rounds}:
        _void(where, f"{rounds} rounds were timed, and other numbers of rounds beside")


def _decoded(kind: type[_Kind], said: Any, where: str) -> _Kind:
    try:
        _plain(said)
        return decode(kind, said, "it")
    except (CodecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        _void(where, str(error))


def _void(where: str, what: str) -> NoReturn:
    raise InfrastructureError(
        f"what the host says cannot be: {what}", where=where, next_step="nothing of it counts; see fmha logs"
    )
