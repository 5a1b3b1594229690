"""The tick of triggers: everything about them that happens by itself, every TRIGGERS_INTERVAL.

Each part finds its rows by state, so a crash between two parts loses nothing.
"""

from controlplane.core.transactions import retried_atomic
from jobs.services import evaluations, slot_queue
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Mover, Subject


def run_tick() -> int:
    """Start the slots that are due or queued. Return how many started."""
    settle_slots()
    started = evaluations.evaluate_due_triggers()
    slot_queue.cancel_replaced_executions()
    return started + slot_queue.start_all_queued_slots()


@retried_atomic
def settle_slots() -> None:
    """Note which executions of triggers have ended, and pause triggers with too many failures in a row."""
    for row in sql.settle_slots.fetch_rows():
        note = f"{row.failures} execution{'s' if row.failures > 1 else ''} in a row FAILED"
        record_action("pause_after_failures", Mover.LIVENESS, note, ActionSubject(Subject.TRIGGER, row.id, row.name))
