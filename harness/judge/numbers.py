"""Numbers as records and `--json` have them: what JSON has no token for is a name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

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


class _Named:
    """What pydantic does with a Number. A worker has Numbers, too, and does without pydantic: it is imported where a
    model is made."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(encode_number)
        return core_schema.no_info_before_validator_function(_read, handler(source), serialization=written)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, {"enum": list(NAMES)}]}


def _read(value: Any) -> Any:
    return NAMES.get(value, value) if isinstance(value, str) else value


# A float of a record, which may be NaN or infinite.
Number = Annotated[float, _Named()]
