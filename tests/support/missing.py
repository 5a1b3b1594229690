"""Skip tests on machines that lack a program."""

import os
from typing import NoReturn

import pytest


def skip_without(why: str) -> NoReturn:
    """Skip the test, or fail it if REQUIRE_ALL is set."""
    if os.environ.get("REQUIRE_ALL"):
        pytest.fail(why)
    pytest.skip(why)
