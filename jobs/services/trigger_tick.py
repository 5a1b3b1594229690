"""The tick of triggers: everything about them that happens by itself, every TRIGGERS_INTERVAL.

Each part finds its rows by state, so a crash between two parts loses nothing.
"""

from collections.abc import Callable
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.database.errors import describe
from controlplane.core.transactions import retried_atomic
from jobs.services import backfills, evaluations, slot_queue
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Mover, Subject

log = structlog.get_logger()

SIGNALS_BATCH = 1000


def run_tick() -> int:
    """Start the slots that are due or queued. Return how many started.

    All parts run, even if one of them fails. Then the first error is raised.
    """
    parts: list[Callable[[], int | None]] = [
        settle_slots, evaluations.evaluate_due_triggers, queue_signals, slot_queue.cancel_replaced_executions,
        slot_queue.start_all_queued_slots, backfills.continue_backfills,
    ]  # fmt: skip
    started, errors = 0, []
    for part in parts:
        try:
            started += part() or 0
        except DatabaseError as error:
            log.warning("A part of the tick of triggers failed", part=part.__name__, why=describe(error))
            errors.append(error)
    if errors:
        raise errors[0]
    return started


def queue_signals() -> None:
    """Queue a slot of each trigger for each new signal that it is on."""
    while len(queue_batch_of_signals()) == SIGNALS_BATCH:
        pass


@retried_atomic
def queue_batch_of_signals() -> set[UUID]:
    rows = sql.queue_signals.fetch_rows(batch=SIGNALS_BATCH)
    for row in rows:
        if row.is_refused:
            log.warning("A trigger on a signal was refused: it started before in the same chain", signal=row.name)
    return {row.id for row in rows}


@retried_atomic
def settle_slots() -> None:
    """Note which executions of triggers have ended, and pause triggers with too many failures in a row."""
    for row in sql.settle_slots.fetch_rows():
        note = f"{row.failures} execution{'s' if row.failures > 1 else ''} in a row FAILED"
        record_action("pause_after_failures", Mover.LIVENESS, note, ActionSubject(Subject.TRIGGER, row.id, row.name))
