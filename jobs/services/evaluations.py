"""Evaluate triggers: run one job for each slot, whose output may start an execution, or start the execution at once.

Slots are moments of wall-clock time. Each slot starts once, however many schedulers run: slots are unique, and a
trigger has one evaluation in flight. Slots that pass during an evaluation, or while no scheduler runs, are missed. They
are listed when a scheduler next looks, and the last one or the last 100 may still start.

Every evaluation ends: its tries have a timeout, and if no worker has taken it by then, the next slot replaces it.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import structlog
from rest_framework.exceptions import ParseError

from controlplane.core.bounds import moment_after
from controlplane.core.json_bodies import read_foreign_json
from controlplane.core.transactions import retried_atomic
from jobs import states
from jobs.choices import Missed, Overlap
from jobs.models import Trigger, TriggerSlot, WorkerJob
from jobs.schedules import schedule_slots, start_delay
from jobs.services.slot_queue import LEFT_OUT, begin_slots, for_each_trigger
from jobs.services.slot_starts import CHANGED_FIELDS, REASON_LENGTH, start_execution
from jobs.sql import sql
from jobs.sql.rows.triggers import DueTrigger
from jobs.states import JobState, SlotOutcome

log = structlog.get_logger()

MISSED_AFTER = 60
"""Seconds after which a slot that was not evaluated is missed."""
LISTED_SLOTS = 1000
"""Largest number of missed slots that are listed for one outage. Of a longer outage, only the last slots are listed."""
FIRED_SLOTS = 100
"""Largest number of slots of one trigger that start late with `fire_all`."""
BATCH = 100


def evaluate_due_triggers() -> int:
    """Start the due slots of every trigger. Return how many started. A trigger that fails does not delay the others."""
    return for_each_trigger(sql.find_due_triggers, evaluate_due_trigger, BATCH)


def evaluate_due_trigger(trigger: Trigger, row: DueTrigger) -> int:
    return evaluate_slots(trigger, row.now, in_flight=row.in_flight, delay=start_delay(trigger))


def evaluate_slots(trigger: Trigger, now: datetime, *, in_flight: bool, delay: float = 0) -> int:
    """Start the due slots of a trigger by its `missed`, and list the others as missed. Return how many started.

    Slots are due `delay` seconds after their time.
    """
    due_until = moment_after(now, -delay)
    passed, upcoming = list_passed_slots(trigger, due_until)
    last = passed[-1]
    # While an evaluation is in flight the last slot stays due. It is evaluated afterwards, unless it is too late.
    waits = in_flight and trigger.missed != Missed.FIRE_ALL and trigger.overlap == Overlap.ALLOW
    trigger.next_slot_at = last if waits else upcoming
    trigger.save(update_fields=["next_slot_at"])
    is_late = (due_until - last).total_seconds() > MISSED_AFTER
    if trigger.missed == Missed.FIRE_ALL:
        chosen = passed[max(0, len(passed) + count_queued_slots(trigger) - FIRED_SLOTS) :]
    else:
        chosen = [] if waits or (is_late and trigger.missed == Missed.SKIP) else [last]
    missed = passed[: len(passed) - len(chosen)]
    record_missed_slots(trigger, missed, "an evaluation was in flight" if waits else "")
    note = "late: slots were missed" if is_late or missed else ""
    return begin_slots(trigger, chosen, now, note=note) if chosen else 0


def list_passed_slots(trigger: Trigger, until: datetime) -> tuple[list[datetime], datetime | None]:
    """Return the slots of a trigger that are due, at most the last LISTED_SLOTS + 1, and the next one after `until`."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    passed: deque[datetime] = deque([trigger.next_slot_at], maxlen=LISTED_SLOTS + 1)
    for slot in schedule_slots(trigger, earliest_listed_slot(trigger, until)):
        if slot > until:
            return list(passed), slot
        passed.append(slot)
    return list(passed), None


def count_queued_slots(trigger: Trigger) -> int:
    return trigger.slots.filter(outcome=SlotOutcome.QUEUED, backfill=None).count()


