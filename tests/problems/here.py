"""A problem judged in this process: all that a run does but the processes and the sandbox, which cost torch's import
four times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmha.harness.judge.case import case_of
from fmha.harness.judge.gate import judge
from fmha.harness.judge.limits import Thresholds
from fmha.harness.worker.devices.emulator_device import EmulatorDevice
from fmha.harness.worker.launch.watched import ChangedError, watched
from fmha.harness.worker.subjects.adapter import Adapter
from fmha.harness.worker.subjects.adapter_end import Answerer
from fmha.harness.worker.subjects.adapter_process import AdapterError
from fmha.harness.worker.subjects.declared import Declared

LIMITS = Thresholds({"cosine": 0.9999, "relative_l2": 1e-4, "max_error": 1e-4})


@dataclass(frozen=True, slots=True)
class Verdict:
    status: str
    words: str


class _Process:
    """An adapter's process that is this one. What it says goes through JSON all the same."""

    def __init__(self, root: Path, where: str, name: str) -> None:
        self._answerer = Answerer(root, where, name)
        self._said, _ = self._answerer.begin({"environment": {}, "tree": str(root)}, {})

    @property
    def kernel(self) -> Any:
        return self._answerer.kernel

    def start(self) -> None:
        """It runs already."""

    def begin(self) -> Any:
        return json.loads(json.dumps(self._said))

    def ask(self, what: str, message: Mapping[str, Any], arrays: Any = None) -> tuple[Any, Any]:
        said, made = self._answerer.answer({"ask": what, **json.loads(json.dumps(message))}, arrays or {})
        if "done" not in said:
            raise AdapterError(str(said.get("error") or said.get("wrong")))
        return json.loads(json.dumps(said["done"])), made

    def odd(self, what: str, reason: object) -> AdapterError:
        return AdapterError(f"{what}: {reason}")

    def close(self) -> None:
        """It goes on."""


class Here(Adapter):
    def _process(self, root: Path, *, kernels: bool = False, **how: bool) -> Any:
        return _Process(root, self.where, self.name)


def judged(root: Path, where: str, name: str, values: Mapping[str, int], limits: Thresholds = LIMITS) -> Verdict:
    """The case of those values, under the usual schedule, on sm_90a."""
    adapter = Here(root, where, name)
    subject = Declared(adapter)
    case = case_of(name, adapter.fields, values)
    try:
        variant = subject.variant_for(case, "sm_90a")
        assert not isinstance(variant, str), variant
        text = adapter._kernel_side().kernel.compile(case, "sm_90a")
        module = root / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.ptx"  # kept by its name once loaded
        module.write_text(text)
    except Exception as error:
        return Verdict("build-error", str(error))
    inputs = adapter.inputs(0, case)
    expected = subject.reference(case, inputs)
    device = watched(EmulatorDevice(0, "realistic", threads=1), subject.lenient)
    try:
        ran = subject.run(device, device.load(module), variant, case, inputs)
        device.check(subject.writes(case), ran.report.findings)
    except ChangedError as error:
        return Verdict("fail", str(error))
    except Exception as error:
        return Verdict("crash", f"{type(error).__name__}: {error}")
    finally:
        device.close()
    measurement = subject.measure(case, ran, expected)
    found = judge(measurement, ran.report.findings, limits, None, None)
    words = [f"{check.name} is {check.value:.3g}" for check in found.failed_checks]
    words += [finding.message for finding in ran.report.findings[:2]]
    return Verdict(str(found.status), "; ".join(words) or f"cosine {measurement.cosine:.8f}")
