"""What requests say in several fields: boxes of bytes, and tensors."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fmha.emulator.programs.wire import Fields
from fmha.emulator.tensormap_rules import DTYPES, INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES
from fmha.emulator.texture_objects import ADDRESSING, TEXELS, Image, Sampler


@dataclass(frozen=True, slots=True)
class PitchedBox:
    """Rows of bytes on the device: `pitch` apart, planes `plane` apart."""

    address: int
    pitch: int
    plane: int
    width: int
    height: int
    depth: int

    @classmethod
    def of(cls, fields: Fields) -> PitchedBox:
        """The next six of a request."""
        return cls(*fields.dims(), *fields.dims())

    @property
    def flat(self) -> bool:
        """Whether its rows lie one behind the other, without gaps."""
        rows = self.height == 1 or self.pitch == self.width
        return rows and (self.depth == 1 or self.plane == self.width * self.height)

    def steps(self) -> Iterator[int]:
        """The address of each row."""
        for z in range(self.depth):
            for y in range(self.height):
                yield self.address + y * self.pitch + z * self.plane

    def rows(self) -> Iterator[tuple[int, int]]:
        """Addresses and sizes; one for all where nothing lies between them."""
        if self.flat:
            yield self.address, self.width * self.height * self.depth
        else:
            yield from ((at, self.width) for at in self.steps())


def tensor_of(fields: Fields) -> dict[str, Any]:
    """The arguments that `encode_tiled` and `encode_im2col` share."""

    def word(words: Sequence[str]) -> str:
        number = fields.integer()
        return words[number] if number < len(words) else f"number {number}"

    dtype, rank, address = word(list(DTYPES)), fields.integer(), fields.integer()
    dims, strides, steps = fields.integers(), fields.integers(), fields.integers()
    return {
        "dtype": dtype,
        "rank": rank,
        "address": address,
        "global_dim": dims,
        "global_strides": strides,
        "element_strides": steps,
        "interleave": word(INTERLEAVES),
        "swizzle": word(SWIZZLES),
        "l2_promotion": word(L2_PROMOTIONS),
        "oob_fill": word(OOB_FILLS),
    }


def image_of(fields: Fields) -> Image:
    """What a texture or a surface is over."""
    return Image(
        address=fields.integer(),
        texel=TEXELS[fields.integer()],
        width=fields.integer(),
        height=fields.integer(),
        depth=fields.integer(),
        layers=fields.integer(),
        channels=fields.integer(),
        pitch=fields.integer(),
        plane=fields.integer(),
        linear=bool(fields.integer()),
    )


def sampler_of(fields: Fields) -> Sampler:
    """What a program says of a texture's addressing modes, filter, coordinates and border."""
    modes = tuple(ADDRESSING[fields.integer()] for _ in range(3))
    filtered, normalized, scaled = (bool(fields.integer()) for _ in range(3))
    return Sampler(modes, filtered, normalized, scaled, struct.unpack("<4f", fields.data()))
