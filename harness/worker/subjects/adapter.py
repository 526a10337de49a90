"""A kernel of one's own as the judge sees it: an adapter in processes of its own, asked for plain data.

What judges (fields, inputs, reference, outputs) is answered by one process. What is of the kernel is answered by
another wherever more than the adapter runs there: a callable, sources in Python as those of Triton are, or another
commit's. Neither sees the measure or a gate.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from fmha.harness.judge.case import Case, Field, parse_case
from fmha.harness.worker.subjects.adapter_frames import Arrays
from fmha.harness.worker.subjects.adapter_process import AdapterError, AdapterProcess
from fmha.harness.worker.subjects.peers import PeerRefusedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fmha.harness.contract.protocol import Variant
    from fmha.harness.worker.compilers.at_hand import AtHand, Before
    from fmha.harness.worker.subjects.adapter_answers import AnsweredLaunch, Description
    from fmha.harness.worker.subjects.kernel import Build, Output


T = TypeVar("T")


class Adapter:
    """The adapter `where`, FILE.py:CLASS below `root`, of the kernel that matrix.yaml calls `name`.

    No process is started before one is asked. Raises AdapterError for what goes wrong in the adapter.
    """

    def __init__(
        self,
        root: Path,
        where: str,
        name: str,
        *,
        tree: Path | None = None,
        limit_seconds: float | None = None,
        plans: bool = False,
        planned: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """The kernel's sources are below `tree`, or below `root` too. An answer takes `limit_seconds` at most; None
        where whoever asks is watched by somebody else. Who `plans` a run hands on what the kernel's side has compiled
        and said meanwhile. `planned` is what it has said there, by a case's id: it is not asked again."""
        self.where = where
        self.name = name
        self.tree = tree or root
        self._root = root
        self._limit = limit_seconds
        self._judging = self._process(root)
        self._of_kernel: AdapterProcess | None = None  # of its own
        self._on_gpu = False
        self._plans = plans
        self._planned = planned
        self._said: dict[str, tuple[int, Mapping[str, Any]]] = {}  # by a case's id: when that process was started, what
        self._held: dict[str, Mapping[str, Any]] = {}  # of that what `hold_planned` has looked at
        self._before: Before | None = None
        self._drawn: tuple[int, Case, Arrays] | None = None
        self._kinds: dict[str, str] = {}  # of inputs that are of ml_dtypes' types: the types

    @property
    def file(self) -> str:
        """The adapter's file, without the class."""
        return self.where.rpartition(":")[0]

    def built_in(self, tree: Path) -> None:
        """The kernel's sources are below `tree` from now on, wherever the adapter is."""
        if tree != self.tree:
            self.tree = tree
            self._said, self._held = {}, {}
            self.close_kernel()

    def start(self) -> None:
        """Begins what takes a moment, without waiting for it."""
        self._judging.start()
        if self.tree != self._root:
            self._kernel_side().start()

    @functools.cached_property
    def description(self) -> Description:
        """What the adapter declares, asked for once. AdapterError where it raises or says what no kernel has."""
        self._judging.start()
        from fmha.harness.worker.subjects import adapter_answers  # while it starts

        said = self._judging.begin()
        found = _checked(self._judging, "begin", lambda: adapter_answers.description(said, self._root))
        if not found.plain and not found.called and not self._planned:
            self._of_kernel = self._of(found)
            self._of_kernel.start()
        return found

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its cases."""
        return self.description.fields

    def fault(self, case: Case) -> str | None:
        """Why no such case can be run; None for a legal one."""
        return self.faults([case])[0]

    def faults(self, cases: Sequence[Case]) -> list[str | None]:
        """For each case what speaks against it, None for nothing."""
        if not self.description.faults or not cases:
            return [None] * len(cases)
        from fmha.harness.worker.subjects import adapter_answers

        said, _ = self._judging.ask("faults", {"cases": [_said(case) for case in cases]})
        return _checked(self._judging, "faults", lambda: adapter_answers.faults(said["faults"], len(cases)))

    def build(self, case: Case, arch: str) -> Build:
        """What is compiled for a case, as the kernel's side says."""
        from fmha.harness.worker.subjects import adapter_answers

        if (known := self._known(case, arch, lambda said: adapter_answers.build(said["build"]))) is not None:
            return known
        process = self._kernel_side()
        said, _ = process.ask("build", {"case": _said(case), "arch": arch})
        made = _checked(process, "build", lambda: adapter_answers.build(said["build"]))
        more = said.get("planned")
        if isinstance(more, dict):
            kept = {name: more.get(name) for name in ("launches", "scratch")}
            self._said[case.id] = process.started_ns, {**kept, "arch": arch, "build": said["build"]}
        else:
            self._said.pop(case.id, None)
        return made

    def planned(self, ids: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """What the kernel's side has said of these cases when it was asked for their builds, for an adapter in another
        process."""
        return {name: self._held[name] for name in ids if name in self._held}

    def hold_planned(self) -> None:
        """Keeps what the kernel's side has said for `planned`, if all that it has read is now as it was then."""
        said, self._said, self._held = self._said, {}, {}
        process, before = self._handing_on() if said else None, self._before
        if process is None or before is None:
            return
        from fmha.harness.worker.compilers.at_hand import AtHand, still_there

        started, scratch = process.started_ns, process.scratch
        with contextlib.suppress(AdapterError, PeerRefusedError):
            read, _ = process.ask("read", {})
            if still_there(self.tree, self.sources, AtHand("", read, scratch, started, before)):
                self._held = {name: answers for name, (at, answers) in said.items() if at == started}

    def at_hand(self, variant: Variant) -> AtHand | None:
        """The PTX of a variant, if the kernel's side has compiled it when it was asked for its build, and runs since
        then."""
        from fmha.harness.worker.compilers.at_hand import AtHand
        from fmha.harness.worker.subjects import adapter_answers

        process, before = self._handing_on(), self._before
        if process is None or before is None:
            return None
        scratch, started = process.scratch, process.started_ns
        try:
            case = parse_case(self.name, self.fields, variant.example)
            said, _ = process.ask("compiled", {"case": _said(case), "arch": variant.arch})
            made = _checked(process, "compiled", lambda: adapter_answers.compiled(said))
        except (AdapterError, PeerRefusedError):
            return None
        if made is None or process.started_ns != started:
            return None
        return AtHand(made.text, made.read, scratch, started, before, made.processor_seconds)

    def _handing_on(self) -> AdapterProcess | None:
        """The process of the kernel's side where it runs, says what it has read, and is of the tree that is built."""
        process = self._of_kernel
        there = process is not None and process.runs and self._plans and self.tree == self._root
        return process if there else None

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that the adapter declares, and its own where something is compiled in it."""
        return _declared(self.description, self.file)

    def _known(self, case: Case, arch: str | None, read: Callable[[Mapping[str, Any]], T]) -> T | None:
        """What `read` makes of what was said before, of `arch` where the answer depends on it; None where nothing was,
        or what is no answer."""
        said = self._planned.get(case.id)
        if said is None or (arch is not None and said.get("arch") != arch):
            return None
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            return read(said)
        return None

    def inputs(self, seed: int, case: Case) -> Arrays:
        """They depend on the seed and the case's name alone."""
        said, arrays = self._judging.ask("inputs", {"case": _said(case), "seed": seed})
        self._kinds = _checked(self._judging, "inputs", lambda: _kinds(said["kinds"], arrays))
        self._drawn = (seed, case, arrays)
        return arrays

    def numbers(self, inputs: Arrays) -> Iterator[NDArray[Any]]:
        """What was drawn last, in types that say what it means, where the adapter said it."""
        from fmha.harness.worker.subjects.dtypes import viewed

        return (viewed(array, self._kinds.get(name, "")) for name, array in inputs.items())

    def reference(self, case: Case, inputs: Arrays) -> Arrays:
        """In float64, from `inputs`: those that were drawn last are at hand there."""
        drawn, self._drawn = self._drawn, None
        if drawn is not None and drawn[1] == case and drawn[2] is inputs:
            _, arrays = self._judging.ask("reference", {"case": _said(case), "seed": drawn[0]})
        else:
            _, arrays = self._judging.ask("reference", {"case": _said(case), "kinds": self._kinds}, inputs)
        for name, array in arrays.items():
            if array.dtype.str[1:] != "f8":
                raise self._judging.odd("reference", f"{name} is of {array.dtype}, not of float64")
        return arrays

    def outputs(self, case: Case) -> Mapping[str, Output]:
        """The outputs of a case, as the judging process says."""
        return self._buffers("outputs", case, self._judging)

    def scratch(self, case: Case) -> Mapping[str, Output]:
        """Of the kernel's side, which knows what its launches leave to each other: never an input."""
        from fmha.harness.worker.subjects import adapter_answers

        known = self._known(case, None, lambda said: adapter_answers.buffers(said["scratch"], "scratch"))
        made = known if known is not None else self._buffers("scratch", case, self._kernel_side())
        if kept := [name for name, item in made.items() if item.first == "input"]:
            raise self._kernel_side().odd("scratch", f"{kept[0]} is scratch, and would be an input")
        return made

    def launches(self, case: Case, arch: str) -> Sequence[AnsweredLaunch]:
        """The launches of a case, as the kernel's side says."""
        from fmha.harness.worker.subjects import adapter_answers

        if (known := self._known(case, arch, lambda said: adapter_answers.launches(said["launches"]))) is not None:
            return known
        process = self._kernel_side()
        said, _ = process.ask("launches", {"case": _said(case), "arch": arch})
        return _checked(process, "launches", lambda: adapter_answers.launches(said["launches"]))

    def call(self, case: Case, device: str, inputs: Arrays) -> tuple[Mapping[str, Any], Arrays]:
        """What a callable returns over `inputs` on torch's `device`: torch's names of the types, and the arrays. Raises
        RefusedError where it cannot be called."""
        process = self._kernel_side(gpu=device == "cuda")
        said, arrays = process.ask("call", {"case": _said(case), "device": device, "kinds": self._kinds}, inputs)
        kinds = _checked(process, "call", lambda: dict(said["kinds"]))
        if kinds.keys() != arrays.keys():
            raise process.odd("call", "its arrays are not those that it names")
        return kinds, arrays

    def prepare(self, case: Case, device: str, inputs: Arrays) -> None:
        """What `batch` calls from now on, until `release`. Raises RefusedError."""
        said = {"case": _said(case), "device": device, "kinds": self._kinds}
        self._kernel_side(gpu=device == "cuda").ask("prepare", said, inputs)

    def batch(self, times: int) -> Callable[[], float]:
        """So many calls, in the call's own process: what makes them, and says how many seconds they took there."""
        from fmha.harness.worker.subjects import adapter_answers

        process = self._kernel_side(gpu=self._on_gpu)
        made, _ = process.ask("batch", {"times": times})

        def replay() -> float:
            begun = time.monotonic()
            said, _ = process.ask("replay", {"batch": made["batch"]})
            most = time.monotonic() - begun
            return _checked(process, "replay", lambda: adapter_answers.seconds(said["seconds"], most))

        return replay

    def release(self) -> None:
        """Has the kernel's side give GPU memory back."""
        self._kernel_side(gpu=self._on_gpu).ask("release", {})

    def close_kernel(self) -> None:
        """Ends the process of the kernel's side."""
        if self._of_kernel is not None:
            self._of_kernel.close()
        self._of_kernel = None

    def close(self) -> None:
        self._judging.close()
        self.close_kernel()

    def _buffers(self, what: str, case: Case, process: AdapterProcess) -> Mapping[str, Output]:
        from fmha.harness.worker.subjects import adapter_answers

        said, _ = process.ask(what, {"case": _said(case)})
        return _checked(process, what, lambda: adapter_answers.buffers(said["buffers"], what))

    @property
    def parted(self) -> bool:
        """Whether what is of the kernel is answered by a process of its own."""
        return self.tree != self._root or not self.description.plain

    @property
    def asks_the_kernel(self) -> bool:
        """Whether a process of the kernel's side runs."""
        return self._of_kernel is not None and self._of_kernel.runs

    def _kernel_side(self, *, gpu: bool = False) -> AdapterProcess:
        if not self.parted:
            return self._judging
        if self._of_kernel is None or (gpu and not self._on_gpu):
            self.close_kernel()
            self._of_kernel, self._on_gpu = self._of(self.description, gpu=gpu), gpu
        return self._of_kernel

    def _of(self, said: Description, *, gpu: bool = False) -> AdapterProcess:
        compiles = said.compiles and not said.called
        if compiles and self._plans:
            from fmha.harness.worker.compilers.at_hand import before

            self._before = before(self.tree, _declared(said, self.file))
        return self._process(self.tree, gpu=gpu, kernels=True, compiles=compiles, reads=compiles and self._plans)

    def _process(self, tree: Path, **how: bool) -> AdapterProcess:
        return AdapterProcess(self._root, self.where, self.name, tree, limit_seconds=self._limit, **how)


def _declared(said: Description, file: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((said.source, *said.sources, *([file] if said.compiles else []))))


def _checked(process: AdapterProcess, what: str, read: Callable[[], T]) -> T:
    """What `read` makes of an answer that is none yet."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise process.odd(what, error) from error


def _kinds(said: Any, arrays: Arrays) -> dict[str, str]:
    """ValueError for what names no input, or no type."""
    from fmha.harness.worker.subjects.dtypes import KINDS

    if not isinstance(said, dict) or not said.keys() <= arrays.keys() or not set(said.values()) <= KINDS:
        raise ValueError("its kinds are not those of its arrays")
    return {str(name): str(kind) for name, kind in said.items()}


def _said(case: Case) -> dict[str, Any]:
    return {"kernel": case.kernel, "id": case.id, "values": [list(pair) for pair in case.values]}
