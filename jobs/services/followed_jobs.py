"""Jobs that waiting calls follow until the job ends or its code writes a line. One statement checks all of them."""

import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db import close_old_connections

from controlplane.core.database import connection
from jobs.sql import sql


class FollowedJob(NamedTuple):
    """Job that a call follows. `attempt` limits this to one attempt, by its number."""

    job: UUID
    after: int | None = None
    """Id of the last line that the caller has. None: only the end of the job counts."""
    attempt: int | None = None


def write_followed(jobs: Sequence[FollowedJob]) -> str:
    """Return followed jobs as the value of a header."""
    return json.dumps([[str(one.job), one.after, one.attempt] for one in jobs])


def read_followed(text: str) -> list[FollowedJob]:
    """Return the followed jobs in a header value of `write_followed`."""
    return [FollowedJob(UUID(job), after, attempt) for job, after, attempt in json.loads(text)]


def list_changed(jobs: Sequence[FollowedJob]) -> set[int]:
    """Return the indexes in `jobs` of those that ended, were deleted, or have a new line after `after`.

    Call this in a thread that serves no request, because it closes old connections.
    """
    try:
        rows = sql.list_changed_jobs.fetch_rows(
            jobs=[one.job for one in jobs],
            after=[one.after for one in jobs],
            attempts=[one.attempt for one in jobs],
        )
        return {row.place - 1 for row in rows}
    finally:
        if not connection.in_atomic_block:
            close_old_connections()
