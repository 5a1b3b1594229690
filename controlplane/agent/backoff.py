"""How long to wait for an answer, and before the next try."""

from __future__ import annotations

import random


def full_jitter(failures: int, cap: float, base: float = 0.5) -> float:
    """Seconds to wait after `failures` (≥ 1) misses in a row: anything up to the doubled base, at most `cap`.

    Full jitter, so that a thousand agents cut off together do not come back together.
    """
    return random.uniform(0, min(cap, base * 2 ** min(failures, 16)))  # noqa: S311


# A server that says the same each `interval` seconds is given up after `timeout` seconds of silence. What is left of
# them when a beat is due must do for one that is swallowed, for the next, and for as much of an outage as counts: see
# liveness.conf.witness_window. Tried in all phases by tests/unit/agent/test_outages_of_all_phases.py.


def heartbeat_answer_timeout(timeout: float, interval: float) -> float:
    """Seconds after which a heartbeat without an answer is given up."""
    return max(0.01, min(10.0, (timeout - interval) / 4))


def heartbeat_retry_window(timeout: float, interval: float) -> float:
    """Seconds after the start of a heartbeat that failed within which the next one is begun."""
    return max(0.01, (timeout - interval) / 3)
