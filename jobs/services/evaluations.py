"""The evaluation of triggers: a job for each slot, and what its answer starts.

Slots are moments of wall time. A slot is evaluated once, however many schedulers there are: it is unique, and of one
trigger one evaluation is in flight. Slots that pass meanwhile, or while nothing was running, are missed: they are
listed as soon as somebody looks, and the last of them may be evaluated all the same.

An evaluation ends: its tries have a timeout, and one that no worker took up by then gives way to the next slot.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import structlog
from cronsim import CronSim
from rest_framework.exceptions import ParseError

from controlplane.agent.secret_values import is_secret
from controlplane.core.database import transaction
from controlplane.core.json_bodies import refuse_unstorable
from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic, retry_from_start
from jobs import states
from jobs.models import Trigger, TriggerSlot, WorkerJob
from jobs.services import executions, submission
from jobs.services.executions import ExecutionPlan
from jobs.sql import sql
from jobs.states import JobKind, JobState, Missed, SlotOutcome

log = structlog.get_logger()

MISSED_AFTER = 60
"""Seconds after which a slot that nobody evaluated is missed."""
LISTED_SLOTS = 1000
"""Missed slots that are listed of one outage; of longer ones the last."""
BATCH = 100
RETRY_DELAY = 5
"""Seconds between two tries of an evaluation."""
REASON_LENGTH = 500


@retry_from_start
def evaluate_due_triggers() -> int:
    """Have every trigger evaluated whose slot has come; how many. One that cannot be delays no other."""
    count = 0
    seen: list[UUID] = []
    while True:
        with transaction.atomic():
            # Held until its next slot is written: another scheduler skips it meanwhile.
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
    """Evaluate the last slot that has come; none while an evaluation is in flight, or where the trigger skips what is
    missed. The others are listed. Whether one is evaluated."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    passed: deque[datetime] = deque([trigger.next_slot_at], maxlen=LISTED_SLOTS + 1)
    upcoming = None
    for slot in schedule_slots(trigger, earliest_listed_slot(trigger, now)):
        if slot > now:
            upcoming = slot
            break
        passed.append(slot)
    last = passed[-1]
    # It stays due while an evaluation is in flight: afterwards it is the one to be evaluated, unless it is too late.
    trigger.next_slot_at = last if in_flight else upcoming
    trigger.save(update_fields=["next_slot_at"])
    is_missed = (now - last).total_seconds() > MISSED_AFTER
    is_evaluated = not in_flight and not (is_missed and trigger.missed == Missed.SKIP)
    if is_evaluated:
        passed.pop()
    record_missed_slots(trigger, passed, "an evaluation was in flight" if in_flight else "")
    # After a step of the clock backwards, a trigger that is changed comes to slots that it had before.
    if not is_evaluated or trigger.slots.filter(slot=last).exclude(outcome=SlotOutcome.MISSED).exists():
        return False
    begin_evaluation(trigger, last, now, note="late: slots were missed" if is_missed or passed else "")
    return True


def record_missed_slots(trigger: Trigger, passed: Iterable[datetime], note: str) -> None:
    """List slots that nobody evaluated; those that are listed already stay as they are."""
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
    """After which the slots that have passed are looked for: of a short interval only the last are listed."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    if trigger.interval_seconds is None:
        return trigger.next_slot_at
    return max(trigger.next_slot_at, now - timedelta(seconds=trigger.interval_seconds * (LISTED_SLOTS + 1)))


def is_in_flight(trigger: Trigger) -> bool:
    return trigger.slots.filter(outcome=SlotOutcome.EVALUATING).exists()


def begin_evaluation(
    trigger: Trigger, slot: datetime, now: datetime, by: str = "", note: str = "", key: str | None = None
) -> TriggerSlot:
    """The job that evaluates a slot. While it waits it gives way to the next slot, once its tries could be over."""
    payload = trigger.payload
    if not isinstance(payload, dict) or is_secret(payload):
        payload = {"payload": payload}
    tries = 1 + trigger.max_retries
    over_at = now + timedelta(seconds=tries * (trigger.timeout_seconds + RETRY_DELAY))
    job = {
        "action": trigger.action,
        "payload": {**payload, "trigger": trigger.name, "slot": slot.isoformat()},
        "tags": trigger.tags,
        "priority": trigger.priority,
        "timeout_seconds": trigger.timeout_seconds,
        "max_retries": trigger.max_retries,
        "retry_delay_seconds": RETRY_DELAY,
        "good_until": max(over_at, trigger.next_slot_at or over_at),
    }
    [job_of_slot] = submission.submit_jobs(None, [job], JobKind.TRIGGER, namespace=trigger.namespace)
    fields = {"job_id": job_of_slot.id, "outcome": SlotOutcome.EVALUATING, "by": by, "note": note, "key": key}
    return TriggerSlot.objects.update_or_create(trigger=trigger, slot=slot, defaults=fields)[0]


@retried_atomic
def follow_up_evaluations(jobs: list[UUID]) -> None:
    """Of evaluations that have ended, start the executions that they ask for.

    One that cannot be started fails its slot, not the call that says so: what a worker reports has happened.
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
            log.exception("What an evaluation asked for could not be done", trigger=slot.trigger.name)
            why = f"{type(error).__name__}: {error}".replace("\0", "")[:REASON_LENGTH]
            outcome = SlotOutcome.FAILED, f"its execution could not begin: {why}", None
        slot.outcome, slot.note, slot.execution_id = outcome
        slot.save(update_fields=["outcome", "note", "execution_id"])
        log.info("Trigger evaluated", trigger=slot.trigger.name, slot=str(slot.slot), state=str(slot.outcome))
    WorkerJob.objects.filter(pk__in=job_ids).update(passed_on=True)


