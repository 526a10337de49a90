import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Wall-clock deadlines fail at random where two test workers share two cores.
settings.register_profile("fmha", deadline=None)
settings.load_profile("fmha")

# A shell starts its background jobs with SIGINT ignored, nohup with SIGHUP, and programs inherit that: under
# `nohup make test &` none that a test interrupts would notice.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout under test."""
    return Path(__file__).resolve().parent.parent
