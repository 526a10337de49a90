"""What every section of matrix.yaml shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

HostName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def wrong(at: tuple[str | int, ...], what: str) -> PydanticCustomError:
    """A problem found across fields; `at` is its path below the model that raises it."""
    return PydanticCustomError("fmha", "{what}", {"what": what, "at": at})


class Section(BaseModel):
    """A mapping of matrix.yaml: no key that is not declared, and no value of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)
