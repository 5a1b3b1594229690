"""Short and long versions of tests by chance or by volume. `make test` runs the short ones."""

from typing import Any

import pytest


def short_and_long(few: int, many: int) -> list[Any]:
    """Return parameters for a number that a test repeats or creates: a small one, and a large one that is exhaustive.

    Example: `@pytest.mark.parametrize("rounds", short_and_long(6, 20))`.
    """
    return [few, pytest.param(many, marks=pytest.mark.exhaustive)]


def some_seeds(few: int, many: int) -> list[Any]:
    """Return the seeds of a test by chance. All but the first `few` are exhaustive."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(few, many))]
