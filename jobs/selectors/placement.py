"""Which servers may have a waiting job, and why the others may not."""

import json
from typing import Any
from uuid import UUID

from controlplane.core.statements import fetch_result_sets
from jobs.conf import unmatched_parameters
from jobs.errors import JobNotWaiting, JobUnknown
from jobs.sql import sql
from jobs.states import JobState
from liveness.conf import conf as liveness_conf


def job_placement(job: UUID, owner: UUID | None) -> dict[str, Any]:
    """Which alive servers may have a waiting job, the least loaded first, what rules out the others, and why it stands
    still, `flags`: one query.

    Raises JobUnknown and JobNotWaiting.
    """
    rows, flagged = fetch_result_sets(
        sql.read_placement, sql.read_flags, job=job, owner=owner, only=[job], scan_limit=None,
        staleness_multiplier=liveness_conf().staleness_multiplier, **unmatched_parameters(),
    )  # fmt: skip
    if not rows:
        raise JobUnknown
    state, until = rows[0].state, rows[0].waits_until
    if state != JobState.PENDING:
        raise JobNotWaiting(f"This job is {state}; only a PENDING one has candidates.", state=state)
    eligible: list[dict[str, Any]] = []
    ruled_out: list[dict[str, Any]] = []
    for row in rows:
        server = {"id": row.server, "name": row.name}
        if row.server is None:
            continue
        if row.filter is None:
            is_least_loaded = not eligible or row.load == eligible[0]["load"]
            eligible.append({"server": server, "load": row.load, "hint": "first" if is_least_loaded else "later"})
        else:
            ruled_out.append({"server": server, "filter": row.filter, "detail": row.detail})
    waiting_for: dict[str, Any] | None = None
    if rows[0].stops_on is not None:
        waiting_for = {"what": "stop", "until": None, "server": json.loads(rows[0].stops_on)}
    elif until is not None:
        waiting_for = {"what": "available_at", "until": until}
    flags = [row.flag for row in flagged]
    return {"eligible": eligible, "ruled_out": ruled_out, "waiting_for": waiting_for, "flags": flags}
