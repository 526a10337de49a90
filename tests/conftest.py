import gc
import os
import signal
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import folders, limits, nights, order, reports, slots
from tests.builds import CACHES, Builds, bring, keep_all

# Wall-clock deadlines fail at random where two test workers share two cores.
settings.register_profile("fmha", deadline=None)
settings.load_profile("fmha")

# A shell starts its background jobs with SIGINT ignored, nohup with SIGHUP, and programs inherit that: under
# `nohup make test &` none that a test interrupts would notice.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# References are of small matrices: threads of BLAS would spend their processor time on waiting for each other, in four
# workers for two cores. Read when numpy and torch are loaded, here and in what tests start.
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Tests start programs in their hundreds, and in a new clone no module of ours is compiled yet: where the environment
# forbids bytecode, each of them would compile again all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_watch = limits.Watch()

KEPT = Path(__file__).resolve().parent.parent / "build" / "test-kernels"  # `make clean` removes it

os.environ["FMHA_HOSTS"] = ""  # whoever runs the tests has hosts of their own

# The runs that tests start are not what the job they run in is about: none writes into its summary.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(name, None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Modules that torch's tensors run through say so by `pytest.importorskip`, tests that need it alone by a mark."""
    for name, needed, remedy in (
        ("torch", ("torch",), "make torch"),
        ("triton", ("triton", "torch"), "make triton"),
        ("cute", ("cutlass",), "pip install -c constraints.txt nvidia-cutlass-dsl"),
    ):
        if item.get_closest_marker(name) and (missing := [word for word in needed if find_spec(word) is None]):
            pytest.skip(f"{missing[0]} is not installed: {remedy}")


def pytest_configure(config: pytest.Config) -> None:
    slots.take()
    config.pluginmanager.register(folders.InMemory())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are made, and none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nights.mark(items)
    by_day = config.option.markexpr == "not nightly"
    order.assign_groups(items, lanes=1 if by_day else 2)  # those of the night would be the last by far
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = order.spread(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    reports.shorten(session.config)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keeps what was built, once the workers have ended. Not where a test failed: it may be one of what reaches a cache
    and must not."""
    written: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
    if exitstatus == pytest.ExitCode.OK and written is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        for name in CACHES:
            keep_all(written.getbasetemp() / name, KEPT / name)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    _watch.begin(item, settings)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    _watch.end()
    return True


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all workers of a run build kernels of ours, each once: a folder that is theirs alone."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "builds"


@pytest.fixture(scope="session")
def kept_builds() -> Path:
    """Where kernels of ours stay for the next run of this checkout."""
    return KEPT / "builds"


@pytest.fixture(scope="session", autouse=True)
def builds_are_shared(request: pytest.FixtureRequest, build_cache: Path) -> None:
    """Every command of every test builds there too: an entry is named by all that decides its content, so that nothing
    of ours is compiled twice, and nothing is left in the cache of whoever runs the tests."""
    if any(item.get_closest_marker("nvcc") for item in request.session.items):
        for name in CACHES:
            bring(KEPT / name, build_cache.with_name(name))
    os.environ["FMHA_CACHE"] = str(build_cache.parent)


@pytest.fixture(scope="session")
def builds(repository: Path, build_cache: Path, kept_builds: Path) -> Builds:
    """Every variant, by name, built as the harness builds it, once somebody asks for it."""
    return Builds(repository, build_cache, kept_builds)
