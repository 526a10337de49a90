"""What `@triton.autotune` and `@triton.heuristics` make of a launch's arguments, as they do it at a launch.

An autotuner times its configurations. There is nothing to time here, so who asks either names one by its number or
gets them in Triton's order, after Triton's own pruning, and takes the first that can be launched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton.runtime.autotuner import Autotuner, Config, Heuristics


@dataclass(frozen=True, slots=True)
class Candidate:
    """A function of `@triton.jit`, and all that it is launched with. `number`: which configuration of how many, where
    there is an autotuner, and what that one has `chosen`."""

    function: Any
    given: Mapping[str, Any]
    number: int | None = None
    of: int = 0
    chosen: Mapping[str, Any] = field(default_factory=dict)


def candidates(
    function: Any, given: Mapping[str, Any], constants: Mapping[str, Any], choice: int | None
) -> Iterator[Candidate]:
    """`given` are the launch's arguments, `constants` and options among them. ValueError for what is no choice."""
    yield from _within(function, Candidate(function, dict(given)), constants, choice)


def _within(function: Any, made: Candidate, constants: Mapping[str, Any], choice: int | None) -> Iterator[Candidate]:
    if isinstance(function, Heuristics):
        given = dict(made.given)
        for name, value in function.values.items():
            given[name] = value(given)
        yield from _within(function.fn, replace(made, function=function.fn, given=given), constants, choice)
    elif isinstance(function, Autotuner) and _chosen_already(function, constants):
        yield from _within(function.fn, made, constants, choice)
    elif isinstance(function, Autotuner):
        for config in _configurations(function, made.given, constants, choice):
            number = next((at for at, known in enumerate(function.configs) if known is config), None)
            values = config.all_kwargs()
            given = {**made.given, **values}
            if config.pre_hook is not None:
                config.pre_hook(given)  # what stands for buffers says what it may not do to them
            chosen = Candidate(function.fn, given, number, len(function.configs), values)
            yield from _within(function.fn, chosen, constants, choice)
    elif hasattr(function, "arg_names") and hasattr(function, "warmup"):
        yield replace(made, function=function)
    elif hasattr(function, "fn"):
        yield from _within(function.fn, made, constants, choice)
    else:
        raise ValueError(f"{function!r:.80} is no function of @triton.jit")


def _chosen_already(tuner: Autotuner, constants: Mapping[str, Any]) -> bool:
    """Whether the adapter gives all that the autotuner would choose. ValueError where it gives a part."""
    wanted = {name for config in tuner.configs for name in config.kwargs} or {"num_warps"}
    if wanted <= constants.keys():
        return True
    if both := sorted(constants.keys() & (wanted | {"num_warps", "num_stages", "num_ctas"})):
        left = ", ".join(sorted(wanted - constants.keys()))
        raise ValueError(f"{both[0]} is chosen by @triton.autotune: leave it out of constants, or give {left} as well")
    return False


def _configurations(
    tuner: Autotuner, given: Mapping[str, Any], constants: Mapping[str, Any], choice: int | None
) -> list[Config]:
    """Those to try, in order."""
    if choice is not None:
        if not 0 <= choice < len(tuner.configs):
            raise ValueError(f"choice is {choice}; the autotuner has {len(tuner.configs)} configurations, from 0 on")
        found = [tuner.configs[choice]]
    else:
        # Triton tells apart what a launch gives by position and by name; here nobody has said which is which.
        tuner.nargs = dict(given)
        try:
            found = tuner.prune_configs({} if tuner.perf_model else dict(given))
        finally:
            tuner.nargs = None
    return list(found)
