"""How the past is counted: spans, dimensions, and how durations are counted so that counts can be added up."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.core.described import Described

KEYS_KEPT = 100
"""Of the tags, actions and clusters of one minute or hour: the most frequent. The others are counted together."""
BINS_PER_DOUBLING = 4
"""Bin `k` holds the durations from 2^(k/4) ms on: a percentile is read from it within 9 per cent."""
MARGIN = 120
"""Seconds before the last count that are counted again each time: the database's clock may go back by so much."""
SETTLED = 3600
"""Seconds for which no transaction of ours is open: those that last are ended by the limits of each role."""
HOURS_AT_ONCE = 6
"""Of one transaction, where much is to be caught up."""
FIRST_HOURS = 8 * 24
"""How far the first count goes back."""
MINUTES_KEPT_HOURS = 25


class Span(Described):
    MINUTE = "minute", "Kept for a day."
    HOUR = "hour", "Added up of its minutes once these are final, and kept for JOBS[HISTORY_RETENTION]."


class Dimension(Described):
    """What jobs are counted by, beside all together."""

    TAG = "tag", "Each tag that the job requires of a worker."
    ACTION = "action", "The type of its action, with the name of what it runs."
    CLUSTER = "cluster", "That of the server which had its last attempt."


@dataclass(frozen=True)
class Window:
    """A stretch of time up to now, and the points that it is drawn with."""

    name: str
    seconds: int
    step: int
    span: Span

    @property
    def points(self) -> int:
        return self.seconds // self.step


WINDOWS = {
    window.name: window
    for window in (
        Window("1h", 3600, 60, Span.MINUTE),
        Window("24h", 86400, 900, Span.MINUTE),
        Window("7d", 7 * 86400, 3600, Span.HOUR),
    )
}
DEFAULT_WINDOW = "1h"


def percentile(counts: Mapping[str, int], share: float) -> float | None:
    """The seconds that this share of the durations did not exceed, by the middle of their bin. None: there are none."""
    total = sum(counts.values())
    rank, seen = share * total, 0
    for bin, count in sorted((int(bin), count) for bin, count in counts.items()):
        seen += count
        if seen >= rank:
            return float(f"{2 ** ((bin + 0.5) / BINS_PER_DOUBLING) / 1000:.2g}") if bin else 0.001
    return None


def add_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by bin, added up."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
