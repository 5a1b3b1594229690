"""Triggers: a schedule whose slots start executions, often after the evaluation by a job.

This module creates and changes triggers. `evaluations` evaluates their slots.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import IntegrityError
from django.db.models import Max

from controlplane.core.database import transaction
from controlplane.core.transactions import is_transient_error, retried_atomic, retry_from_start
from jobs.choices import HoldOf
from jobs.models import Trigger, TriggerSlot
from jobs.schedules import schedule_slots
from jobs.selectors.holds import find_hold
from jobs.services import guards
from jobs.services.evaluations import evaluate_slots, is_in_flight
from jobs.services.refusals import build_refusal
from jobs.services.slot_queue import begin_slots
from jobs.sql import sql
from jobs.trigger_errors import TriggerChanged, TriggerNameTaken, TriggerUnknown
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


def create_trigger(fields: dict[str, Any], by: str, note: str) -> Trigger:
    """Create a trigger. Raises TriggerNameTaken."""
    return store_trigger(Trigger(**fields), by, note)


@retried_atomic
def change_trigger(trigger: UUID, fields: dict[str, Any], by: str, note: str) -> Trigger:
    """Change fields of a trigger. Raises TriggerUnknown, TriggerNameTaken and TriggerChanged."""
    existing = lock_trigger(trigger)
    for field, value in fields.items():
        setattr(existing, field, value)
    if [existing.cron, existing.interval_seconds, existing.on_signal].count(None) != 2:
        raise TriggerChanged  # another call changed it after the fields were validated
    return store_trigger(existing, by, note)


@retried_atomic
def pause_trigger(trigger: UUID, by: str, note: str) -> None:
    """Pause a trigger, so that no further slot is evaluated. Raises TriggerUnknown and TriggerPaused."""
    guards.ensure_may_pause_trigger(lock_trigger(trigger))
    change_trigger(trigger, {"enabled": False}, by, note)


@retried_atomic
def resume_trigger(trigger: UUID, by: str, note: str) -> None:
    """Resume a trigger at the first slot of its schedule from now. Raises TriggerUnknown and TriggerNotPaused."""
    guards.ensure_may_resume_trigger(lock_trigger(trigger))
    change_trigger(trigger, {"enabled": True}, by, note)


def lock_trigger(trigger: UUID) -> Trigger:
    """Lock a trigger and return it. Raises TriggerUnknown."""
    existing = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger).first()
    if existing is None:
        raise TriggerUnknown
    return existing


@retried_atomic
def store_trigger(trigger: Trigger, by: str, note: str) -> Trigger:
    """Store a new or changed trigger. Slots that are already due are evaluated or missed by the old definition."""
    now = sql.read_clock.fetch_only_row().now
    before = Trigger.objects.select_for_update(no_key=True).filter(pk=trigger.pk, next_slot_at__lte=now).first()
    if before is not None and before.enabled and not find_hold(HoldOf.TRIGGER, str(trigger.pk)):
        try:
            with transaction.atomic():
                evaluate_slots(before, now, in_flight=is_in_flight(before))
        except Exception as error:  # a trigger that cannot be evaluated must still be changeable
            if is_transient_error(error):
                raise
            log.exception("A trigger could not be evaluated", trigger=before.name)
    trigger.created_at = now if trigger._state.adding else trigger.created_at
    existing = Trigger.objects.filter(pk=trigger.pk).first()
    if trigger.enabled and (existing is None or not existing.enabled):
        trigger.enabled_at, trigger.failures_in_row = now, 0
    trigger.next_slot_at = next(schedule_slots(trigger, now), None) if trigger.enabled else None
    action = "change_trigger" if existing else "create_trigger"
    try:
        with transaction.atomic():
            trigger.save()
    except IntegrityError as error:
        if "trigger_name_once" not in str(error):
            raise
        raise TriggerNameTaken(f"Another trigger is named {trigger.name!r}.") from None
    stored = Trigger.objects.get(pk=trigger.pk)
    if existing is None or definition_of(existing) != definition_of(stored):
        record_action(action, by, note, trigger_subject(stored))
    return stored


AUTOMATIC_FIELDS = ("next_slot_at", "failures_in_row", "enabled_at", "created_at")


def definition_of(trigger: Trigger) -> dict[str, Any]:
    """Return the fields of a trigger that people write. The others change automatically."""
    return {field.attname: getattr(trigger, field.attname) for field in trigger._meta.concrete_fields
            if field.name not in AUTOMATIC_FIELDS}  # fmt: skip


@retried_atomic
def delete_trigger(trigger: UUID, by: str, note: str) -> None:
    """Delete a trigger with its slots. Its executions stay. Raises TriggerUnknown."""
    existing = Trigger.objects.filter(pk=trigger).first()
    if existing is None or not Trigger.objects.filter(pk=trigger).delete()[0]:
        raise TriggerUnknown
    record_action("delete_trigger", by, note, trigger_subject(existing))


def trigger_subject(trigger: Trigger) -> ActionSubject:
    return ActionSubject(SubjectType.TRIGGER, trigger.pk, trigger.name)


@retry_from_start
def evaluate_trigger(trigger: UUID, by: str, key: str | None = None, *, note: str = "") -> tuple[TriggerSlot, bool]:
    """Evaluate a trigger now, independently of its schedule. Return the slot, and whether it is new.

    A call with the same key returns the same slot. Raises TriggerUnknown, EvaluationInFlight and OnHold.
    """
    with transaction.atomic():
        existing: Any = lock_trigger(trigger)
        if key is not None and (known := existing.slots.filter(key=key).first()):
            return known, False
        existing.in_flight = is_in_flight(existing)
        guards.ensure_may_evaluate_trigger(existing)
        if hold := find_hold(HoldOf.TRIGGER, str(trigger)):
            raise build_refusal(hold.pk, hold.kind, existing.name, hold.note)
        now = sql.read_clock.fetch_only_row().now
        at = find_free_time(existing, now)
        begin_slots(existing, [at], now, by=by, key=key)
        record_action("evaluate_trigger", by, note, trigger_subject(existing))
        return existing.slots.get(slot=at), True


def find_free_time(trigger: Trigger, now: datetime) -> datetime:
    """Return `now`, or the microsecond after the slots that the trigger already has at this moment."""
    soon = now + timedelta(milliseconds=1)
    last: datetime | None = trigger.slots.filter(slot__gte=now, slot__lt=soon).aggregate(last=Max("slot"))["last"]
    return now if last is None else last + timedelta(microseconds=1)
