"""Pauses before a retry, and timeouts of heartbeats."""

from __future__ import annotations

import random


def full_jitter(failures: int, cap: float, base: float = 0.5) -> float:
    """Return the seconds to wait after `failures` (at least 1) failures in a row.

    The result is random, from 0 up to the doubled `base`, at most `cap`. Full jitter: a thousand agents that lost the
    connection together do not come back together.
    """
    return random.uniform(0, min(cap, base * 2 ** min(failures, 16)))  # noqa: S311


# A server sends a heartbeat every `interval` seconds, and is dead after `timeout` seconds of silence. The time between
# them must be enough for one lost heartbeat, the next one, and the part of an outage that counts: see
# liveness.conf.witness_window. tests/unit/agent/test_outages_of_all_phases.py tests all phases.


def heartbeat_answer_timeout(timeout: float, interval: float) -> float:
    """Return the seconds after which a heartbeat without a response has failed."""
    return max(0.01, min(10.0, (timeout - interval) / 4))


def heartbeat_retry_window(timeout: float, interval: float) -> float:
    """Return the seconds after the start of a failed heartbeat within which the next one starts."""
    return max(0.01, (timeout - interval) / 3)
