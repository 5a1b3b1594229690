"""Triggers: a job for each slot of a schedule; what that job answers starts an execution, or not.

Here they are made and changed; how their slots are evaluated: evaluations.py.
"""

from typing import Any
from uuid import UUID

import structlog
from django.db import IntegrityError

from controlplane.core.database import transaction
from controlplane.core.transactions import is_transient_error, retried_atomic, retry_from_start
from jobs.errors import TriggerChanged, TriggerNameTaken, TriggerUnknown
from jobs.models import Trigger, TriggerSlot
from jobs.services import guards
from jobs.services.evaluations import begin_evaluation, evaluate_slots, is_in_flight, schedule_slots
from jobs.sql import sql
from liveness.services.action_events import Subject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


def create_trigger(fields: dict[str, Any], by: str, note: str) -> Trigger:
    """A trigger. Raises TriggerNameTaken."""
    return store_trigger(Trigger(**fields), by, note)


@retried_atomic
def change_trigger(trigger: UUID, fields: dict[str, Any], by: str, note: str) -> Trigger:
    """Change what is said of a trigger.

    Raises TriggerUnknown, TriggerNameTaken and TriggerChanged.
    """
    existing = lock_trigger(trigger)
    for field, value in fields.items():
        setattr(existing, field, value)
    if (existing.cron is None) == (existing.interval_seconds is None):
        raise TriggerChanged  # by another call, after what was said was looked at
    return store_trigger(existing, by, note)


@retried_atomic
def pause_trigger(trigger: UUID, by: str, note: str) -> None:
    """No slot comes from now on. Raises TriggerUnknown and TriggerPaused."""
    guards.ensure_may_pause_trigger(lock_trigger(trigger))
    change_trigger(trigger, {"enabled": False}, by, note)


@retried_atomic
def resume_trigger(trigger: UUID, by: str, note: str) -> None:
    """The next slot is the first of its schedule from now. Raises TriggerUnknown and TriggerNotPaused."""
    guards.ensure_may_resume_trigger(lock_trigger(trigger))
    change_trigger(trigger, {"enabled": True}, by, note)


def lock_trigger(trigger: UUID) -> Trigger:
    """Raises TriggerUnknown."""
    existing = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger).first()
    if existing is None:
        raise TriggerUnknown
    return existing


@retried_atomic
def store_trigger(trigger: Trigger, by: str, note: str) -> Trigger:
    """Store a trigger, new or changed; slots that have come are evaluated, or missed, as it was before."""
    now = sql.read_clock.fetch_only_row().now
    before = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger.pk, next_slot_at__lte=now).first()
    if before is not None and before.enabled:
        try:
            with transaction.atomic():
                evaluate_slots(before, now, in_flight=is_in_flight(before))
        except Exception as error:  # what cannot be evaluated can be changed
            if is_transient_error(error):
                raise
            log.exception("A trigger could not be evaluated", trigger=before.name)
    trigger.created_at = now if trigger._state.adding else trigger.created_at
    trigger.next_slot_at = next(schedule_slots(trigger, now), None) if trigger.enabled else None
    others = Trigger.objects.filter(name=trigger.name).exclude(pk=trigger.pk)
    action = "change_trigger" if Trigger.objects.filter(pk=trigger.pk).exists() else "create_trigger"
    try:
        with transaction.atomic():
            trigger.save()
    except IntegrityError:
        if not others.exists():
            raise
        raise TriggerNameTaken(f"Another trigger is named {trigger.name!r}.") from None
    stored = Trigger.objects.get(name=trigger.name)
    record_action(action, by, note, trigger_subject(stored))
    return stored


@retried_atomic
def delete_trigger(trigger: UUID, by: str, note: str) -> None:
    """A trigger goes with its slots; what it started stays. Raises TriggerUnknown."""
    existing = Trigger.objects.filter(pk=trigger).first()
    if existing is None or not Trigger.objects.filter(pk=trigger).delete()[0]:
        raise TriggerUnknown
    record_action("delete_trigger", by, note, trigger_subject(existing))


def trigger_subject(trigger: Trigger) -> Subject:
    return Subject(SubjectType.TRIGGER, trigger.pk, trigger.name)


@retry_from_start
def evaluate_trigger(trigger: UUID, by: str, key: str | None = None, *, note: str = "") -> tuple[TriggerSlot, bool]:
    """Have a trigger evaluated now, whatever its schedule says: the slot, and whether it is new.

    With a key the same call again finds the same slot. Raises TriggerUnknown and EvaluationInFlight.
    """
    with transaction.atomic():
        existing: Any = lock_trigger(trigger)
        if key is not None and (known := existing.slots.filter(key=key).first()):
            return known, False
        existing.in_flight = is_in_flight(existing)
        guards.ensure_may_evaluate_trigger(existing)
        now = sql.read_clock.fetch_only_row().now
        slot = begin_evaluation(existing, now, now, by=by, key=key)
        record_action("evaluate_trigger", by, note, trigger_subject(existing))
        return slot, True
