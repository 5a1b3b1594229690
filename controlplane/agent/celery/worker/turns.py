"""The order in which idle workers ask for a message that wakes all of them."""

from __future__ import annotations

import random

ALONE = 0.2  # share of wakes without a message; below it, a worker asks at once
SPREAD = 0.005  # seconds for each idle worker, over which they spread their commands
MOST_SPREAD = 0.1  # seconds
YIELD = 0.03  # seconds for which a worker whose processes are all busy lets idle workers go first, unless one gets free
MEMORY = 0.1  # weight of the latest wake


class Turns:
    """Spread of idle workers over time, so that a new message does not wake all of them at the same moment.

    Each worker estimates how many others are idle from how often another one was first to take a message. The more
    there are, the longer it waits before it asks Redis. Otherwise each message would cost several commands of each
    idle worker.
    """

    def __init__(self) -> None:
        self._vain = 0.0  # share of the latest wakes in which another worker was first

    def won(self) -> None:
        self._vain -= MEMORY * self._vain

    def lost(self) -> None:
        self._vain += MEMORY * (1 - self._vain)

    @property
    def is_alone(self) -> bool:
        return self._vain < ALONE

    def pause(self, *, is_busy: bool) -> float:
        """Return the seconds to wait after a wake. Each of n idle workers is first in one of n wakes."""
        spread = 0.0 if self.is_alone else min(MOST_SPREAD, SPREAD / (1 - self._vain))
        return random.uniform(0, spread) + (YIELD if is_busy else 0.0)  # noqa: S311
