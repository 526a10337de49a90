"""What a launch was given to read is what it leaves, and nothing outside of buffers is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from fmha.harness.contract.device import LaunchConfig, LaunchReport, Params, TensorMapSpec
from fmha.harness.judge.findings import FindingRecord
from fmha.harness.worker.launch.watched import ZONE, ChangedError, RoomyWatched, Watched, watched

FINDING = FindingRecord("race", "error", "two write", {})


class Memory:
    """A device of memory alone; a launch writes one byte where its parameters say."""

    name = "memory"
    multiprocessors = 1
    first_plane = 0

    def __init__(self, artifact: Literal["ptx", "cubin"] = "ptx") -> None:
        self.artifact: Literal["ptx", "cubin"] = artifact
        self.memory = np.zeros(1 << 16, np.uint8)
        self.end = 0
        self.lenient: list[bool] = []

    def alloc(self, nbytes: int, name: str) -> int:
        address, self.end = self.end, (self.end + nbytes + 255) // 256 * 256
        return address

    def reserve(self, nbytes: int, name: str) -> int:
        return self.alloc(nbytes, name)

    def back(self, address: int, nbytes: int, name: str) -> None: ...

    def upload(self, address: int, data: NDArray[Any]) -> None:
        self.memory[address : address + data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def download(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        return self.memory[address : address + nbytes].copy()

    def encode_tensor_map(self, spec: TensorMapSpec) -> bytes:
        return b""

    def load(self, artifact: Path) -> None: ...

    def launch(self, module: object, entry: str, config: LaunchConfig, params: Params) -> LaunchReport:
        self.lenient.append(config.lenient)
        self.memory[int.from_bytes(params if isinstance(params, bytes) else params[0], "little")] ^= 1
        return LaunchReport()

    def close(self) -> None: ...


def launched(device: Watched, place: int) -> None:
    device.launch(None, "f", LaunchConfig((1, 1, 1), (1, 1, 1)), place.to_bytes(8, "little"))


def placed(device: Watched) -> tuple[int, int]:
    """An input and an output."""
    lengths = np.array([[3, 5], [7, 9]], np.int32)
    addresses = device.alloc(lengths.nbytes, "kv_lens"), device.alloc(32, "o")
    device.upload(addresses[0], lengths)
    device.upload(addresses[1], np.zeros(8, np.float32))
    return addresses


def test_a_launch_that_writes_its_outputs_alone_is_no_change() -> None:
    device = watched(Memory())
    _, output = placed(device)
    launched(device, output + 4)
    device.check({"o"}, ())


def test_the_first_element_of_an_input_that_changed_is_named_and_findings_are_kept() -> None:
    device = watched(Memory())
    given, _ = placed(device)
    launched(device, given + 8)
    launched(device, given + 12)
    words = r"a launch changed its input kv_lens: element \[1, 0\] was 7 and is 6; 2 of 4 differ"
    with pytest.raises(ChangedError, match=words) as raised:
        device.check({"o"}, (FINDING,))
    assert raised.value.findings == (FINDING,)


def test_what_may_be_written_in_place_is_left_out() -> None:
    device = watched(Memory())
    given, _ = placed(device)
    launched(device, given)
    device.check({"o", "kv_lens"}, ())


def test_bits_count_and_not_values() -> None:
    """-0 and 0 are equal, and NaN is not equal to itself."""
    device = watched(Memory())
    sink = device.alloc(8, "sink")
    device.upload(sink, np.array([np.nan, 0.0], np.float32))
    device.check((), ())
    device._device.upload(sink, np.array([np.nan, -0.0], np.float32))  # behind its back
    with pytest.raises(ChangedError, match=r"sink: element \[1\] was 0.0 and is -0.0; 1 of 2"):
        device.check((), ())


@pytest.mark.parametrize(
    ("place", "words"), [(-1, "byte 1 before o"), (32, "byte 1 behind o"), (34, "byte 3 behind o")]
)
def test_a_device_that_sees_no_access_has_zones_around_its_buffers(place: int, words: str) -> None:
    device = watched(Memory("cubin"))
    given, output = placed(device)
    assert (given % ZONE, output % ZONE) == (0, 0)
    device.check({"o"}, ())
    launched(device, output + place)
    with pytest.raises(ChangedError, match=f"a launch wrote outside of its buffers: {words}"):
        device.check({"o"}, ())


def test_a_launch_does_not_say_by_which_rules_it_is_judged() -> None:
    """It may be the judged commit's launcher that asks for it."""
    memory = Memory()
    for lenient in (False, True):
        for asked in (True, False):
            config = LaunchConfig((1, 1, 1), (1, 1, 1), lenient=asked)
            watched(memory, lenient).launch(None, "f", config, bytes(8))
    assert memory.lenient == [False, False, True, True]


def test_what_is_reserved_has_zones_as_well() -> None:
    device = watched(Memory("cubin"))
    assert isinstance(device, RoomyWatched)
    reserved = device.reserve(300, "o")
    device.check({"o"}, ())
    launched(device, reserved + 300)
    with pytest.raises(ChangedError, match="byte 1 behind o"):
        device.check({"o"}, ())
