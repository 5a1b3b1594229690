"""Triggers: a job for each slot of a schedule; what that job answers starts an execution, or not.

Slots are moments of wall time. A slot is evaluated once, however many schedulers there are: it is unique, and of one
trigger one evaluation is in flight. Slots that pass meanwhile, or while nothing was running, are missed.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import structlog
from cronsim import CronSim
from django.db import IntegrityError, OperationalError, transaction
from rest_framework.exceptions import ParseError

from controlplane.rest import refuse_unstorable
from jobs import states
from jobs.errors import EvaluationInFlight, TriggerChanged, TriggerNameTaken, TriggerUnknown
from jobs.models import Trigger, TriggerSlot, WorkerJob
from jobs.services import executions, submission
from jobs.services.executions import Plan
from jobs.sql import sql
from jobs.states import JobKind, JobState, Missed, SlotOutcome

log = structlog.get_logger()

LATE_AFTER = 60
"""Seconds after which a slot that nobody evaluated is missed."""
LISTED = 1000
"""Missed slots that are listed of one outage; of longer ones the last."""
BATCH = 100


def evaluate_due() -> int:
    """Have every trigger evaluated whose slot has come; how many. One that cannot be delays no other."""
    count = 0
    failed: list[UUID] = []
    while True:
        with transaction.atomic():
            # Held until its next slot is written: another scheduler skips it meanwhile.
            due = sql.rows("trigger_due", batch=BATCH, failed=failed)
            triggers = Trigger.objects.in_bulk([row.id for row in due])
            for row in due:
                try:
                    with transaction.atomic():
                        count += evaluate_slots(triggers[row.id], row.now)
                except OperationalError:
                    raise
                except Exception:
                    log.exception("A trigger could not be evaluated", trigger=triggers[row.id].name)
                    failed.append(row.id)
        if len(due) < BATCH:
            return count


def evaluate_slots(trigger: Trigger, now: datetime) -> bool:
    """Evaluate the last slot that has come, or none where the trigger skips what is missed; whether it was."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    passed: deque[datetime] = deque([trigger.next_slot_at], maxlen=LISTED + 1)
    for slot in slots(trigger, earliest(trigger, now)):
        trigger.next_slot_at = slot
        if slot > now:
            break
        passed.append(slot)
    trigger.save(update_fields=["next_slot_at"])
    last = passed.pop()
    is_late = (now - last).total_seconds() > LATE_AFTER
    if is_late and trigger.missed == Missed.SKIP:
        passed.append(last)
    TriggerSlot.objects.bulk_create(
        [TriggerSlot(trigger=trigger, slot=slot, outcome=SlotOutcome.MISSED) for slot in passed], ignore_conflicts=True
    )
    if passed:
        log.warning("Slots missed", trigger=trigger.name, count=len(passed), policy=trigger.missed)
    # After a step of the clock backwards, a trigger that is changed comes to slots that it had before.
    if last in passed or trigger.slots.filter(slot=last).exists():
        return False
    begin(trigger, last, note="late: slots were missed" if is_late or passed else "")
    return True


