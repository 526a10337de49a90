"""What is run and measured: our kernels, one with an adapter, or a peer of ours, in the same steps."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

from fmha.harness.contract.device import Device, LaunchReport, LoadedModule
from fmha.harness.contract.protocol import Beside, BuildResult, Measurement, Timed, Variant
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import Inputs, make_inputs
from fmha.harness.judge.oracle.measure import measure
from fmha.harness.judge.oracle.outputs import Outputs
from fmha.harness.judge.oracle.reference import Reference, reference
from fmha.harness.worker.launch.run_attention import WRITTEN, run_attention
from fmha.harness.worker.launch.time_builds import time_beside, time_ours
from fmha.harness.worker.planner.sides import Launcher


class SubjectRun(Protocol):
    """What a run left."""

    @property
    def report(self) -> LaunchReport:
        """What the launches said: findings and counters."""


class Subject(Protocol):
    """The steps of one configuration. What one of them makes is for the others of the same subject."""

    @property
    def lenient(self) -> bool:
        """Whether its launches are held to the lenient profile: what launches them cannot say so."""

    def inputs(self, seed: int, configuration: Any) -> Any:
        """They depend on the seed and the configuration's problem alone."""

    def reference(self, configuration: Any, inputs: Any) -> Any:
        """What the outputs should be."""

    def run(self, device: Device, module: Any, variant: Variant, configuration: Any, inputs: Any) -> SubjectRun:
        """Every element of every output holds poison before the launch."""

    def writes(self, configuration: Any) -> Container[str]:
        """Names of the buffers that a run may leave changed: all others are inputs."""

    def measure(self, configuration: Any, ran: Any, expected: Any) -> Measurement:
        """How far the outputs are from what they should be."""

    def timed(
        self,
        device: Device,
        build: BuildResult,
        beside: Beside,
        configuration: Any,
        inputs: Any,
        expected: Any,
        judged: Measurement,
    ) -> Timed:
        """Beside another commit's build. `judged` is what `measure` said of the run. Raises UntimedError."""

    def timed_alone(
        self, device: Device, build: BuildResult, configuration: Any, inputs: Any, expected: Any, judged: Measurement
    ) -> Timed:
        """Raises UntimedError."""


class AttentionSubject:
    """The kernels that fmha brings, launched by the `launcher` of their commit."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    @property
    def lenient(self) -> bool:
        return False

    def inputs(self, seed: int, configuration: Configuration) -> Inputs:
        return make_inputs(seed, configuration)

    def reference(self, configuration: Configuration, inputs: Inputs) -> Reference:
        """By the definition of attention."""
        return reference(inputs)

    def run(
        self, device: Device, module: LoadedModule, variant: Variant, configuration: Configuration, inputs: Inputs
    ) -> Outputs:
        return run_attention(device, module, variant, configuration, inputs, self._launcher)

    def writes(self, configuration: Configuration) -> Container[str]:
        return WRITTEN

    def measure(self, configuration: Configuration, ran: Outputs, expected: Reference) -> Measurement:
        """How far O and the statistics are from the reference."""
        return measure(configuration, ran, expected)

    def timed(
        self,
        device: Device,
        build: BuildResult,
        beside: Beside,
        configuration: Configuration,
        inputs: Inputs,
        expected: Reference,
        judged: Measurement,
    ) -> Timed:
        return time_beside(device, build, beside, configuration, inputs, expected, judged, self._launcher)

    def timed_alone(
        self,
        device: Device,
        build: BuildResult,
        configuration: Configuration,
        inputs: Inputs,
        expected: Reference,
        judged: Measurement,
    ) -> Timed:
        return time_ours(device, build, configuration, inputs, expected, judged, self._launcher)
