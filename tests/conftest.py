import fcntl
import gc
import os
import signal
import sys
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from fmha.harness.worker.compilers.build import build_variants
from fmha.harness.worker.protocol import BuildResult
from fmha.harness.worker.variants import VARIANTS

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are made, and none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# Files with so many tests begin early, since the largest groups do: none of them is the last.
_MANY = 40
_SLOW = 20  # of others: what a slow test costs, roughly
_REMOTE = Path(__file__).with_name("remote")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file of many quick tests goes to one worker as a whole: its fixtures are made once. And xdist, which adds up
    after every test all groups that a worker has had, has 2,400 of them and not 11,500. Others that need torch are one
    group: to import it takes two seconds."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for path, tests in files.items():
        alone = all(item.get_closest_marker(name) is None for item in tests for name in ("slow", "xdist_group"))
        if alone and len(tests) >= _MANY:
            for item in tests:
                item.add_marker(pytest.mark.xdist_group(path.stem))
    for item in items:
        if item.get_closest_marker("torch") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("torch"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _spread(items)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """By groups, as xdist's loadgroup hands them out: large ones first. But those of the remote hosts, which mostly
    wait, come at even distances among the others, so that there is work for all cores beside them."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = item.get_closest_marker("xdist_group")
        groups.setdefault(group.args[0] if group else item.nodeid, []).append(item)
    ordered = sorted(groups.values(), key=len, reverse=True)
    waiting = [group for group in ordered if group[0].path.is_relative_to(_REMOTE)]
    busy = [group for group in ordered if not group[0].path.is_relative_to(_REMOTE)]
    # None is left for the end, when cores run out of others.
    distance = 0.8 * sum(map(_cost, busy)) / max(len(waiting), 1)
    spread: list[pytest.Item] = []
    done = due = 0.0
    for group in busy:
        if waiting and done >= due:
            spread += waiting.pop(0)
            due += distance
        spread += group
        done += _cost(group)
    return spread + [item for group in waiting for item in group]


def _cost(group: list[pytest.Item]) -> float:
    return sum(_SLOW if item.get_closest_marker("slow") else 1 for item in group)


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
def lend_builds(build_cache: Path) -> Callable[[Path], None]:
    """Has a project's kernels built there too, those that have other sources or flags beside ours: an entry is named by
    all that decides its content, so that nothing of ours is compiled twice."""

    def lend(root: Path) -> None:
        build_cache.mkdir(parents=True, exist_ok=True)
        (root / ".fmha").mkdir(exist_ok=True)
        (root / ".fmha" / "cache").symlink_to(build_cache)

    return lend


@pytest.fixture(scope="session")
def builds(repository: Path, build_cache: Path) -> dict[str, BuildResult]:
    """Every variant, by name, built as the harness builds it: by one worker of a run, for all."""
    with build_cache.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = build_variants(repository, VARIANTS, build_cache, 300.0, 2, lambda line: None)
    assert not [result.error for result in results if result.error]
    return {result.variant.name: result for result in results}
