"""What a machine lacks that runs the tests."""

import os
from typing import NoReturn

import pytest


def skip_without(why: str) -> NoReturn:
    """Skips the test, or fails it where everything is required."""
    if os.environ.get("REQUIRE_ALL"):
        pytest.fail(why)
    pytest.skip(why)
