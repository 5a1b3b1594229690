"""Concern about an old snapshot. Until it ends, PostgreSQL removes no dead rows, so the database gets slower."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.conf import alerts_conf
from jobs.verdict.clauses import WORRY, Concern, Elapsed

WORDS = {
    "session": "A transaction of {name} has been open for ",
    "prepared": "The prepared transaction {name} has waited for its end for ",
    "standby": "The standby {name} has kept an old snapshot for ",
    "slot": "The replication slot {name} has kept an old snapshot for ",
}
"""Words by kind of holder."""


def snapshot_concerns(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Yield a concern if a snapshot is older than ALERTS["OLDEST_SNAPSHOT"]. It names the session, never the query."""
    snapshot, limit = figures["oldest_snapshot"], alerts_conf().oldest_snapshot
    if snapshot is None or limit is None or snapshot["seconds"] <= limit:
        return
    name = snapshot["name"] or "a session without a name"
    if snapshot["pid"] is not None:
        name += f" (process {snapshot['pid']})"
    age = Elapsed(snapshot["seconds"])
    parts = (WORDS[snapshot["kind"]].format(name=name), age, ", so dead rows are kept and the database gets slower")
    yield Concern("oldest_snapshot", WORRY, parts, seconds=-snapshot["seconds"])