def record_missed_slots(trigger: Trigger, passed: Iterable[datetime], note: str) -> None:
    """List slots as missed. Slots that are already listed stay as they are."""
    known = set(trigger.slots.filter(slot__in=passed).values_list("slot", flat=True))
    missed = [
        TriggerSlot(trigger=trigger, slot=slot, outcome=SlotOutcome.MISSED, note=note)
        for slot in passed
        if slot not in known
    ]
    TriggerSlot.objects.bulk_create(missed, ignore_conflicts=True)
    if missed:
        log.warning("Slots missed", trigger=trigger.name, count=len(missed), policy=trigger.missed, note=note)


def earliest_listed_slot(trigger: Trigger, now: datetime) -> datetime:
    """Return the moment after which passed slots are listed. With a short interval, only the last slots are listed."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    if trigger.interval_seconds is None:
        return trigger.next_slot_at
    return max(trigger.next_slot_at, moment_after(now, -trigger.interval_seconds * (LISTED_SLOTS + 1)))


def is_in_flight(trigger: Trigger) -> bool:
    return trigger.slots.filter(outcome=SlotOutcome.EVALUATING, backfill=None).exists()


@retried_atomic
def follow_up_evaluations(jobs: list[UUID]) -> None:
    """Start the executions that ended evaluations ask for.

    If an execution cannot be started, its slot fails, but not the caller, because the worker's report is still valid.
    """
    ended = WorkerJob.objects.filter(pk__in=jobs, state__in=states.TERMINAL, passed_on=False)
    job_ids = [job.pk for job in ended]
    in_flight = TriggerSlot.objects.filter(job__in=job_ids, outcome=SlotOutcome.EVALUATING).select_related(
        "trigger", "job"
    )
    for slot in in_flight.order_by("pk").select_for_update(no_key=True, of=["self"]):
        conclude_evaluation(slot, slot.job)
        slot.save(update_fields=CHANGED_FIELDS)
        log.info("Trigger evaluated", trigger=slot.trigger.name, slot=str(slot.slot), state=str(slot.outcome))
    WorkerJob.objects.filter(pk__in=job_ids).update(passed_on=True)


def conclude_evaluation(slot: TriggerSlot, job: Any) -> None:
    """Set the outcome of an evaluation, and start its execution if the answer fires."""
    if job.state != JobState.COMPLETED:
        slot.outcome, slot.note = SlotOutcome.FAILED, f"its job ended {job.state}{describe_error(job.error)}"
    elif not is_valid_answer(answer := read_answer(job.output)):
        slot.outcome, slot.note = SlotOutcome.FAILED, 'its output is not like {"fire": true, "inputs": {}}'
    elif answer["fire"] and is_replaced(slot):
        slot.outcome, slot.note = SlotOutcome.SKIPPED, LEFT_OUT[Overlap.CANCEL_RUNNING]
    elif answer["fire"]:
        start_execution(slot, answer.get("inputs", slot.trigger.execution.get("inputs", {})))
    else:
        slot.outcome = SlotOutcome.NOT_FIRED


def is_replaced(slot: TriggerSlot) -> bool:
    """Return True if a later slot of the trigger waits for the end of this one (`cancel_running`)."""
    replaces = slot.trigger.overlap == Overlap.CANCEL_RUNNING and slot.backfill_id is None
    return replaces and count_queued_slots(slot.trigger) > 0


def describe_error(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return f": {message}"[:REASON_LENGTH] if message else ""


def read_answer(output: object) -> Any:
    """Return the answer of an evaluation: its output, or for a script the JSON that it prints."""
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        with suppress(orjson.JSONDecodeError, ParseError):
            return read_foreign_json(output["stdout"], keeps_digits=False)
    return output


def is_valid_answer(output: object) -> bool:
    return (
        isinstance(output, dict) and isinstance(output.get("fire"), bool) and isinstance(output.get("inputs", {}), dict)
    )
