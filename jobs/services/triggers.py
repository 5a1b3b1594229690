"""Triggers: a job for each slot of a schedule; what that job answers starts an execution, or not.

Slots are moments of wall time. A slot is evaluated once, however many schedulers there are: it is unique, and of one
trigger one evaluation is in flight. Slots that pass meanwhile, or while nothing was running, are missed: they are
listed as soon as somebody looks, and the last of them may be evaluated all the same.

An evaluation ends: its tries have a timeout, and one that no worker took up by then gives way to the next slot.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import structlog
from cronsim import CronSim
from django.db import IntegrityError, transaction
from rest_framework.exceptions import ParseError

from controlplane.core.rest import refuse_unstorable
from controlplane.core.transactions import atomic, is_cut_off, named, unringed
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
RETRY_DELAY = 5
"""Seconds between two tries of an evaluation."""
REASON_SHOWN = 500


@unringed
def evaluate_due() -> int:
    """Have every trigger evaluated whose slot has come; how many. One that cannot be delays no other."""
    count = 0
    seen: list[UUID] = []
    while True:
        with transaction.atomic():
            # Held until its next slot is written: another scheduler skips it meanwhile.
            due = sql.rows("find_due_triggers", batch=BATCH, seen=seen)
            triggers = Trigger.objects.in_bulk([row.id for row in due])
            for row in due:
                try:
                    with transaction.atomic():
                        count += evaluate_slots(triggers[row.id], row.now, in_flight=row.in_flight)
                except Exception as error:
                    if is_cut_off(error):
                        raise
                    log.exception("A trigger could not be evaluated", trigger=triggers[row.id].name)
                    named("triggers evaluated", row.id, error)
                seen.append(row.id)
        if len(due) < BATCH:
            return count


def evaluate_slots(trigger: Trigger, now: datetime, *, in_flight: bool) -> bool:
    """Evaluate the last slot that has come; none while an evaluation is in flight, or where the trigger skips what is
    missed. The others are listed. Whether one is evaluated."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    passed: deque[datetime] = deque([trigger.next_slot_at], maxlen=LISTED + 1)
    upcoming = None
    for slot in slots(trigger, earliest(trigger, now)):
        if slot > now:
            upcoming = slot
            break
        passed.append(slot)
    last = passed[-1]
    # It stays due while an evaluation is in flight: afterwards it is the one to be evaluated, unless it is too late.
    trigger.next_slot_at = last if in_flight else upcoming
    trigger.save(update_fields=["next_slot_at"])
    is_late = (now - last).total_seconds() > LATE_AFTER
    is_evaluated = not in_flight and not (is_late and trigger.missed == Missed.SKIP)
    if is_evaluated:
        passed.pop()
    miss(trigger, passed, "an evaluation was in flight" if in_flight else "")
    # After a step of the clock backwards, a trigger that is changed comes to slots that it had before.
    if not is_evaluated or trigger.slots.filter(slot=last).exclude(outcome=SlotOutcome.MISSED).exists():
        return False
    begin(trigger, last, now, note="late: slots were missed" if is_late or passed else "")
    return True


def miss(trigger: Trigger, passed: Iterable[datetime], note: str) -> None:
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


def earliest(trigger: Trigger, now: datetime) -> datetime:
    """After which the slots that have passed are looked for: of a short interval only the last are listed."""
    assert trigger.next_slot_at is not None  # noqa: S101 - only such triggers are due
    if trigger.interval_seconds is None:
        return trigger.next_slot_at
    return max(trigger.next_slot_at, now - timedelta(seconds=trigger.interval_seconds * (LISTED + 1)))


def create(said: dict[str, Any]) -> Trigger:
    """A trigger. Raises TriggerNameTaken."""
    return stored(Trigger(**said))


