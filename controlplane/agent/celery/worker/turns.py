"""Spread the requests of idle workers over time, because each new message wakes all of them."""

from __future__ import annotations

import random

ALONE = 0.2  # if a smaller share of its wakes brings no message, a worker asks at once
SPREAD = 0.005  # seconds per idle worker: together, the period over which they spread their commands
MOST_SPREAD = 0.1  # seconds
YIELD = 0.03  # seconds that a fully busy worker lets idle workers go first, unless one of its processes becomes free
MEMORY = 0.1  # weight of the latest wake in the average


class Turns:
    """Pause of a worker before it asks for a message, so that not all idle workers ask at the same moment.

    Each worker estimates the number of idle workers from the share of messages that another worker took first. The more
    there are, the longer it waits before it asks Redis. Otherwise each message would cost several commands of each idle
    worker.
    """

    def __init__(self) -> None:
        self._vain = 0.0  # average share of wakes in which another worker was first

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
