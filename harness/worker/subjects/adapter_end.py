"""An adapter's process: `python -P -m fmha.harness.worker.subjects.adapter_end ROOT FILE.py:CLASS NAME`.

It alone imports what a repository brings, inside the sandbox that the judge has started it in, and answers the judge's
questions (adapter.py) with plain data until its standard input ends. Whatever the adapter prints goes to standard
error.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from fmha.harness.contract.codec import encode
from fmha.harness.errors import UserError
from fmha.harness.judge.case import Case
from fmha.harness.worker.compilers.reads import Reading
from fmha.harness.worker.subjects.adapter_frames import READS, AdapterFrameError, Arrays, FileSource, pieces, received
from fmha.harness.worker.subjects.callable_kernel import CallableKernel
from fmha.harness.worker.subjects.dtypes import plain, viewed
from fmha.harness.worker.subjects.kernel import At, Kernel, Output, Struct, TensorMap
from fmha.harness.worker.subjects.loading import load_kernel, told
from fmha.harness.worker.subjects.tensor_calls import array_of, batch_of_calls, tensor_of

Answer = tuple[dict[str, Any], Arrays]
_PR_SET_PDEATHSIG: Final = 1
_WHILE_PLANNING: Final = ("begin", "faults", "build", "compiled", "read")


class _RefusedError(Exception):
    """What is called is not there; the message says what is missing."""


class Answerer:
    """One adapter. Every method that the judge may ask for takes what it says and its arrays."""

    def __init__(self, root: Path, where: str, name: str, reading: Reading | None = None) -> None:
        """`reading` is what this process listens to from its beginning, where a compiler runs in it."""
        self._reading = reading
        self._spent: dict[tuple[str, str], float] = {}  # processor seconds of `build`, by case and architecture
        self._root, self._where, self._name = root, where, name
        self._kernel: Kernel | None = None
        self._drawn: tuple[object, Mapping[str, Any]] | None = None  # what `reference` is asked of next
        self._call: Callable[[], Mapping[str, Any]] | None = None
        self._batches: list[Callable[[], float]] = []

    @property
    def kernel(self) -> Kernel:
        """The kernel, once it is loaded."""
        assert self._kernel is not None
        return self._kernel

    def begin(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Loads the adapter and says what it declares."""
        os.environ.update(said["environment"])
        kernel = load_kernel(self._root, self._where)
        kernel.root = Path(said["tree"])
        self._kernel = kernel
        called = isinstance(kernel, CallableKernel)
        return {
            "source": kernel.source,
            "sources": encode(tuple(kernel.sources)),
            "flags": encode(tuple(kernel.flags)),
            "overwrites": encode(tuple(kernel.overwrites)),
            "archs": encode(tuple(kernel.archs)),
            "profile": kernel.profile if isinstance(kernel.profile, str) else repr(kernel.profile),
            "fields": [encode(field) for field in kernel.fields],
            "faults": type(kernel).fault is not Kernel.fault,
            "compiles": type(kernel).compile is not Kernel.compile,
            "called": called,
            "gpu": isinstance(kernel, CallableKernel) and bool(kernel.gpu),
        }, {}

    def faults(self, said: dict[str, Any], _: Arrays) -> Answer:
        """What speaks against each case."""
        found = [self.kernel.fault(_case(item)) for item in said["cases"]]
        return {"faults": [None if fault is None else str(fault) for fault in found]}, {}

    def build(self, said: dict[str, Any], _: Arrays) -> Answer:
        """What is compiled for a case; where that is compiled by now, what would be asked next as well."""
        case, arch = _case(said["case"]), said["arch"]
        begun = time.process_time()
        answer: dict[str, Any] = {"build": encode(self.kernel.build(case, arch))}
        self._spent[case.id, arch] = round(time.process_time() - begun, 3)
        with contextlib.suppress(Exception):  # whoever asks for one of these is told
            if self.kernel.at_hand(case, arch) is not None:
                launches, scratch = self.launches(said, {})[0], self.scratch(said, {})[0]
                answer["planned"] = {"launches": launches["launches"], "scratch": scratch["buffers"]}
        return answer, {}

    def read(self, _said: dict[str, Any], _: Arrays) -> Answer:
        """What this process has read so far."""
        return {} if self._reading is None else self._reading.said(), {}

    def compiled(self, said: dict[str, Any], _: Arrays) -> Answer:
        """The PTX of a case, if `build` has compiled it, and what this process has read so far."""
        case, arch = _case(said["case"]), said["arch"]
        text = self.kernel.at_hand(case, arch)
        if text is None or self._reading is None:
            return {"text": None}, {}
        spent = self._spent.pop((case.id, arch), 0.0)
        return {"text": text, "read": self._reading.said(), "processor_seconds": spent}, {}

    def inputs(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Inputs of a case and a seed; those of bf16 as bits, named in `kinds`."""
        made = self._inputs(said)
        self._drawn = (_key(said), made)
        plainly = {name: plain(array) for name, array in made.items()}
        kinds = {name: kind for name, (_, kind) in plainly.items() if kind}
        return {"kinds": kinds}, {name: array for name, (array, _) in plainly.items()}

    def reference(self, said: dict[str, Any], arrays: Arrays) -> Answer:
        """Of the arrays, or of the inputs of a seed, which are at hand where they were the last."""
        if "seed" in said:
            at_hand = self._drawn is not None and self._drawn[0] == _key(said)
            arrays, self._drawn = self._drawn[1] if at_hand and self._drawn else self._inputs(said), None
        else:
            arrays = {name: viewed(array, said["kinds"].get(name, "")) for name, array in arrays.items()}
        wanted = self.kernel.reference(_case(said["case"]), arrays)
        return {}, {name: np.asarray(array, dtype=np.float64) for name, array in wanted.items()}

    def outputs(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Outputs of a case: shapes and dtypes."""
        return {"buffers": _buffers(self.kernel.outputs(_case(said["case"])))}, {}

    def scratch(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Scratch buffers of a case: shapes and dtypes."""
        return {"buffers": _buffers(self.kernel.scratch(_case(said["case"])))}, {}

    def launches(self, said: dict[str, Any], _: Arrays) -> Answer:
        """The launches of a case."""
        self.kernel.arch = said["arch"]
        made = [
            {
                "grid": encode(tuple(launch.grid)),
                "block": encode(tuple(launch.block)),
                "args": [_argument(item) for item in launch.args],
                "shared_bytes": int(launch.shared_bytes),
                "cluster": encode(tuple(launch.cluster)),
                "entry": launch.entry,
                "overlaps": bool(launch.overlaps),
                "beside": [int(back) for back in launch.beside],
                "stream": launch.stream,
                "where": launch.where,
            }
            for launch in self.kernel.launches(_case(said["case"]))
        ]
        return {"launches": made}, {}

    def call(self, said: dict[str, Any], arrays: Arrays) -> Answer:
        """Calls the kernel once on these inputs, and returns what it gave."""
        self._prepare(said, arrays)
        assert self._call is not None
        found = self._call()
        self.release({}, {})
        kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in found.items()}
        return {"kinds": kinds}, {name: array_of(tensor) for name, tensor in found.items()}

    def prepare(self, said: dict[str, Any], arrays: Arrays) -> Answer:
        """What is timed from now on, until it is released."""
        self._prepare(said, arrays)
        return {}, {}

    def batch(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Prepares so many calls as one, to be replayed."""
        assert self._call is not None
        self._batches.append(batch_of_calls(self._call, said["times"]))
        return {"batch": len(self._batches) - 1}, {}

    def replay(self, said: dict[str, Any], _: Arrays) -> Answer:
        """Replays a batch, and says how long it took."""
        return {"seconds": self._batches[said["batch"]]()}, {}

    def release(self, _said: dict[str, Any], _: Arrays) -> Answer:
        """Forgets calls and batches, and gives their memory back."""
        self._call, self._batches = None, []
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # the judge's process has need of the memory
        return {}, {}

    def _prepare(self, said: dict[str, Any], arrays: Arrays) -> None:
        kernel = self.kernel
        assert isinstance(kernel, CallableKernel)
        if missing := [module for module in ("torch", *kernel.modules) if util.find_spec(module) is None]:
            raise _RefusedError(f"{self._name} needs the module {missing[0]}, which is not installed here")
        kinds = said.get("kinds", {})
        tensors = {name: tensor_of(array, said["device"], kinds.get(name, "")) for name, array in arrays.items()}
        self._call = kernel.call(_case(said["case"]), tensors)

    def _inputs(self, said: dict[str, Any]) -> Mapping[str, Any]:
        """They depend on the seed and the case's name alone."""
        case = _case(said["case"])
        digest = hashlib.sha256(f"{said['seed']}/{case.id}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        return self.kernel.inputs(case, generator)

    def answer(self, said: dict[str, Any], arrays: Arrays) -> Answer:
        """What went wrong is an answer too."""
        path = self._root / self._where.rpartition(":")[0]
        try:
            message, made = _ASKED[said["ask"]](self, said, arrays)
            return {"done": message}, made
        except UserError as error:
            return {"wrong": [error.what, error.where, error.next_step]}, {}
        except _RefusedError as error:
            return {"refused": str(error)}, {}
        except Exception as error:
            if said["ask"] not in _WHILE_PLANNING:
                traceback.print_exc()  # a worker's log has room for all of it
            return {"error": told(error, path)}, {}


_ASKED: Final[Mapping[str, Callable[[Answerer, dict[str, Any], Arrays], Answer]]] = {
    item.__name__: item
    for item in (
        Answerer.begin,
        Answerer.faults,
        Answerer.build,
        Answerer.compiled,
        Answerer.read,
        Answerer.inputs,
        Answerer.reference,
        Answerer.outputs,
        Answerer.scratch,
        Answerer.launches,
        Answerer.call,
        Answerer.prepare,
        Answerer.batch,
        Answerer.replay,
        Answerer.release,
    )
}


def _case(said: Any) -> Case:
    return Case(said["kernel"], said["id"], tuple((name, value) for name, value in said["values"]))


def _key(said: dict[str, Any]) -> object:
    return said["seed"], said["case"]["id"]


def _buffers(made: Mapping[str, Output]) -> dict[str, Any]:
    return {
        name: {"shape": encode(tuple(item.shape)), "dtype": item.dtype, "first": item.first}
        for name, item in made.items()
    }


def _argument(item: Any) -> dict[str, Any]:
    """A buffer by its name, a tensor map, a struct of those, or the bytes of anything else."""
    if isinstance(item, Struct):
        at = [{"offset": int(offset), "item": _argument(inner)} for offset, inner in item.at.items()]
        return {"size": int(item.size), "at": at}
    if isinstance(item, TensorMap):
        made: dict[str, Any] = encode(item)
        return made
    if isinstance(item, str | At):
        place = At(item) if isinstance(item, str) else item
        return {"address": place.buffer, "offset": int(place.offset)}
    if isinstance(item, bytes):
        return {"hex": item.hex()}
    if isinstance(item, np.generic):
        return {"hex": item.tobytes().hex()}
    return {"hex": struct.pack("<f" if isinstance(item, float) else "<i", item).hex()}


def _claimed() -> tuple[FileSource, IO[bytes]]:
    """Standard input and output for the judge alone: a library that reads finds nothing, and one that prints is heard
    on standard error."""
    given = os.fdopen(os.dup(0), "rb")
    taken = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return FileSource(given), taken


def main(arguments: Sequence[str]) -> int:
    """Answers requests until standard input ends; what the adapter raises goes back as an answer."""
    root, where, name, *how = arguments
    reading = Reading() if how == [READS] else None
    if reading is not None:
        reading.begin()
    source, stream = _claimed()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks decides what an interrupt means
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    answerer = Answerer(Path(root), where, name, reading)
    while True:
        try:
            asked = received(source)
        except AdapterFrameError:
            return 1  # whoever asked has ended in the middle of it
        if asked is None:
            return 0
        message, arrays = answerer.answer(*asked)
        try:
            parts = list(pieces(message, arrays))
        except (TypeError, ValueError) as error:
            parts = list(pieces({"error": f"{type(error).__name__}: {error}"}, {}))
        for part in parts:
            stream.write(part)
        stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
