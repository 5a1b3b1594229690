"""Reads which servers may take a waiting job, and why the others may not."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.core.statements import fetch_result_sets
from jobs.conf import flag_parameters
from jobs.errors import JobNotWaiting, JobUnknown
from jobs.sql import sql
from jobs.states import JobState
from liveness.conf import conf as liveness_conf

AHEAD_COUNTED = 1000


def job_placement(job: UUID, owner: UUID | None) -> dict[str, Any]:
    """Return where a waiting job can run. With `owner`, the job must belong to that token.

    - `eligible`: alive servers that can take it now, the least loaded first
    - `ruled_out`: the other alive servers, each with the reason
    - `waiting_for`: what it waits for besides a worker. None means that it only waits for a worker.
    - `hold`: the hold that keeps it from starting, as a dictionary (None: there is no hold)
    - `flags`: why a person must act before the job can run
    - `fails_in`: seconds until it fails because no worker has its tags. None means that it never fails for that.
    - `full`: number of servers that can take it once a slot is free
    - `ahead`: number of waiting jobs with the same tags that are claimed before it, at most AHEAD_COUNTED

    One query. Raises JobUnknown and JobNotWaiting.
    """
    rows, prospects, ahead = fetch_result_sets(
        sql.read_placement, sql.read_prospects, sql.count_jobs_ahead,
        job=job, owner=owner, only=[job], scan_limit=None, most=AHEAD_COUNTED,
        staleness_multiplier=liveness_conf().staleness_multiplier, **flag_parameters(),
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
    hold = json.loads(rows[0].hold or "null")
    if hold is not None:
        ends_at = hold["ends_at"] and datetime.fromisoformat(hold["ends_at"])
        waiting_for = {"what": "hold", "hold": hold["id"], "until": ends_at}
    elif rows[0].stops_on is not None:
        waiting_for = {"what": "stop", "until": None, "server": json.loads(rows[0].stops_on)}
    elif until is not None:
        waiting_for = {"what": "available_at", "until": until}
    elif rows[0].parked_by is not None and "hold" not in (parked_by := json.loads(rows[0].parked_by)):
        [(what, value)] = parked_by.items()
        what = "limit" if what == "execution_limit" else what
        waiting_for = {"what": what, "until": None, "limit" if what == "limit" else "step": value}
    return {
        "eligible": eligible,
        "ruled_out": ruled_out,
        "waiting_for": waiting_for,
        "hold": hold,
        "flags": [row.flag for row in prospects if row.flag],
        "fails_in": next((row.fails_in for row in prospects if not row.flag), None),
        "full": sum(row["filter"] == "capacity" for row in ruled_out),
        "ahead": ahead[0].jobs,
    }