def conclude_evaluation(slot: TriggerSlot, job: Any) -> tuple[SlotOutcome, str, UUID | None]:
    """What comes of an evaluation: the outcome, a note and the execution."""
    template = slot.trigger.execution
    if job.state != JobState.COMPLETED:
        return SlotOutcome.FAILED, f"its job ended {job.state}{describe_error(job.error)}", None
    if not is_valid_answer(answer := read_answer(job.output)):
        return SlotOutcome.FAILED, 'its output is not like {"fire": true, "inputs": {}}', None
    if not answer["fire"]:
        return SlotOutcome.NOT_FIRED, slot.note, None
    inputs = answer.get("inputs", template.get("inputs", {}))
    if (size := executions.count_payload_bytes(template, inputs)) > executions.PAYLOAD_BYTES_LIMIT:
        return SlotOutcome.FAILED, f"its inputs, handed to every step, are {size} bytes", None
    plan = ExecutionPlan(template, None, inputs, slot.trigger.namespace, trigger=slot.trigger_id)
    [execution] = executions.begin_executions([plan])
    return SlotOutcome.FIRED, slot.note, execution


def describe_error(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return f": {message}"[:REASON_LENGTH] if message else ""


def read_answer(output: object) -> Any:
    """What an evaluation answers: its output, or of a script the JSON that it prints."""
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        with suppress(orjson.JSONDecodeError, ParseError):
            printed = orjson.loads(output["stdout"])
            refuse_unstorable(printed)
            return printed
    return output


def is_valid_answer(output: object) -> bool:
    return (
        isinstance(output, dict) and isinstance(output.get("fire"), bool) and isinstance(output.get("inputs", {}), dict)
    )


def upcoming_slots(trigger: Trigger, now: datetime, count: int) -> list[datetime]:
    """The next slots; of a trigger that is paused, those that would come if it were not."""
    if not trigger.enabled or trigger.next_slot_at is None:
        return list(islice(schedule_slots(trigger, now), count))
    return list(islice(chain([trigger.next_slot_at], schedule_slots(trigger, trigger.next_slot_at)), count))


def schedule_slots(trigger: Trigger, after: datetime) -> Iterator[datetime]:
    """The slots after a moment, in order, in UTC. cron's are of the trigger's time zone, and days on which clocks
    change are as Debian's cron has them; those of an interval are counted from the trigger's creation."""
    if trigger.cron is not None:
        # In UTC: in one zone Python compares the clock's hands alone, and takes both 2:30 of one night for the same.
        for slot in CronSim(trigger.cron, after.astimezone(ZoneInfo(trigger.timezone))):
            moment = slot.astimezone(UTC)
            if moment > after:  # in the hour that comes again, a slot of the day was in the first
                yield moment
        return
    assert trigger.interval_seconds is not None  # noqa: S101 - a constraint of the table
    step = timedelta(seconds=trigger.interval_seconds)
    count = (after - trigger.created_at) // step
    while True:
        count += 1
        yield trigger.created_at + count * step
