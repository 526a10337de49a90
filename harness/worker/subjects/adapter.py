"""A kernel of one's own as the judge sees it: an adapter in processes of its own, asked for plain data.

What judges (fields, inputs, reference, outputs) is answered by one process. What is of the kernel is answered by
another wherever more than the adapter runs there: a callable, sources in Python as those of Triton are, or another
commit's. Neither sees the measure or a gate.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fmha.harness.judge.case import Case, Field
from fmha.harness.worker.subjects.adapter_frames import Arrays
from fmha.harness.worker.subjects.adapter_process import AdapterProcess

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fmha.harness.worker.subjects.adapter_answers import AnsweredLaunch, Description
    from fmha.harness.worker.subjects.kernel import Build, Output


T = TypeVar("T")


class Adapter:
    """The adapter `where`, FILE.py:CLASS below `root`, of the kernel that matrix.yaml calls `name`.

    No process is started before one is asked. Raises AdapterError for what goes wrong in the adapter.
    """

    def __init__(
        self, root: Path, where: str, name: str, *, tree: Path | None = None, limit_seconds: float | None = None
    ) -> None:
        """The kernel's sources are below `tree`, or below `root` too. An answer takes `limit_seconds` at most; None
        where whoever asks is watched by somebody else."""
        self.where = where
        self.name = name
        self.tree = tree or root
        self._root = root
        self._limit = limit_seconds
        self._judging = self._process(root)
        self._of_kernel: AdapterProcess | None = None  # of its own
        self._on_gpu = False
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
        if not found.plain and not found.called:
            self._of_kernel = self._process(self.tree, kernels=True)
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

        process = self._kernel_side()
        said, _ = process.ask("build", {"case": _said(case), "arch": arch})
        return _checked(process, "build", lambda: adapter_answers.build(said["build"]))

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
        made = self._buffers("scratch", case, self._kernel_side())
        if kept := [name for name, item in made.items() if item.first == "input"]:
            raise self._kernel_side().odd("scratch", f"{kept[0]} is scratch, and would be an input")
        return made

    def launches(self, case: Case, arch: str) -> Sequence[AnsweredLaunch]:
        """The launches of a case, as the kernel's side says."""
        from fmha.harness.worker.subjects import adapter_answers

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

    def _kernel_side(self, *, gpu: bool = False) -> AdapterProcess:
        if not self.parted:
            return self._judging
        if self._of_kernel is None or (gpu and not self._on_gpu):
            self.close_kernel()
            self._of_kernel, self._on_gpu = self._process(self.tree, gpu=gpu, kernels=True), gpu
        return self._of_kernel

    def _process(self, tree: Path, *, gpu: bool = False, kernels: bool = False) -> AdapterProcess:
        return AdapterProcess(
            self._root, self.where, self.name, tree, gpu=gpu, kernels=kernels, limit_seconds=self._limit
        )


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
