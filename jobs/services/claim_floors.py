"""Remember where waiting jobs begin in the queue, from the last claims of this process.

While an old snapshot is open, PostgreSQL keeps the index entries of all jobs that were claimed since. A claim would
read them again and again. So each process remembers for each set of tags and priority the position of the oldest
waiting job (its floor), and claims begin there. A job that comes back to an earlier position is found after
`KNOWN_FOR`, or as soon as it is announced. Each claim also looks for sets and priorities that are not known yet.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from controlplane.core.json_bodies import read_json, write_json

KNOWN_FOR = 1.0
"""Seconds after which a claim reads a queue from its beginning again."""
SETS_KEPT_FOR = 60.0
"""Seconds after which the tag sets of a server are read again, because many may have no jobs any more."""
SETS_LIMIT, PARTS_LIMIT = 30, 8
"""Largest number of remembered tag sets of a server, and of floors of a set. Others are read from their beginning."""
SERVERS_LIMIT, QUEUES_LIMIT = 20_000, 20_000

TagSet = tuple[str, ...]
Part = tuple[int, bool]
"""Priority, and True for the jobs of fair keys that have a turn."""
BEGINNINGS = {False: (0.0, "-infinity", str(UUID(int=0))), True: (1.0, "-infinity", str(UUID(int=0)))}


class Floor(NamedTuple):
    position: tuple[float, str, str]
    """Turn, time and id of the first waiting job, as the database writes them."""
    read_at: float
    """Time of the last claim that read the queue from its beginning."""


class MetSets(NamedTuple):
    """Sets of tags that the last claim of a server met."""

    namespace: str
    sets: tuple[TagSet, ...]
    since: float


class Known(NamedTuple):
    """Knowledge of a claim when it begins."""

    text: str
    """The sets of tags and their floors, as the statement takes them."""
    read_at: dict[tuple[TagSet, Part], float]
    """Time when each part of a queue was last read from its beginning. It is now if this claim does it."""
    begun_at: float
    since: float | None
    """Time since which these sets are known."""


class ClaimFloors:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._met: OrderedDict[UUID, MetSets] = OrderedDict()
        self._queues: dict[tuple[str, TagSet], dict[Part, Floor]] = {}
        self._reset_at = -math.inf

    def reset(self) -> None:
        """Let the next claims read all queues from the beginning, because jobs came back to earlier positions."""
        self._reset_at = time.monotonic()

    def known_to(self, server: UUID) -> Known:
        """Return the knowledge about the queues of a server. A claim calls this when it begins."""
        now, met = time.monotonic(), self._met.get(server)
        if met is None or now - met.since > SETS_KEPT_FOR:
            return Known("[]", {}, now, None)
        known, read_at = [], {}
        for tags in met.sets:
            places = []
            for part, floor in list(self._queues.get((met.namespace, tags), {}).items()):
                is_fresh = floor.read_at > self._reset_at and now - floor.read_at < KNOWN_FOR
                priority, is_fair = part
                turn, at, id = floor.position if is_fresh else BEGINNINGS[is_fair]
                read_at[tags, part] = floor.read_at if is_fresh else now
                places.append({"priority": priority, "fair": is_fair, "turn": turn, "at": at, "id": id})
            known.append({"tags": tags, "floors": places})
        return Known(write_json(known).decode(), read_at, now, met.since)

    def learn(self, server: UUID, known: Known, seen: str) -> None:
        """Remember what a claim has seen. `known` is the knowledge with which it began."""
        places = read_json(seen)
        namespace, sets = places["namespace"], tuple(map(tuple, places["sets"] or ()))
        with self._lock:
            self._met.pop(server, None)
            if len(sets) <= SETS_LIMIT:
                self._met[server] = MetSets(namespace, sets, known.since or time.monotonic())
            if len(self._met) > SERVERS_LIMIT:
                self._met.popitem(last=False)
            if len(self._queues) > QUEUES_LIMIT:
                self._queues.clear()
            for tags, priority, is_fair, turn, at, id in places["floors"] or ():
                part = (priority, is_fair)
                read_at = known.read_at.get((tuple(tags), part), known.begun_at)
                self._remember(namespace, tags, part, Floor((turn, at, id), read_at))
            for tags, priority in places["found"] or ():
                if (priority, False) not in self._queue(namespace, tags):
                    self._remember(namespace, tags, (priority, False), Floor(BEGINNINGS[False], -math.inf))

    def _remember(self, namespace: str, tags: Iterable[str], part: Part, floor: Floor) -> None:
        queue = self._queue(namespace, tags)
        # Another claim may have read the queue from its beginning since then, and so have seen more.
        if part in queue and queue[part].read_at > floor.read_at:
            return
        if part not in queue and len(queue) >= PARTS_LIMIT:
            del queue[min(queue, key=lambda one: queue[one].read_at)]
        queue[part] = floor

    def _queue(self, namespace: str, tags: Iterable[str]) -> dict[Part, Floor]:
        return self._queues.setdefault((namespace, tuple(tags)), {})


floors = ClaimFloors()
