"""Numbers as records and `--json` have them: what JSON has no token for is a name."""

from __future__ import annotations

import math
from typing import Any

NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode_number(value: float) -> float | str:
    """The number itself, or its name when JSON has no token for it."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def encode_numbers(value: Any) -> Any:
    """Plain JSON data with every number that is not finite replaced by its name."""
    if isinstance(value, float):
        return encode_number(value)
    if isinstance(value, dict):
        return {str(key): encode_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_numbers(item) for item in value]
    return value
