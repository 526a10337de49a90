"""torch.utils.cpp_extension without torch's C++: the CUDA part to PTX, the host part against fmha_tensors.h.

The host part runs in this process, over tensors without memory, and says what it launches (events.py).
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import math
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fmha.emulator import Device, PtxError, load_ptx
from fmha.emulator.device import SHARED_UNASKED
from fmha.emulator.grids import PORTABLE_CLUSTER
from fmha.emulator.ptx import parse
from fmha.harness.problems.events import FILLS, Allocated, LaunchEvent, Ordered, read_events
from fmha.harness.problems.headers import INCLUDE
from fmha.harness.worker.compilers.build_inputs import listed
from fmha.harness.worker.compilers.nvcc import find_nvcc

if TYPE_CHECKING:
    from fmha.harness.problems.recorder import AnswerRecorder

_FLAGS: Final = ("-std=c++17", "-O3", "-lineinfo", "-diag-suppress=177,550,20012")
# torch's own, which would undo what is said here or mean nothing to it.
_KEPT: Final = ("-D", "-O", "--use_fast_math", "-use_fast_math", "--expt", "-std", "--std", "--maxrregcount")
_MOST_WORDS: Final = 4000  # of what the compiler says


class ExtensionError(ValueError):
    """An extension that cannot be compiled, or whose host code does not do; the message says why."""


@dataclass(frozen=True, slots=True)
class Extension:
    """What load_inline returns: the functions are its attributes."""

    functions: tuple[str, ...]
    call: Callable[[str, tuple[Any, ...]], Any]

    def __getattr__(self, name: str) -> Any:
        if name not in self.functions:
            raise AttributeError(f"the extension has no function {name!r}; it has {', '.join(self.functions)}")
        return lambda *arguments: self.call(name, arguments)


class Compiled:
    """An extension's two halves."""

    def __init__(self, text: str, flags: Sequence[str], arch: str, include: Sequence[Path] = ()) -> None:
        with tempfile.TemporaryDirectory(prefix="fmha-extension-") as folder:
            source = Path(folder) / "extension.cu"
            source.write_text(text, encoding="utf-8")
            number = arch.removeprefix("sm_")
            command = [str(find_nvcc().path), *_FLAGS, *flags, f"-I{INCLUDE}", *(f"-I{path}" for path in include)]
            # One compilation gives both: the host's half, and the PTX that is kept on the way. -fno-gnu-unique: each
            # of several extensions has a record of its own.
            command += ["-shared", "-Xcompiler", "-fPIC,-fno-gnu-unique", "-cudart", "none", "--keep"]
            command += ["--keep-dir", folder, "-gencode", f"arch=compute_{number},code=compute_{number}"]
            command += ["-MD", "-MF", "read.d"]
            done = subprocess.run(
                [*command, "-o", "extension.so", "extension.cu"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            if done.returncode:
                raise ExtensionError(f"nvcc cannot compile the extension:\n{done.stdout[:_MOST_WORDS]}")
            self.ptx = next(Path(folder).glob("extension*.ptx")).read_text(encoding="utf-8")
            read = listed((Path(folder) / "read.d").read_text(encoding="utf-8", errors="surrogateescape"))
            system = (Path("/usr"), find_nvcc().path.resolve().parents[1], Path(folder).resolve())
            found = {Path(folder, name).resolve() for name in read}
            kept = sorted(path for path in found if not any(map(path.is_relative_to, system)))
            self._headers = {path: _digest(path) for path in kept}
            try:
                self._library = ctypes.CDLL(str(Path(folder) / "extension.so"))
            except OSError as error:
                missing = str(error).rpartition("undefined symbol: ")[2]
                raise ExtensionError(f"the host code calls {missing}, which nothing stands for here") from error
        self._library.fmha_functions.restype = ctypes.c_char_p
        for function in parse(self.ptx).functions.values():
            if function.is_entry:
                sizes = [parameter.nbytes for parameter in function.params]
                array = (ctypes.c_int * len(sizes))(*sizes)
                self._library.fmha_parameters(function.name.encode(), array, len(sizes))

    @property
    def headers(self) -> tuple[str, ...]:
        """The digests of what it includes, but for the system's and the toolkit's headers: those the build knows."""
        return tuple(self._headers.values())

    @property
    def is_current(self) -> bool:
        """Whether what it includes still is what it was compiled of."""
        return all(_digest(path) == digest for path, digest in self._headers.items())

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that the extension exports."""
        return tuple(self._library.fmha_functions().decode().split())

    def call(self, name: str, given: str, buffers: int) -> tuple[str, list[LaunchEvent | Allocated | Ordered]]:
        """What it returned, and what it did. ExtensionError for what it threw."""
        said, did = ctypes.c_char_p(), ctypes.c_char_p()
        failed = self._library.fmha_call(
            name.encode(), given.encode(), ctypes.c_uint64(buffers), ctypes.byref(said), ctypes.byref(did)
        )
        result = (said.value or b"").decode(errors="replace")
        if failed:
            raise ExtensionError(f"{name}: {result}")
        done = read_events((did.value or b"").decode())
        for launched in done:
            if isinstance(launched, LaunchEvent):
                self._allow(launched)
        return result, done

    def _allow(self, launched: LaunchEvent) -> None:
        """ExtensionError for a launch that the driver refuses unless the host code asks for it first."""
        if launched.entry in FILLS:
            return
        static = self._static(launched.entry) if launched.most_shared < 0 and launched.shared_bytes else 0
        allowed = launched.most_shared if launched.most_shared >= 0 else max(0, SHARED_UNASKED - static)
        if launched.shared_bytes > allowed:
            asks = "cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize asks for more"
            what = f"a launch of {launched.entry} with {launched.shared_bytes} bytes of dynamic shared memory"
            raise ExtensionError(f"{what} is refused, {allowed} are allowed: {asks}")
        if math.prod(launched.cluster) > PORTABLE_CLUSTER and not launched.any_cluster:
            what = f"a launch of {launched.entry} with {math.prod(launched.cluster)} CTAs a cluster is refused"
            raise ExtensionError(f"{what}: cudaFuncAttributeNonPortableClusterSizeAllowed is not set")

    def _static(self, entry: str) -> int:
        """Bytes of static shared memory; 0 of a kernel that cannot be decoded, which its launch says."""
        try:
            return Device().decoded(load_ptx(self.ptx), entry).shared_static
        except PtxError:
            return 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


# Of a process: each case of a kernel has its host code imported anew.
_COMPILED: Final[dict[tuple[Any, ...], Compiled]] = {}


def _compiled(*what: Any) -> Compiled:
    """Compiled before, if no header is another one since."""
    made = _COMPILED.get(what)
    if made is None or not made.is_current:
        made = _COMPILED[what] = Compiled(*what)
    return made


class Extensions:
    """What stands for torch.utils.cpp_extension while an answer is imported."""

    def __init__(self, arch: str, source: Path, root: Path) -> None:
        self._arch, self._source, self._root = arch, source, root
        self._compiled: list[Compiled] = []
        self.read: list[str] = []  # what was compiled: texts with their flags, and digests of headers
        self.recorder: AnswerRecorder | None = None  # whoever runs the answer sets it

    @property
    def ptx(self) -> list[str]:
        """The PTX of every extension that was compiled."""
        return [item.ptx for item in self._compiled]

    def load_inline(
        self,
        name: str = "",
        cpp_sources: str | Sequence[str] = (),
        cuda_sources: str | Sequence[str] = (),
        functions: Any = (),
        extra_cuda_cflags: Sequence[str] | None = None,
        **rest: Any,
    ) -> Extension:
        """torch.utils.cpp_extension.load_inline, recorded. ExtensionError for what cannot be compiled here."""
        cpp = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
        cuda = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources)
        named = [functions] if isinstance(functions, str) else list(functions or ())
        lines = "".join(f'    made.def("{item}", &{item});\n' for item in named)
        module = f"PYBIND11_MODULE(functions, made) {{\n{lines}}}\n" if named else ""
        text = "\n".join(["#include <torch/extension.h>", *map(self._placed, [*cpp, *cuda]), module])
        return self._loaded(text, extra_cuda_cflags or (), rest.get("extra_include_paths") or ())

    def load(
        self, name: str = "", sources: Any = (), extra_cuda_cflags: Sequence[str] | None = None, **rest: Any
    ) -> Extension:
        """torch.utils.cpp_extension.load, of files in the repository."""
        files = [sources] if isinstance(sources, str) else list(sources)
        paths = [path if path.is_absolute() else self._source.parent / path for path in map(Path, files)]
        if outside := [path for path in paths if not path.resolve().is_relative_to(self._root.resolve())]:
            raise ExtensionError(f"{outside[0]} is outside the repository")
        text = "\n".join(f'#line 1 "{path.name}"\n{path.read_text(encoding="utf-8")}' for path in paths)
        include = [*(rest.get("extra_include_paths") or ()), *{path.parent for path in paths}]
        return self._loaded(f"#include <torch/extension.h>\n{text}", extra_cuda_cflags or (), include)

    def _placed(self, text: str) -> str:
        """With the lines of the file that it stands in, so that findings name those."""
        own = self._source.read_text(encoding="utf-8")
        at = own.find(text) if text.strip() else -1
        if at < 0:
            return text
        return f'#line {own.count(chr(10), 0, at) + 1} "{self._source.name}"\n{text}'

    def _loaded(self, text: str, flags: Sequence[str], include: Sequence[str | Path]) -> Extension:
        kept = [flag for flag in flags if flag.startswith(_KEPT)]
        made = _compiled(text, tuple(kept), self._arch, tuple(Path(item) for item in include))
        self._compiled.append(made)
        self.read.append("\n".join([*kept, text, *made.headers]))

        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            recorder = self.recorder
            if recorder is None:
                raise ExtensionError(f"{name} is called while the answer is imported or made: forward may call it")
            given = " ".join(itertools.chain.from_iterable(map(recorder.words, arguments)))
            result, done = made.call(name, given, recorder.next_buffer)
            return recorder.took(result, done)

        return Extension(made.functions, call)
