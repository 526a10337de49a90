"""What a commit's launcher asks for from behind the wall is what it would have launched on this side of it."""

from pathlib import Path

import pytest

from fmha.harness.contract.device import LaunchConfig, LaunchReport
from fmha.harness.judge.configuration import Configuration
from fmha.harness.judge.oracle.inputs import make_inputs
from fmha.harness.judge.random_cases import Space, draw_cases
from fmha.harness.kernel_side.__main__ import _Device
from fmha.harness.kernel_side.launch import launch_attention
from fmha.harness.kernel_side.variants import variant_for
from fmha.harness.worker.launch.run_attention import run_attention
from fmha.harness.worker.planner.sides import KernelSide
from tests.worker.numpy_device import NumpyDevice

ROOT = Path(__file__).parents[2]
BALANCED = Configuration(
    head_dim=128, t=1, s_k=400, batch=5, heads=4, kv_heads=2, kv_lens="ragged", splits=12, merge="balanced"
)


class Recorder(NumpyDevice):
    """Keeps what it is asked to launch, and launches nothing."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def launch(self, module, entry, config, params):
        self.asked.append((entry, config, params))
        return LaunchReport()


@pytest.fixture(scope="module")
def side():
    made = KernelSide(ROOT)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("arch", "configuration"),
    [("sm_100a", BALANCED), ("sm_90a", BALANCED)]
    + [
        ("sm_100a", item)
        for item in draw_cases(45, 12, Space(head_dims=(64, 128), rows=40, keys=150, topk=40, batch=3, work=10**8))
    ],
    ids=lambda item: item if isinstance(item, str) else item.id,
)
def test_both_sides_launch_the_same(side, arch, configuration):
    variant = side.variant_for(configuration, arch)
    assert variant == variant_for(configuration, arch)
    device = Recorder()

    def by_both(device, module, variant, call, addresses):
        launch_attention(device, module, variant, call, addresses)
        here, device.asked = device.asked, []
        report = side.launch(device, module, variant, call, addresses)
        assert device.asked == here
        return report

    run_attention(device, "module", variant, configuration, make_inputs(0, configuration), by_both)
    assert device.asked


def test_what_is_at_its_default_is_not_said():
    """A judge of an earlier commit refuses fields that it does not know."""
    said = []

    class Asked(_Device):
        def _asked(self, what, **fields):
            said.append(fields)
            return "00" * 128

    device = Asked("a GPU", 4, None)
    device.launch(object(), "entry", LaunchConfig((1, 1, 1), (32, 1, 1)), b"")
    device.launch(object(), "entry", LaunchConfig((1, 1, 1), (32, 1, 1), overlaps=True), b"")
    assert [sorted(item["config"]) for item in said] == [["block", "grid"], ["block", "grid", "overlaps"]]
