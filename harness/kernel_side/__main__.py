"""The kernel's side of a run whose judge is another commit's: the judge starts `python -m fmha.harness.kernel_side`.

All of it is the judged commit's: which kernel runs a configuration, what nvcc is given, how a kernel is launched. It
answers requests on its standard input, JSON lines, and asks for what only a device can do. It has no device, sees no
tensor, and what it says of results counts for nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from typing import Any

from fmha.harness.contract.codec import decode, fields_given
from fmha.harness.kernel_side import PROTOCOL, place_of


def main() -> None:
    """Answers requests of the judge, a line of JSON each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever is printed is no answer
    print(json.dumps({"protocol": PROTOCOL}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"done": _ANSWERS[request["ask"]](request, answers)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}{place_of(error)}"}
        print(json.dumps(answer), file=answers, flush=True)


def _variant(request: dict[str, Any], answers: Any) -> dict[str, Any]:
    """The variant for a configuration, or the reason why there is none."""
    from fmha.harness.contract.codec import encode
    from fmha.harness.contract.protocol import Configuration
    from fmha.harness.kernel_side import recipe
    from fmha.harness.kernel_side.variants import variant_for

    known = {field.name for field in dataclasses.fields(Configuration)}
    given = request["configuration"]
    found = variant_for(
        Configuration(**{name: value for name, value in given.items() if name in known}), request["arch"]
    )
    if isinstance(found, str):
        return {"reason": found}
    return {"variant": encode(found), "flags": list(recipe.flags(found)), "assemble": list(recipe.ASSEMBLE)}


def _launch(request: dict[str, Any], answers: Any) -> None:
    from fmha.harness.kernel_side.launch import Call, launch_attention
    from fmha.harness.kernel_side.variants import VARIANTS

    variant = next(item for item in VARIANTS if item.name == request["variant"])
    device: Any = _Device(request["device"], request["multiprocessors"], answers)
    launch_attention(device, object(), variant, decode(Call, request["call"], "call"), request["addresses"])


class _Device:
    """The part of a device that a launch needs; the judge does what is asked."""

    def __init__(self, name: str, multiprocessors: int, answers: Any) -> None:
        self.name = name
        self.multiprocessors = multiprocessors
        self._answers = answers

    def encode_tensor_map(self, spec: Any) -> bytes:
        return bytes.fromhex(self._asked("map", spec=fields_given(spec)))

    def launch(self, module: object, entry: str, config: Any, params: bytes) -> Any:
        from fmha.harness.contract.device import LaunchReport

        self._asked("launch", entry=entry, config=fields_given(config), params=params.hex())
        return LaunchReport()

    def _asked(self, what: str, **fields: Any) -> Any:
        print(json.dumps({"ask": what, **fields}), file=self._answers, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise SystemExit(1)  # the judge has gone
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["done"]


_ANSWERS = {"variant": _variant, "launch": _launch}

if __name__ == "__main__":
    main()
