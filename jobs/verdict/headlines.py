"""Headlines of the verdict: the worst concern in a few words.

The sentence below the headline has the names and links.
"""

from jobs.states import Flag
from jobs.verdict.clauses import Concern, count_of

HEADLINES = {
    "check": "Liveness checks do not run",
    "ending": "Servers are about to end",
    "no_server": "No server is running",
    "no_worker": "There is no worker",
    "no_worker_takes_work": "No worker takes work",
    "no_matching_worker": "Jobs are about to fail: no worker has their tags",
    Flag.HELD_BY_LOST_SERVER: "Jobs are kept by a lost server",
    Flag.STALE_RUNNER: "Jobs run without heartbeats",
    Flag.STALE_CLAIM: "Jobs are claimed without heartbeats",
    Flag.WAITS_FOR_TAGS: "Jobs wait for tags that no worker has",
    Flag.WAITS_FOR_SLOTS: "Jobs wait for more slots than any worker has",
    Flag.REFUSED_BY_ALL: "Jobs were refused by all workers",
    Flag.WAITS_AFTER_LOSS: "Jobs of a lost worker wait for another worker",
    Flag.DEADLINE_MISSED: "Jobs are past their deadline",
    "quarantine": "Jobs are in quarantine",
    "failures": "More jobs fail than usual",
    "oldest_snapshot": "An old snapshot slows the database",
    "hold_open": "Work has been on hold for a long time",
    "oldest_waiting": "Jobs have waited for a long time",
}
"""Headlines by kind of concern."""


def headline_of(concern: Concern) -> str:
    """Return a few words for a concern, without names."""
    number = concern.servers or 1
    if concern.kind == "silent":
        return f"{count_of(number, 'server')} {'is' if number == 1 else 'are'} silent"
    if concern.kind == "lost":
        return f"{count_of(number, 'server')} {'is' if number == 1 else 'are'} lost"
    return HEADLINES.get(concern.kind, concern.text)
