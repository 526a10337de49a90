"""`pytest --fmha-emulate`: kernels that tests launch run on the emulator, and a test with a hazard fails.

Every pytest of an environment with fmha loads this module, so it loads nothing else before it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import pytest

_STACK = pytest.StashKey[contextlib.ExitStack]()
_OPTIONS = pytest.StashKey[Any]()  # machine.Options


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fmha")
    group.addoption("--fmha-emulate", action="store_true", help="Run launched kernels on fmha's emulator.")
    group.addoption("--fmha-arch", default="sm_100a", help="What they are compiled for; sm_100a by default.")
    group.addoption("--fmha-schedule", default="realistic", help="realistic, early, late or random.")
    group.addoption("--fmha-profile", default="lenient", help="strict or lenient.")
    group.addoption("--fmha-seed", type=int, default=0, help="Of schedules that are drawn.")
    group.addoption("--fmha-schedules", type=int, metavar="N", help="Run a test that passes under N schedules.")
    group.addoption(
        "--fmha-search", type=float, metavar="SECONDS", help="Run a test that passes under others, for so long."
    )


def pytest_configure(config: pytest.Config) -> None:
    """From here on, so that what a test file asks of torch.cuda when it is loaded has its answer too."""
    if not config.getoption("--fmha-emulate"):
        return
    from fmha.harness.errors import UserError
    from fmha.harness.scripted.emulated import checked, running

    try:
        names = ("arch", "schedule", "profile", "seed")
        options = checked(*(config.getoption(f"--fmha-{name}") for name in names))
    except UserError as error:
        raise pytest.UsageError(error.what.replace("--", "--fmha-", 1)) from error
    stack = contextlib.ExitStack()
    stack.enter_context(running(options, lambda told: None))
    config.stash[_STACK], config.stash[_OPTIONS] = stack, options


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STACK in config.stash:
        config.stash[_STACK].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if _OPTIONS not in item.config.stash:
        return (yield)
    from fmha.harness.scripted.emulated import HazardError, running

    options = item.config.stash[_OPTIONS]
    with running(options, lambda told: None) as machine:
        result = yield
    if machine.hazards:
        raise HazardError(machine.hazards)
    if machine.launches:
        _run_again(item, options)
    return result


def _run_again(item: pytest.Item, options: Any) -> None:
    """A test that has passed under one schedule, under others, with the fixtures that it has: what fails says which."""
    count, seconds = (item.config.getoption(f"--fmha-{name}") for name in ("schedules", "search"))
    if count is None and seconds is None:
        return
    import dataclasses

    from fmha.harness.scripted.again import others
    from fmha.harness.scripted.emulated import HazardError, running

    for schedule, seed in others(count, seconds, options.seed):
        try:
            with running(dataclasses.replace(options, schedule=schedule, seed=seed), lambda told: None) as machine:
                item.runtest()
            if machine.hazards:
                raise HazardError(machine.hazards)
        except Exception as error:
            error.add_note(f"under --fmha-schedule {schedule} --fmha-seed {seed}; it passes under {options.schedule}")
            raise
