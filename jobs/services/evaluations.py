"""Evaluate triggers: run one job for each slot. Its output may start an execution.

Slots are moments of wall-clock time. Each slot is evaluated once, however many schedulers run: slots are unique, and a
trigger has one evaluation in flight. Slots that pass during an evaluation, or while no scheduler runs, are missed. They
are listed when a scheduler next looks, and the last one may still be evaluated.

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

from controlplane.agent.secrets.values import is_secret
from controlplane.core.bounds import moment_after
from controlplane.core.database import transaction
from controlplane.core.json_bodies import read_foreign_json
from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic, retry_from_start
from jobs import states
from jobs.errors import TriggerUnusable
from jobs.models import Trigger, TriggerSlot, WorkerJob
from jobs.schedules import schedule_slots
from jobs.services import execution_rows, executions, submission
from jobs.services.execution_rows import ExecutionPlan
from jobs.sql import sql
from jobs.states import JobKind, JobState, Missed, SlotOutcome

log = structlog.get_logger()

MISSED_AFTER = 60
"""Seconds after which a slot that was not evaluated is missed."""
LISTED_SLOTS = 1000
"""Largest number of missed slots that are listed for one outage. Of a longer outage, only the last slots are listed."""
BATCH = 100
RETRY_DELAY = 5
"""Seconds between two tries of an evaluation."""
REASON_LENGTH = 500


@retry_from_start
def evaluate_due_triggers() -> int:
    """Evaluate every trigger whose slot is due. Return how many. A trigger that fails does not delay the others."""
    count = 0
    seen: list[UUID] = []
    while True:
        with transaction.atomic():
            # Locked until the next slot is written, so that other schedulers skip these triggers.
            due = sql.find_due_triggers.fetch_rows(batch=BATCH, seen=seen)
            triggers = Trigger.objects.in_bulk([row.id for row in due])
            for row in due:
                try:
                    with transaction.atomic():
                        count += evaluate_slots(triggers[row.id], row.now, in_flight=row.in_flight)
                except Exception as error:
                    if is_transient_error(error):
                        raise
                    log.exception("A trigger could not be evaluated", trigger=triggers[row.id].name)
                    record_left_out("triggers evaluated", row.id, error)
                seen.append(row.id)
        if len(due) < BATCH:
            return count


def evaluate_slots(trigger: Trigger, now: datetime, *, in_flight: bool) -> bool:
    """Evaluate the last due slot of a trigger and list the others as missed. Return True if a slot is evaluated.

    No slot is evaluated while an evaluation is in flight, or if the last slot is missed and the trigger skips these.
    """
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    passed: deque[datetime] = deque([trigger.next_slot_at], maxlen=LISTED_SLOTS + 1)
    upcoming = None
    for slot in schedule_slots(trigger, earliest_listed_slot(trigger, now)):
        if slot > now:
            upcoming = slot
            break
        passed.append(slot)
    last = passed[-1]
    # While an evaluation is in flight the last slot stays due. It is evaluated afterwards, unless it is too late.
    trigger.next_slot_at = last if in_flight else upcoming
    trigger.save(update_fields=["next_slot_at"])
    is_missed = (now - last).total_seconds() > MISSED_AFTER
    is_evaluated = not in_flight and not (is_missed and trigger.missed == Missed.SKIP)
    if is_evaluated:
        passed.pop()
    record_missed_slots(trigger, passed, "an evaluation was in flight" if in_flight else "")
    # If the clock was set back and the trigger was changed, a slot may come that was already evaluated.
    if not is_evaluated or trigger.slots.filter(slot=last).exclude(outcome=SlotOutcome.MISSED).exists():
        return False
    begin_evaluation(trigger, last, now, note="late: slots were missed" if is_missed or passed else "")
    return True


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
    return trigger.slots.filter(outcome=SlotOutcome.EVALUATING).exists()


def begin_evaluation(
    trigger: Trigger, slot: datetime, now: datetime, by: str = "", note: str = "", key: str | None = None
) -> TriggerSlot:
    """Submit the job that evaluates a slot. It expires at the next slot, once all its tries could be over."""
    payload = trigger.payload
    if not isinstance(payload, dict) or is_secret(payload):
        payload = {"payload": payload}
    tries = 1 + trigger.max_retries
    over_at = moment_after(now, tries * (trigger.timeout_seconds + RETRY_DELAY))
    job = {
        "action": trigger.action,
        "payload": {**payload, "trigger": trigger.name, "slot": slot.isoformat()},
        "tags": trigger.tags,
        "priority": trigger.priority,
        "worker_slots": trigger.worker_slots,
        "timeout_seconds": trigger.timeout_seconds,
        "max_retries": trigger.max_retries,
        "retry_delay_seconds": RETRY_DELAY,
        "good_until": max(over_at, trigger.next_slot_at or over_at),
    }
    try:
        [job_of_slot] = submission.submit_jobs(None, [job], JobKind.TRIGGER, namespace=trigger.namespace)
    except (LookupError, TypeError, AttributeError) as error:  # another release or a person may have stored it
        raise TriggerUnusable(f"The action of the trigger is not valid ({error!r}): change it.") from error
    fields = {"job_id": job_of_slot.id, "outcome": SlotOutcome.EVALUATING, "by": by, "note": note, "key": key}
    return TriggerSlot.objects.update_or_create(trigger=trigger, slot=slot, defaults=fields)[0]


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
        try:
            with transaction.atomic():
                outcome = conclude_evaluation(slot, slot.job)
        except Exception as error:
            if is_transient_error(error):
                raise
            log.exception("The answer of an evaluation could not be applied", trigger=slot.trigger.name)
            why = f"{type(error).__name__}: {error}".replace("\0", "")[:REASON_LENGTH]
            outcome = SlotOutcome.FAILED, f"its execution could not begin: {why}", None
        slot.outcome, slot.note, slot.execution_id = outcome
        slot.save(update_fields=["outcome", "note", "execution_id"])
        log.info("Trigger evaluated", trigger=slot.trigger.name, slot=str(slot.slot), state=str(slot.outcome))
    WorkerJob.objects.filter(pk__in=job_ids).update(passed_on=True)


def conclude_evaluation(slot: TriggerSlot, job: Any) -> tuple[SlotOutcome, str, UUID | None]:
    """Return the outcome of an evaluation, a note, and the id of the execution that it started."""
    template = slot.trigger.execution
    if job.state != JobState.COMPLETED:
        return SlotOutcome.FAILED, f"its job ended {job.state}{describe_error(job.error)}", None
    if not is_valid_answer(answer := read_answer(job.output)):
        return SlotOutcome.FAILED, 'its output is not like {"fire": true, "inputs": {}}', None
    if not answer["fire"]:
        return SlotOutcome.NOT_FIRED, slot.note, None
    inputs = answer.get("inputs", template.get("inputs", {}))
    if (size := execution_rows.count_payload_bytes(template, inputs)) > execution_rows.PAYLOAD_BYTES_LIMIT:
        return SlotOutcome.FAILED, f"its inputs, which every step gets, have {size} bytes", None
    plan = ExecutionPlan(template, None, inputs, slot.trigger.namespace, trigger=slot.trigger_id)
    [execution] = executions.begin_executions([plan])
    return SlotOutcome.FIRED, slot.note, execution


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
