"""Commands that tell whether a `--` stood before their arguments."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

DASHES = "fmha.dashes"  # in a context's meta: whether a `--` stood before the arguments


class Dashed(TyperCommand):
    """One of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Notes whether `--` was among the words, which click drops."""
        ctx.meta[DASHES] = "--" in args
        return super().parse_args(ctx, args)
