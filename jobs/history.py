"""Spans, dimensions and histogram bins of the history of jobs. Counts of bins can be added."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.core.described import Described

KEYS_KEPT = 100
"""Number of most frequent tags, actions or clusters per minute or hour. The others are counted together."""
BINS_PER_DOUBLING = 4
"""Bin `k` starts at 2^(k/4) ms, so that percentiles are exact within 9 per cent."""
MARGIN = 120
"""Seconds before the last count that are counted again each time, because the database's clock may be set back a
little."""
SETTLED = 3600
"""Seconds after which none of our transactions is open any more, because limits end longer transactions."""
HOURS_AT_ONCE = 6
"""Largest number of hours that one transaction counts when the history is behind."""
FIRST_HOURS = 8 * 24
"""Number of past hours that the first count includes."""
MINUTES_KEPT_HOURS = 25


class Span(Described):
    MINUTE = "minute", "Kept for a day."
    HOUR = "hour", "Sum of its minutes once they are final, kept for JOBS[HISTORY_RETENTION]."


class Dimension(Described):
    """Property that jobs are counted by, besides the count of all jobs."""

    TAG = "tag", "Each tag that the job requires of a worker."
    ACTION = "action", "Type of its action, with the name of what it runs."
    CLUSTER = "cluster", "Cluster of the server of its last attempt."


@dataclass(frozen=True)
class Window:
    """Period up to now, and the step between the points of its chart, in seconds."""

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
    """Return a percentile of durations in seconds: the middle of the bin with that percentile.

    `counts` maps bins to counts. Return None if there are no durations.
    """
    total = sum(counts.values())
    rank, seen = share * total, 0
    for bin, count in sorted((int(bin), count) for bin, count in counts.items()):
        seen += count
        if seen >= rank:
            return float(f"{2 ** ((bin + 0.5) / BINS_PER_DOUBLING) / 1000:.2g}") if bin else 0.001
    return None


def add_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add counts by bin."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)
