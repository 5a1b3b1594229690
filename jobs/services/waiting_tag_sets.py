"""Cached sets of required tags of each owner's waiting jobs. Pages and sweeps need an index probe for each set.

The sets are counted if a submission has a set that this process has not stored for the owner recently. Most clients use
a few sets again and again, so most submissions count nothing.
"""

import math
import threading
import time
from collections.abc import Iterable
from uuid import UUID

from jobs.conf import conf

KNOWN_FOR = 1.0
"""Seconds for which a stored set counts as waiting."""
KNOWN_LIMIT = 50_000
"""Number of sets that are remembered, for all owners together."""

TagSet = tuple[str, ...]
known: dict[tuple[UUID, TagSet], float] = {}
lock = threading.Lock()


def limit_to_count(owner: UUID, sets: Iterable[TagSet]) -> int | None:
    """Return the limit of sets if they must be counted.

    Return None if all these sets are known, or there is no limit.
    """
    limit, since = conf().waiting_tag_sets_limit, time.monotonic() - KNOWN_FOR
    if limit is None or all(known.get((owner, tags), -math.inf) > since for tags in sets):
        return None
    return limit


def note_stored(owner: UUID, sets: Iterable[TagSet]) -> None:
    """Remember these sets as waiting."""
    now = time.monotonic()
    with lock:
        if len(known) > KNOWN_LIMIT:
            known.clear()
        known.update(((owner, tags), now) for tags in sets)