@atomic
def change(trigger: UUID, said: dict[str, Any]) -> Trigger:
    """Change what is said of a trigger.

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


@atomic
def stored(trigger: Trigger) -> Trigger:
    """Store a trigger, new or changed; slots that have come are evaluated, or missed, as it was before."""
    now = sql.rows("read_clock")[0].now
    before = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger.pk, next_slot_at__lte=now).first()
    if before is not None and before.enabled:
        try:
            with transaction.atomic():
                evaluate_slots(before, now, in_flight=is_in_flight(before))
        except Exception as error:  # what cannot be evaluated can be changed
            if is_cut_off(error):
                raise
            log.exception("A trigger could not be evaluated", trigger=before.name)
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


@unringed
def delete(trigger: UUID) -> None:
    """A trigger goes with its slots; what it started stays. Raises TriggerUnknown."""
    if not Trigger.objects.filter(pk=trigger).delete()[0]:
        raise TriggerUnknown


@unringed
def evaluate(trigger: UUID, by: str, key: str | None = None) -> tuple[TriggerSlot, bool]:
    """Have a trigger evaluated now, whatever its schedule says: the slot, and whether it is new.

    With a key the same call again finds the same slot. Raises TriggerUnknown and EvaluationInFlight.
    """
    with transaction.atomic():
        found = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger).first()
        if found is None:
            raise TriggerUnknown
        if key is not None and (known := found.slots.filter(key=key).first()):
            return known, False
        if is_in_flight(found):
            raise EvaluationInFlight
        now = sql.rows("read_clock")[0].now
        return begin(found, now, now, by=by, key=key), True


def is_in_flight(trigger: Trigger) -> bool:
    return trigger.slots.filter(outcome=SlotOutcome.EVALUATING).exists()


def begin(
    trigger: Trigger, slot: datetime, now: datetime, by: str = "", note: str = "", key: str | None = None
) -> TriggerSlot:
    """The job that evaluates a slot. While it waits it gives way to the next slot, once its tries could be over."""
    payload = trigger.payload if isinstance(trigger.payload, dict) else {"payload": trigger.payload}
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
    [(id, _)] = submission.submit(None, [job], JobKind.TRIGGER)
    said = {"job_id": id, "outcome": SlotOutcome.EVALUATING, "by": by, "note": note, "key": key}
    return TriggerSlot.objects.update_or_create(trigger=trigger, slot=slot, defaults=said)[0]


@atomic
def follow_up(jobs: list[UUID]) -> None:
    """Of evaluations that have ended, start the executions that they ask for.

    One that cannot be started fails its slot, not the call that says so: what a worker reports has happened.
    """
    ended = WorkerJob.objects.filter(pk__in=jobs, state__in=states.TERMINAL, passed_on=False)
    told = [job.pk for job in ended]
    in_flight = TriggerSlot.objects.filter(job__in=told, outcome=SlotOutcome.EVALUATING).select_related(
        "trigger", "job"
    )
    for slot in in_flight.order_by("pk").select_for_update(no_key=True, of=["self"]):
        try:
            with transaction.atomic():
                outcome = conclude(slot, slot.job)
        except Exception as error:
            if is_cut_off(error):
                raise
            log.exception("What an evaluation asked for could not be done", trigger=slot.trigger.name)
            why = f"{type(error).__name__}: {error}".replace("\0", "")[:REASON_SHOWN]
            outcome = SlotOutcome.FAILED, f"its execution could not begin: {why}", None
        slot.outcome, slot.note, slot.execution_id = outcome
        slot.save(update_fields=["outcome", "note", "execution_id"])
        log.info("Trigger evaluated", trigger=slot.trigger.name, slot=str(slot.slot), state=str(slot.outcome))
    WorkerJob.objects.filter(pk__in=told).update(passed_on=True)


def conclude(slot: TriggerSlot, job: Any) -> tuple[SlotOutcome, str, UUID | None]:
    """What comes of an evaluation: the outcome, a note and the execution."""
    template = slot.trigger.execution
    if job.state != JobState.COMPLETED:
        return SlotOutcome.FAILED, f"its job ended {job.state}{because(job.error)}", None
    if not is_answer(answer := said(job.output)):
        return SlotOutcome.FAILED, 'its output is not like {"fire": true, "inputs": {}}', None
    if not answer["fire"]:
        return SlotOutcome.NOT_FIRED, slot.note, None
    inputs = answer.get("inputs", template.get("inputs", {}))
    if (size := executions.handed_on(template, inputs)) > executions.HANDED_ON_LIMIT:
        return SlotOutcome.FAILED, f"its inputs, handed to every step, are {size} bytes", None
    [execution] = executions.begin([Plan(template, None, inputs, trigger=slot.trigger_id)])
    return SlotOutcome.FIRED, slot.note, execution


def because(error: Any) -> str:
    said = error.get("message") if isinstance(error, dict) else None
    return f": {said}"[:REASON_SHOWN] if said else ""


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