def earliest(trigger: Trigger, now: datetime) -> datetime:
    """After which the slots that have passed are looked for: of a short interval only the last are listed."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    if trigger.interval_seconds is None:
        return trigger.next_slot_at
    return max(trigger.next_slot_at, now - timedelta(seconds=trigger.interval_seconds * (LISTED + 1)))


def create(said: dict[str, Any]) -> Trigger:
    """A trigger. Raises TriggerNameTaken."""
    return stored(Trigger(**said))


@transaction.atomic
def change(trigger: UUID, said: dict[str, Any]) -> Trigger:
    """Change what is said of a trigger; slots that have come are those of the schedule as it was.

    Raises TriggerUnknown, TriggerNameTaken and TriggerChanged.
    """
    found = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger).first()
    if found is None:
        raise TriggerUnknown
    for field, value in said.items():
        setattr(found, field, value)
    if (found.cron is None) == (found.interval_seconds is None):
        raise TriggerChanged  # by another call, after what was said was looked at
    return stored(found)


@transaction.atomic
def stored(trigger: Trigger) -> Trigger:
    now = sql.rows("now")[0].now
    trigger.created_at = now if trigger._state.adding else trigger.created_at
    trigger.next_slot_at = next(slots(trigger, now), None) if trigger.enabled else None
    others = Trigger.objects.filter(name=trigger.name).exclude(pk=trigger.pk)
    try:
        with transaction.atomic():
            trigger.save()
    except IntegrityError:
        if not others.exists():
            raise
        raise TriggerNameTaken(f"Another trigger is named {trigger.name!r}.") from None
    return Trigger.objects.get(name=trigger.name)


def delete(trigger: UUID) -> None:
    """A trigger goes with its slots; what it started stays. Raises TriggerUnknown."""
    if not Trigger.objects.filter(pk=trigger).delete()[0]:
        raise TriggerUnknown


def evaluate(trigger: UUID, by: str) -> TriggerSlot:
    """Have a trigger evaluated now, whatever its schedule says. Raises TriggerUnknown and EvaluationInFlight."""
    with transaction.atomic():
        found = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger).first()
        if found is None:
            raise TriggerUnknown
        if found.slots.filter(outcome=SlotOutcome.EVALUATING).exists():
            raise EvaluationInFlight
        return begin(found, sql.rows("now")[0].now, by=by)


def begin(trigger: Trigger, slot: datetime, by: str = "", note: str = "") -> TriggerSlot:
    """The job that evaluates a slot."""
    payload = trigger.payload if isinstance(trigger.payload, dict) else {"payload": trigger.payload}
    asked = {**payload, "trigger": trigger.name, "slot": slot.isoformat()}
    job = {"action": trigger.action, "payload": asked, "tags": trigger.tags}
    [(id, _)] = submission.submit(None, [job], JobKind.TRIGGER)
    return TriggerSlot.objects.create(
        trigger=trigger, slot=slot, job_id=id, outcome=SlotOutcome.EVALUATING, by=by, note=note
    )


@transaction.atomic
def follow_up(jobs: list[UUID]) -> None:
    """Of evaluations that have ended, start the executions that they ask for."""
    ended = WorkerJob.objects.filter(pk__in=jobs, state__in=states.TERMINAL, passed_on=False)
    told = [job.pk for job in ended]
    in_flight = TriggerSlot.objects.filter(job__in=told, outcome=SlotOutcome.EVALUATING).select_related(
        "trigger", "job"
    )
    for slot in in_flight.select_for_update(no_key=True, of=["self"]):
        conclude(slot, slot.job)
    WorkerJob.objects.filter(pk__in=told).update(passed_on=True)


def conclude(slot: TriggerSlot, job: Any) -> None:
    """What comes of an evaluation."""
    template = slot.trigger.execution
    if job.state != JobState.COMPLETED:
        slot.outcome, slot.note = SlotOutcome.FAILED, f"its job ended {job.state}"
    elif not is_answer(answer := said(job.output)):
        slot.outcome, slot.note = SlotOutcome.FAILED, 'its output is not like {"fire": true, "inputs": {}}'
    elif answer["fire"]:
        inputs = answer.get("inputs", template.get("inputs", {}))
        if (size := executions.handed_on(template, inputs)) > executions.HANDED_ON_LIMIT:
            slot.outcome, slot.note = SlotOutcome.FAILED, f"its inputs, handed to every step, are {size} bytes"
        else:
            [slot.execution_id] = executions.begin([Plan(template, None, inputs, trigger=slot.trigger_id)])
            slot.outcome = SlotOutcome.FIRED
    else:
        slot.outcome = SlotOutcome.NOT_FIRED
    slot.save(update_fields=["outcome", "note", "execution_id"])
    log.info("Trigger evaluated", trigger=slot.trigger.name, slot=str(slot.slot), state=str(slot.outcome))


def said(output: Any) -> Any:
    """What an evaluation answers: its output, or of a script the JSON that it prints."""
    if isinstance(output, dict) and isinstance(output.get("stdout"), str):
        with suppress(orjson.JSONDecodeError, ParseError):
            printed = orjson.loads(output["stdout"])
            refuse_unstorable(printed)
            return printed
    return output


def is_answer(output: Any) -> bool:
    return (
        isinstance(output, dict) and isinstance(output.get("fire"), bool) and isinstance(output.get("inputs", {}), dict)
    )


def slots(trigger: Trigger, after: datetime) -> Iterator[datetime]:
    """The slots after a moment, in order. cron's are of the trigger's time zone, and days on which clocks change are
    as Debian's cron has them; those of an interval are counted from the trigger's creation."""
    if trigger.cron is not None:
        yield from CronSim(trigger.cron, after.astimezone(ZoneInfo(trigger.timezone)))
        return
    assert trigger.interval_seconds is not None  # noqa: S101 - a constraint of the table
    step = timedelta(seconds=trigger.interval_seconds)
    count = (after - trigger.created_at) // step
    while True:
        count += 1
        yield trigger.created_at + count * step
