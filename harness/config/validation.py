"""YAML text against a pydantic model. Every problem is one line that names the file, the line and the field."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fmha.harness.config.yaml_lines import Document, FieldPath, parse
from fmha.harness.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)
_BUILDING = threading.RLock()  # what a model is checked by is built when it is first needed, maybe by two threads


def validated(model: type[Model], text: str, name: str) -> Model:
    """The text as `model`. `name` is the file as errors name it. Raises ConfigError with one line a problem."""
    document = mapping(text, name)
    return conforming(model, document.data, document)


def mapping(text: str, name: str) -> Document:
    """The text as a mapping that nobody has checked any further. Raises ConfigError."""
    document = parse(text, name)
    if not isinstance(document.data, dict):
        raise ConfigError([document.problem((), "the top level must be a mapping")])
    return document


def conforming(model: type[Model], data: Any, document: Document, at: FieldPath = ()) -> Model:
    """`data`, which `document` has `at` that place, as `model`. Raises ConfigError with one line a problem."""
    try:
        with _BUILDING:
            model.model_rebuild()
        return model.model_validate(data)
    except ValidationError as error:
        found = [(at + _path(detail), detail) for detail in error.errors()]
        problems = sorted((document.line(path), document.problem(path, _words(detail))) for path, detail in found)
        raise ConfigError([text for _, text in problems]) from error


def _path(detail: ErrorDetails) -> FieldPath:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    return path + tuple(detail.get("ctx", {}).get("at", ()))


def _words(detail: ErrorDetails) -> str:
    """What is wrong, in the words of someone who edits the file."""
    kind, context, given = detail["type"], detail.get("ctx", {}), _shown(detail["input"])
    match kind:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "unknown key"
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {given}"
        case "greater_than":
            return f"must be more than {context['gt']}, not {given}"
        case "less_than_equal":
            return f"must be at most {context['le']}, not {given}"
        case "less_than":
            return f"must be less than {context['lt']}, not {given}"
        case "int_type":
            return f"must be a whole number, not {given}"
        case "float_type":
            return f"must be a number, not {given}"
        case "string_type":
            return f"must be text, not {given}"
        case "list_type":
            return f"must be a list, not {given}"
        case "dict_type" | "model_type":
            return f"must be a mapping, not {given}"
        case "literal_error":
            return f"must be {context['expected']}, not {given}"
        case "too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return f"{given} is no name: lower-case letters, digits, '-' and '_'"
        case _:
            return detail["msg"]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
