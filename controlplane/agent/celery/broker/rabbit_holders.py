"""The list of instances that may hold copies in RabbitMQ: a queue with one message for each of them.

A scan receives all messages without acknowledging them, so they are returned when its channel closes. Another scan at
the same time does not see them. So a worker may publish two entries. A scan that sees several entries of an instance
removes all but one.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter

from kombu import Queue

from controlplane.agent.celery.broker.rabbit_connection import RabbitConnection, declare, put

HOLDERS = "controlplane.holders"
SCAN_EVERY = 10.0  # seconds between two scans of one process
LEAVE_SCANS = 10  # largest number of scans for the entries of an instance that leaves
LEAVE_PAUSE = 0.2  # seconds between two of these scans
EMPTY_SCANS = 2  # if the number of entries is unknown, so many scans without an entry prove its absence


class RabbitHolders:
    """The list, as one process sees it.

    All its threads share one object, so that they publish only one entry per instance. It is thread safe. Methods get
    the connection of the calling thread, and raise its errors.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entered: set[str] = set()
        self._puts: Counter[str] = Counter()  # number of entries that this process may have published, by instance
        self._removed: Counter[str] = Counter()
        self._has_left: set[str] = set()
        self._listed: list[str] = []
        self._before: frozenset[str] | None = None
        self._scan_at = 0.0

    def enter(self, broker: RabbitConnection, instance: str) -> None:
        """Publish an entry for this instance, unless this process published or removed one before."""
        if instance in self._entered:
            return
        with self._lock:
            if instance not in self._entered and instance not in self._has_left:
                self._put(broker, instance)

    def leave(self, broker: RabbitConnection, instance: str) -> bool:
        """Remove all entries of this instance. Return False if another scan may hide an entry, so that it is left.

        A process knows how many entries it published for its own instance. For other instances it scans until it finds
        none.
        """
        with self._lock:
            self._has_left.add(instance)
            empty = 0
            for attempt in range(LEAVE_SCANS):
                if attempt:
                    time.sleep(LEAVE_PAUSE)
                removed = self._scan(broker, remove=instance)[instance]
                self._removed[instance] += removed
                empty = 0 if removed else empty + 1
                is_hidden = instance in self._entered and not self._removed[instance]
                if removed >= self._puts[instance] > 0 or (empty >= EMPTY_SCANS and not is_hidden):
                    break
            else:
                return False
            del self._puts[instance], self._removed[instance]
            self._entered.discard(instance)
            self._listed = [listed for listed in self._listed if listed != instance]
            self._before = self._before and self._before - {instance}
            return True

    def current(self, broker: RabbitConnection) -> list[str]:
        """Return the instances that may hold copies. The list may be some seconds old."""
        with self._lock:
            if time.monotonic() >= self._scan_at:
                spread = 1 + uuid.uuid4().int % 100 / 100
                self._scan_at = time.monotonic() + spread * max(SCAN_EVERY, 0.5 * len(self._listed))
                seen, before = frozenset(self._scan(broker)), self._before
                if before is not None:  # another scan may hide an entry once, but rarely twice
                    for instance in self._entered - seen - before - self._has_left:
                        self._put(broker, instance)  # the queue was deleted
                self._listed, self._before = sorted(seen | (before or frozenset())), seen
            return self._listed

    def _put(self, broker: RabbitConnection, instance: str) -> None:
        with broker.channel() as channel:
            declare(channel, HOLDERS)
            if instance not in self._scan(broker):
                self._puts[instance] += 1  # counted before the publication, because its confirmation may be lost
                put(channel, HOLDERS, instance)
            self._entered.add(instance)

    def _scan(self, broker: RabbitConnection, remove: str | None = None) -> Counter[str]:
        """Return the visible entries. Remove the entries of one instance, and surplus entries of the others."""
        seen: Counter[str] = Counter()
        with broker.channel() as channel:
            declare(channel, HOLDERS)
            while (message := Queue(HOLDERS)(channel).get()) is not None:
                instance = str(message.payload)
                seen[instance] += 1
                if instance == remove or seen[instance] > 1:
                    message.ack()
        return seen
