"""Heartbeats of workers, and of the attempts that they hold."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError, Error

from controlplane.core.database import transaction
from controlplane.core.database.errors import classify
from controlplane.core.json_bodies import write_json
from controlplane.core.transactions import record_left_out, retry_from_start, run_in_halves
from jobs.conf import conf
from jobs.errors import TooManyAttempts
from jobs.models import TakenAttempt
from jobs.services import execution_starts, limits, propagation, taken_attempts
from jobs.services.recovery import log_ended_attempts
from jobs.sql import sql
from jobs.sql.rows.heartbeats import RecordedHeartbeat, RecordedPlainHeartbeat
from liveness.models import Server
from liveness.services import heartbeats
from liveness.services.heartbeats import ServerHeartbeat
from liveness.services.results import ACCEPTED, UNAVAILABLE, results
from liveness.services.tokens import ServerToken

log = structlog.get_logger()

LISTED_LIMIT = 1000
"""Attempts that each heartbeat may list, whatever the slots of its server. A server with more than half as many slots
may list twice its slots: the attempts it holds, and as many whose last report has no response yet."""


@dataclass(frozen=True)
class ListedAttempts:
    """Attempts that a worker lists: claimed ones, and running ones with the process id of their code."""

    claimed: list[UUID] = field(default_factory=list)
    running: dict[UUID, int | None] = field(default_factory=dict)
    stopped: list[UUID] | None = None
    """Attempts that were taken from the worker and whose code has stopped. None: the worker does not list them."""
    is_complete: bool = False
    """True if all held attempts are listed. Most heartbeats list none, which does not mean that none is held."""
    lists_running: bool = False
    """True if all running attempts are listed, even if there are none."""


@dataclass(frozen=True)
class PlainHeartbeat:
    """Heartbeat without news: the server is in the same state and lists no attempts."""

    token: ServerToken
    state: str | None = None
    metrics: dict[str, Any] | None = None


def record_plain_heartbeats(beats: list[PlainHeartbeat]) -> list[RecordedPlainHeartbeat | None]:
    """Record the heartbeats of many servers in one statement.

    Returns the row of each, or None if the heartbeat must be recorded with `record_worker_heartbeat()`.
    """
    try:
        with results.take_due_counts() as counts:
            rows = sql.record_plain_heartbeats.fetch_rows(
                servers=[beat.token.server for beat in beats],
                versions=[beat.token.version for beat in beats],
                states=[beat.state for beat in beats],
                metrics=[None if beat.metrics is None else write_json(beat.metrics).decode() for beat in beats],
                **counts,
            )
    except Error as error:
        if classify(error):
            results.count(UNAVAILABLE, len(beats))
        raise
    rows_by_token = {(row.id, row.token_version): row for row in rows}
    recorded = [rows_by_token.get((beat.token.server, beat.token.version)) for beat in beats]
    # Two heartbeats of one server may be in one batch, for example RUNNING and TERMINATING: only one of them fits.
    answers = [
        row if row and beat.state in (None, row.state) else None for row, beat in zip(recorded, beats, strict=True)
    ]
    results.count(ACCEPTED, len(answers) - answers.count(None))
    return answers


def refuse_too_many(token: ServerToken, held: ListedAttempts) -> None:
    """Raise TooManyAttempts if a heartbeat lists too many attempts. The slots are read only for a long list."""
    lists = {"claimed and running": len(held.claimed) + len(held.running), "stopped": len(held.stopped or [])}
    name, listed = max(lists.items(), key=itemgetter(1))
    if listed <= LISTED_LIMIT:
        return
    slots = Server.objects.filter(pk=token.server).values_list("max_concurrent", flat=True).first()
    if slots is not None and listed > (limit := max(LISTED_LIMIT, 2 * slots)):
        raise TooManyAttempts(
            f"{listed} attempts are listed as {name}; a server with {slots} slots lists at most {limit}."
        )


@retry_from_start
def record_worker_heartbeat(
    token: ServerToken, beat: ServerHeartbeat, held: ListedAttempts, holders: list[UUID] | None = None
) -> Any:
    """Record the heartbeat of a worker and return its row, with the attempts to `cancel` and those it `lost`.

    One round trip unless the state changes. `holders` are the instances that hold messages of its broker (None: the
    worker has no broker). For these the row lists `forsaken` ones, which are lost, and `unknown` ones; and it has the
    tasks to `send` out of the broker's quarantine. Raises TooManyAttempts and the errors of
    liveness.services.heartbeats.record_heartbeat().
    """
    refuse_too_many(token, held)
    row = record_beat_of_worker(token, beat, held, holders)
    if held.stopped:
        pass_on_stops(held.stopped)
        limits.settle_soon()
    return row


def pass_on_stops(stopped: list[UUID]) -> None:
    """Advance executions that waited for these attempts to stop. If this fails, the next liveness check does it."""
    try:
        taken_attempts.pass_on_freed_ends(stopped)
        execution_starts.free_kept_slots()
    except DatabaseError:
        log.exception("Executions that waited for stopped attempts are not advanced yet")


def record_beat_of_worker(
    token: ServerToken, beat: ServerHeartbeat, held: ListedAttempts, holders: list[UUID] | None
) -> Any:
    with results.count_answer():
        row = record_with_attempts(token, beat, held, holders)
        if heartbeats.says_nothing_new(beat, row):
            return row
        with transaction.atomic():
            reported = heartbeats.apply_reported_state(token, beat)
            if reported.is_reactivated and held.is_complete:
                end_forgotten_attempts(token.server, held)
            if row is None:
                row = record_with_attempts(token, beat, held, holders, is_part=True)
            return heartbeats.complete_changed_row(token, row, reported)


def record_with_attempts(
    token: ServerToken,
    beat: ServerHeartbeat,
    held: ListedAttempts,
    holders: list[UUID] | None = None,
    *,
    is_part: bool = False,
) -> Any | None:
    """Record the heartbeat and the attempts; return the row as it is now, or None if the server may not send any.

    With `is_part` the caller's transaction continues without rows that cannot be written.
    """
    listed = list(dict.fromkeys([*held.claimed, *held.running]))

    def record_attempts(attempts: Sequence[UUID]) -> list[Any]:
        running = [attempt for attempt in attempts if attempt in held.running]
        with results.take_due_counts() as counts, transaction.atomic() if is_part else nullcontext():
            return sql.record_worker_heartbeat.fetch_rows(
                server=token.server,
                version=token.version,
                claimed=[attempt for attempt in attempts if attempt not in held.running],
                running=running,
                pids=[held.running[attempt] for attempt in running],
                listed=listed,
                lists_all=held.lists_running and len(attempts) == len(listed),
                stopped=held.stopped,
                holders=holders,
                **beat.statement_parameters(),
                **counts,
            )

    def leave_out_attempt(attempt: UUID, error: DatabaseError) -> list[RecordedHeartbeat]:
        record_left_out("heartbeats of attempts", attempt, error)
        return record_attempts([])

    rows = run_in_halves(record_attempts, listed, leave_out_attempt)
    return rows[-1]._replace(lost=list({attempt for row in rows for attempt in row.lost})) if rows else None


def end_forgotten_attempts(server: UUID, held: ListedAttempts) -> None:
    """End the attempts that a reactivated worker no longer lists, because it does not know them any more."""
    ended = sql.end_forgotten_attempts.after(sql.lock_roots_of_held_steps).fetch_rows(
        server=server,
        listed=[*held.claimed, *held.running],
        max_resubmissions=conf().max_resubmissions,
    )
    # The worker itself reports that it does not run them.
    TakenAttempt.objects.filter(server_id=server).exclude(attempt_id__in=held.running).delete()
    log_ended_attempts(ended)
    propagation.propagate_counted_ends(ended)
