"""A worker is heard, and with it the attempts that it holds."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any
from uuid import UUID

import orjson
from django.db import DatabaseError, InterfaceError, OperationalError

from controlplane.core.database import transaction
from controlplane.core.prepared import fetch_prepared_rows
from controlplane.core.transactions import record_left_out, retry_from_start, run_in_halves
from jobs.conf import conf
from jobs.errors import TooManyAttempts
from jobs.models import TakenAttempt
from jobs.services import propagation
from jobs.services.recovery import log_ended_attempts
from jobs.sql import sql
from jobs.sql.rows.heartbeats import HeardWorker, PlainlyHeardServer
from liveness.models import Server
from liveness.services import heartbeats
from liveness.services.heartbeats import ServerHeartbeat
from liveness.services.results import ACCEPTED, UNAVAILABLE, results
from liveness.services.tokens import ServerToken

LISTED_LIMIT = 1000
"""Attempts that any heartbeat may list, whatever its server's slots; one with more than half as many slots may list
twice its slots: what it holds, and as many again whose last report is not answered yet."""


@dataclass(frozen=True)
class HeldAttempts:
    """The attempts a worker says it holds: claimed ones, and running ones with the pid of their process."""

    claimed: list[UUID] = field(default_factory=list)
    running: dict[UUID, int | None] = field(default_factory=dict)
    stopped: list[UUID] | None = None
    """Attempts that it was told it lost, and of which nothing runs there any more. None: it says nothing of that."""
    is_complete: bool = False
    """It lists all that it holds. Most heartbeats list nothing, which does not say that they hold nothing."""


@dataclass(frozen=True)
class PlainHeartbeat:
    """A heartbeat that says nothing new: where the server is already, and how it is."""

    token: ServerToken
    state: str | None = None
    metrics: dict[str, Any] | None = None


def record_plain_heartbeats(beats: list[PlainHeartbeat]) -> list[PlainlyHeardServer | None]:
    """Hear many servers in one statement: the row of each, or None for one that is to be heard by itself."""
    try:
        with results.take_due_counts() as counts:
            rows = fetch_prepared_rows(
                sql.record_plain_heartbeats,
                servers=[beat.token.server for beat in beats],
                versions=[beat.token.version for beat in beats],
                states=[beat.state for beat in beats],
                metrics=[None if beat.metrics is None else orjson.dumps(beat.metrics).decode() for beat in beats],
                **counts,
            )
    except (OperationalError, InterfaceError):
        results.count(UNAVAILABLE, len(beats))
        raise
    rows_by_token = {(row.id, row.token_version): row for row in rows}
    recorded = [rows_by_token.get((beat.token.server, beat.token.version)) for beat in beats]
    # Of one server two may be said at once, the one that it RUNS, the other that it ends.
    answers = [
        row if row and beat.state in (None, row.state) else None for row, beat in zip(recorded, beats, strict=True)
    ]
    results.count(ACCEPTED, len(answers) - answers.count(None))
    return answers


def refuse_too_many(token: ServerToken, held: HeldAttempts) -> None:
    """Raises TooManyAttempts. Only who lists so many has a look taken at his slots, in a round trip of its own."""
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
    token: ServerToken, beat: ServerHeartbeat, held: HeldAttempts, holders: list[UUID] | None = None
) -> Any:
    """Hear a worker: its row, with the attempts to `cancel` and those it `lost`. One round trip unless it changes its
    state. Raises TooManyAttempts, and what liveness.services.heartbeats.record_heartbeat() does.

    `holders` are the instances that hold messages of its broker (None: it has none): those of them that are
    `forsaken`, for they are lost, and those `unknown`; and the tasks to `send` out of the broker's quarantine.
    """
    refuse_too_many(token, held)
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
    held: HeldAttempts,
    holders: list[UUID] | None = None,
    *,
    is_part: bool = False,
) -> Any | None:
    """The beat of a worker and of what it holds: its row as it is now, or None when it may not beat.

    As a part of a transaction, that goes on without what cannot be written.
    """
    listed = list(dict.fromkeys([*held.claimed, *held.running]))

    def record_attempts(attempts: Sequence[UUID]) -> list[Any]:
        running = [attempt for attempt in attempts if attempt in held.running]
        with results.take_due_counts() as counts, transaction.atomic() if is_part else nullcontext():
            return fetch_prepared_rows(
                sql.record_worker_heartbeat,
                server=token.server,
                version=token.version,
                claimed=[attempt for attempt in attempts if attempt not in held.running],
                running=running,
                pids=[held.running[attempt] for attempt in running],
                listed=listed,
                stopped=held.stopped,
                holders=holders,
                **beat.statement_parameters(),
                **counts,
            )

    def leave_out_attempt(attempt: UUID, error: DatabaseError) -> list[HeardWorker]:
        record_left_out("heartbeats of attempts", attempt, error)
        return record_attempts([])

    rows = run_in_halves(record_attempts, listed, leave_out_attempt)
    return rows[-1]._replace(lost=list({attempt for row in rows for attempt in row.lost})) if rows else None


def end_forgotten_attempts(server: UUID, held: HeldAttempts) -> None:
    """What a reactivated worker does not list it has forgotten: that is lost. The rest was not given away meanwhile."""
    ended = sql.end_forgotten_attempts.after(sql.lock_roots_of_held_steps).fetch_rows(
        server=server,
        listed=[*held.claimed, *held.running],
        max_resubmissions=conf().max_resubmissions,
    )
    # It said itself that it does not run them.
    TakenAttempt.objects.filter(server_id=server).exclude(attempt_id__in=held.running).delete()
    log_ended_attempts(ended)
    propagation.propagate_counted_ends(ended)
