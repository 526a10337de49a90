"""launch.yaml as it is written: the pydantic model of the file. docs/use/emulator.md shows one."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fmha.harness.config.section import wrong

Extent = Annotated[int, Field(ge=1)]
Dimensions = Annotated[list[Extent], Field(min_length=1, max_length=3)]
Dtype = Literal[
    "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"
]  # bf16 buffers hold and compare bit patterns as uint16 files, or floats that are rounded


FIRST_ADDRESS = 1 << 40  # that device memory has
PIXELS = ("channels_per_pixel", "pixels_per_column", "pixel_box_lower_corner", "pixel_box_upper_corner")


class LaunchSection(BaseModel):
    """A mapping of launch.yaml: no other keys, no other types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class BufferSection(LaunchSection):
    """Device memory, and what it holds before the launch: a file, or a way to fill it. With an `address` it lies there,
    for a launch whose parameters, structs or memory hold addresses."""

    dtype: Dtype
    shape: list[Extent] = Field(min_length=1, max_length=32)
    file: str | None = None
    fill: Literal["zeros", "ones", "arange", "normal", "uniform", "poison"] | None = None
    value: float | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    address: Annotated[int, Field(ge=FIRST_ADDRESS, lt=2**47, multiple_of=256)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in ("file", "fill", "value") if getattr(self, name) is not None]
        if len(given) > 1:
            raise wrong((given[1],), f"contradicts {given[0]}; give one of file, fill, value")
        return self


class TensorMapSection(LaunchSection):
    """The arguments of cuTensorMapEncodeTiled, innermost dimension first; strides in bytes, without the innermost.

    Pixels and corners in place of a box make a map for im2col copies, as cuTensorMapEncodeIm2col does.
    """

    buffer: str
    dtype: str
    global_dim: list[Extent] = Field(min_length=1, max_length=5)
    global_strides: list[Extent] = Field(default=[], max_length=4)
    box_dim: list[Extent] | None = Field(default=None, min_length=1, max_length=5)
    channels_per_pixel: Extent | None = None
    pixels_per_column: Extent | None = None
    pixel_box_lower_corner: list[int] | None = None
    pixel_box_upper_corner: list[int] | None = None
    element_strides: list[Extent] | None = None
    offset: Annotated[int, Field(ge=0)] = 0
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "none"
    oob_fill: str = "none"

    @model_validator(mode="after")
    def _box_or_pixels(self) -> Self:
        pixels = [getattr(self, name) is not None for name in PIXELS]
        if all(pixels) == (self.box_dim is not None) or any(pixels) != all(pixels):
            raise wrong((), f"needs either box_dim or all of {', '.join(PIXELS)}")
        return self


class ArgumentSection(LaunchSection):
    """One parameter: exactly one key is given. A struct is packed as C lays it out, and padded to `align`."""

    buffer: str | None = None
    offset: Annotated[int, Field(ge=0)] = 0  # bytes past the buffer's start
    multimem: bool = False  # the address by which multimem instructions reach the buffer
    tensor_map: str | None = None
    u8: int | None = None
    u16: int | None = None
    u32: int | None = None
    s32: int | None = None
    u64: int | None = None
    s64: int | None = None
    f32: float | None = None
    f64: float | None = None
    hex: str | None = None
    struct: list[ArgumentSection] | None = None
    align: Annotated[int, Field(ge=1, le=4096)] = 1

    @model_validator(mode="after")
    def _check(self) -> Self:
        kinds = [name for name in type(self).model_fields if name not in ("offset", "multimem", "align")]
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            raise wrong((), f"needs exactly one of {', '.join(kinds)}")
        if self.multimem and self.buffer is None:
            raise wrong(("multimem",), "goes with a buffer")
        if self.hex is not None and not re.fullmatch(r"([0-9a-fA-F]{2}\s*)*", self.hex):
            raise wrong(("hex",), f"{self.hex!r} is no row of bytes: two hexadecimal digits each")
        return self


class OutputSection(LaunchSection):
    """Where a buffer goes after the launch, and what it must equal."""

    file: str | None = None
    expect: str | None = None
    rtol: Annotated[float, Field(ge=0)] = 0.0
    atol: Annotated[float, Field(ge=0)] = 0.0


class WaiverSection(LaunchSection):
    """Findings that are accepted: `at` is a regex over the finding's place, as the report writes it."""

    rule: str
    reason: Annotated[str, Field(min_length=1)]
    at: str = ""


class LaunchFile(LaunchSection):
    """launch.yaml: one launch, its memory and parameters, and what its outputs are compared with."""

    entry: str | None = None
    grid: Dimensions
    block: Dimensions
    cluster: Dimensions | None = None  # the kernel's own, or one CTA
    shared_bytes: Annotated[int, Field(ge=0)] = 0
    cooperative: bool = False  # all CTAs resident at once, for grid.sync()
    schedule: Literal["realistic", "early", "late", "random", "pct"] = "realistic"
    depth: Annotated[int, Field(ge=1, le=32)] = 3  # of pct, and steps
    steps: Annotated[int, Field(ge=1, lt=2**63)] = 1000
    profile: Literal["strict", "lenient"] = "strict"
    mma_sums: Literal["fast", "silicon"] = "fast"
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    max_instructions: Annotated[int, Field(ge=1)] | None = None
    buffers: dict[str, BufferSection] = {}
    tensor_maps: dict[str, TensorMapSection] = {}
    args: list[ArgumentSection] = []
    outputs: dict[str, OutputSection] = {}
    waivers: list[WaiverSection] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, tensor_map in self.tensor_maps.items():
            self._known(tensor_map.buffer, self.buffers, ("tensor_maps", name, "buffer"))
        for name in self.outputs:
            self._known(name, self.buffers, ("outputs", name))
        self._check_arguments(self.args, ("args",))
        return self

    def _check_arguments(self, arguments: list[ArgumentSection], at: tuple[str | int, ...]) -> None:
        for index, argument in enumerate(arguments):
            here = (*at, index)
            if argument.buffer is not None:
                self._known(argument.buffer, self.buffers, (*here, "buffer"))
            if argument.tensor_map is not None:
                self._known(argument.tensor_map, self.tensor_maps, (*here, "tensor_map"))
            self._check_arguments(argument.struct or [], (*here, "struct"))

    @staticmethod
    def _known(
        name: str, table: dict[str, BufferSection] | dict[str, TensorMapSection], at: tuple[str | int, ...]
    ) -> None:
        if name not in table:
            raise wrong(at, f"nothing is named {name!r}; there are {', '.join(table) or 'none'}")
