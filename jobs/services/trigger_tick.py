"""The tick of triggers: everything about them that happens by itself, every TRIGGERS_INTERVAL.

Each part finds its rows by state, so a crash between two parts loses nothing.
"""

from jobs.services import evaluations, slot_queue
from jobs.sql import sql


def run_tick() -> int:
    """Start the slots that are due or queued. Return how many started."""
    sql.settle_slots.fetch_rows()
    started = evaluations.evaluate_due_triggers()
    slot_queue.cancel_replaced_executions()
    return started + slot_queue.start_all_queued_slots()
