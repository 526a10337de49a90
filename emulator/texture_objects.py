"""Textures and surfaces: what an object is over, and how it is read. The binary layout is core/memory/images.hpp's."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Texel = Literal["u8", "s8", "u16", "s16", "f16", "u32", "s32", "f32"]
Addressing = Literal["wrap", "clamp", "mirror", "border"]

TEXELS: Final[tuple[Texel, ...]] = ("u8", "s8", "u16", "s16", "f16", "u32", "s32", "f32")
ADDRESSING: Final[tuple[Addressing, ...]] = ("wrap", "clamp", "mirror", "border")
_BYTES: Final = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "f16": 2, "u32": 4, "s32": 4, "f32": 4}
_FLOATS: Final = ("f16", "f32")
_IMAGE: Final = struct.Struct("<QQQ3II4f8B3B5x")


class ImageError(ValueError):
    """An image or a sampler that CUDA has no object for; the message says which argument and why."""


class FilterError(ImageError):
    """Linear filtering of what is not read as floating point."""


class ScaleError(ImageError):
    """32-bit integers to be read as fractions."""


@dataclass(frozen=True, slots=True)
class Image:
    """Elements in device memory: `channels` of one type each, x running fastest.

    `height` and `depth` are 0 for dimensions that there are not, `layers` for an image without. `pitch` is the bytes
    from a row to the next, `plane` from a plane or layer; 0 for those that lie without a gap. `linear`: memory that
    only tex1Dfetch reaches, by whole numbers.
    """

    address: int
    texel: Texel
    width: int
    height: int = 0
    depth: int = 0
    layers: int = 0
    channels: int = 1
    pitch: int = 0
    plane: int = 0
    linear: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of a texel."""
        return _BYTES[self.texel] * self.channels

    @property
    def dimensions(self) -> int:
        """1, 2 or 3."""
        return 3 if self.depth else 2 if self.height else 1


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a texture is read: cudaTextureDesc.

    `addressing` is for each dimension, the last one for those that follow. `filtered`: linear filtering, in place of
    the nearest element. `normalized`: coordinates from 0 to 1. `scaled`: integers are read as fractions of the largest
    (cudaReadModeNormalizedFloat). `border` is what lies outside, a channel each.
    """

    addressing: Sequence[Addressing] = ("clamp",)
    filtered: bool = False
    normalized: bool = False
    scaled: bool = False
    border: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


def packed(image: Image, sampler: Sampler | None) -> bytes:
    """What the core takes: a texture, or a surface where there is no sampler. ImageError for what CUDA refuses."""
    _check(image, sampler)
    pitch = image.pitch or image.width * image.element_bytes
    plane = image.plane or pitch * max(image.height, 1)
    how = sampler or Sampler()
    modes = [*how.addressing, *[how.addressing[-1]] * 3][:3]
    if not how.normalized:  # the others need coordinates of a period (CUDA C++ programming guide)
        modes = [mode if mode == "border" else "clamp" for mode in modes]
    return _IMAGE.pack(
        image.address,
        pitch,
        plane,
        image.width,
        max(image.height, 1),
        max(image.depth, 1),
        image.layers,
        *how.border,
        image.dimensions,
        image.channels,
        TEXELS.index(image.texel),
        image.linear,
        sampler is None,
        how.filtered,
        how.normalized,
        how.scaled and image.texel not in _FLOATS,
        *(ADDRESSING.index(mode) for mode in modes),
    )


def _check(image: Image, sampler: Sampler | None) -> None:
    if image.texel not in TEXELS:
        raise ImageError(f"texel {image.texel!r} is not one of {', '.join(TEXELS)}")
    if image.channels not in (1, 2, 4):
        raise ImageError(f"an element has 1, 2 or 4 channels, not {image.channels}")
    if image.width < 1 or min(image.height, image.depth, image.layers, image.pitch, image.plane) < 0:
        raise ImageError("width is at least 1; height, depth, layers and strides are not negative")
    if image.depth and (not image.height or image.layers):
        raise ImageError("an image with a depth has a height, and no layers")
    if image.linear and (sampler is None or image.height or image.layers):
        raise ImageError("linear memory is for textures of one dimension, without layers")
    if image.pitch and image.pitch < image.width * image.element_bytes:
        raise ImageError(f"a pitch of {image.pitch} bytes; a row has {image.width * image.element_bytes}")
    if sampler is None:
        return
    if not sampler.addressing or any(mode not in ADDRESSING for mode in sampler.addressing):
        raise ImageError(f"addressing {tuple(sampler.addressing)!r}: each is one of {', '.join(ADDRESSING)}")
    if sampler.scaled and image.texel in ("u32", "s32"):
        raise ScaleError(f"elements of {image.texel} are not read as fractions: integers of 8 or 16 bits are")
    if sampler.filtered and not (image.texel in _FLOATS or sampler.scaled):
        raise FilterError(f"elements of {image.texel} are not filtered: floating point is, and integers as fractions")
