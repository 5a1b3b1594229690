"""Create fake servers and jobs for trials and measurements. No process runs behind them."""

import math
import secrets
from collections.abc import Callable
from typing import Any

from controlplane.core.database import connection, transaction
from jobs.models import Attempt, WorkerJob
from jobs.sql import sql
from jobs.sql.rows.seeding import MakeServersRow
from liveness.models import ApiToken, Server

HEARTBEAT_INTERVAL, TIMEOUT = 300, 86400
"""Seconds. They are long, so that servers without heartbeats stay fresh for a quarter of an hour, and alive for a
day."""
SERVERS_A_BATCH, JOBS_A_BATCH = 1_000, 20_000
TABLES = "liveness_server, liveness_serverevent, liveness_heartbeat, jobs_workerjob, jobs_attempt, jobs_latereport"


class NotEmpty(Exception):
    """The database already has servers or jobs, which may be real."""


@transaction.atomic
def seed_database(
    servers: int, jobs: int, *, force: bool = False, report_progress: Callable[[str, int], None] = lambda *_: None
) -> None:
    """Add fake servers and jobs, all or none. Call `report_progress(kind, done)` after each batch.

    Raises NotEmpty if there are servers or jobs already, unless `force` is set.
    """
    if not force and (Server.objects.exists() or WorkerJob.objects.exists()):
        raise NotEmpty
    # No text has this digest, so this token cannot be used.
    token = ApiToken.objects.create(name="seed", role="client", prefix="seed", digest=secrets.token_bytes(32))
    sql.relax_guards.fetch_rows(triggers=list_first_state_guards())
    # There are more slots than jobs that seem to run on each server.
    shared = {"token": token.pk, "interval": HEARTBEAT_INTERVAL, "timeout": TIMEOUT}
    capacity = max(4, math.ceil(jobs / servers * 0.02))
    workers: list[MakeServersRow] = []
    for first in range(1, servers + 1, SERVERS_A_BATCH):
        last = min(first + SERVERS_A_BATCH - 1, servers)
        workers += sql.make_servers.fetch_rows(first=first, last=last, capacity=capacity, **shared)
        report_progress("servers", last)
    ids = {"workers": [row.id for row in workers], "working": [row.id for row in workers if row.works]}
    for first in range(1, jobs + 1, JOBS_A_BATCH):
        last = min(first + JOBS_A_BATCH - 1, jobs)
        sql.make_jobs.fetch_rows(first=first, last=last, jobs=jobs, owner=token.pk, **ids)
        # References are checked now, while the referenced rows are in memory. At the end they would be read from disk
        # again.
        connection.check_constraints()
        report_progress("jobs", last)


def list_first_state_guards() -> list[str]:
    """Return the database triggers that let a row begin only in its first state."""
    models: list[Any] = [Server, WorkerJob, Attempt]
    guards = [(trigger, model) for model in models for trigger in model._meta.triggers]
    return [trigger.get_pgid(model) for trigger, model in guards if trigger.name == "legal_beginning"]


def vacuum_tables() -> None:
    """Vacuum and analyze the tables, so that queries are planned for the new rows. Not allowed in a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(f"vacuum (analyze) {TABLES}")
