"""How long to wait before the next try."""

from __future__ import annotations

import random


def full_jitter(failures: int, cap: float, base: float = 0.5) -> float:
    """Seconds to wait after `failures` (≥ 1) misses in a row: anything up to the doubled base, at most `cap`.

    Full jitter, so that a thousand agents cut off together do not come back together.
    """
    return random.uniform(0, min(cap, base * 2 ** min(failures, 16)))  # noqa: S311
