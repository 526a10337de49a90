import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Wall-clock deadlines fail at random where two test workers share two cores.
settings.register_profile("fmha", deadline=None)
settings.load_profile("fmha")

# A shell starts its background jobs with SIGINT ignored, and programs inherit that: under `make test &` none that a
# test interrupts would notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout under test."""
    return Path(__file__).resolve().parent.parent
