from pathlib import Path

import pytest
from hypothesis import settings

# Wall-clock deadlines fail at random where two test workers share two cores.
settings.register_profile("fmha", deadline=None)
settings.load_profile("fmha")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout under test."""
    return Path(__file__).resolve().parent.parent
