"""Selectors of triggers and their slots, for the API and the pages."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, QuerySet, Subquery

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Backfill, Execution, Trigger, TriggerSlot, WorkerJob
from jobs.sql import sql
from jobs.states import SlotOutcome
from liveness.selectors.events import action_events
from liveness.states import Subject

SLOTS_SHOWN = 20


def triggers_with_slots() -> QuerySet[Trigger]:
    """Return triggers with their last slots, latest first (`last_slots`), and `now`."""
    last = Prefetch("slots", TriggerSlot.objects.defer("body").order_by("-slot")[:SLOTS_SHOWN], to_attr="last_slots")
    return Trigger.objects.prefetch_related(last).annotate(now=ClockTimestamp()).order_by("name")


def triggers_with_guards() -> QuerySet[Trigger]:
    """Return triggers with the annotation for guards, `in_flight` (an evaluation has not ended), and `now`."""
    in_flight = TriggerSlot.objects.filter(trigger=OuterRef("pk"), outcome=SlotOutcome.EVALUATING, backfill=None)
    return Trigger.objects.annotate(in_flight=Exists(in_flight), now=ClockTimestamp())


def trigger_details(trigger: UUID) -> Any:
    """Return a trigger as in `triggers_with_guards()`, with its `action_events`, or None if it does not exist.

    `has_backfills` is true if it has backfills.
    """
    backfills = Exists(Backfill.objects.filter(trigger=OuterRef("pk")))
    details = triggers_with_guards().annotate(action_events=action_events(Subject.TRIGGER), has_backfills=backfills)
    return details.filter(pk=trigger).first()


def backfills_with_counts(backfills: Iterable[Backfill]) -> list[Any]:
    """Return backfills with the number of their slots that are `waiting` and `running`."""
    rows: list[Any] = list(backfills)
    counted = sql.count_backfill_slots.fetch_rows(backfills=[row.pk for row in rows]) if rows else []
    counts = {row.id: row for row in counted}
    for row in rows:
        row.waiting, row.running = counts[row.pk].waiting, counts[row.pk].running
    return rows


def slots_page(trigger: UUID, before: datetime | None, outcome: str | None, limit: int) -> QuerySet[TriggerSlot]:
    """Return the past slots of a trigger, latest first, with the `job_state` and `execution_state` of each.

    A state is None if there is no job or execution, or if it was deleted.
    """
    slots = TriggerSlot.objects.defer("body").filter(trigger=trigger)
    slots = slots.filter(slot__lt=before) if before else slots
    slots = slots.filter(outcome=outcome) if outcome else slots
    return slots.annotate(
        job_state=Subquery(WorkerJob.objects.filter(pk=OuterRef("job_id")).values("state")),
        execution_state=Subquery(Execution.objects.filter(pk=OuterRef("execution_id")).values("state")),
    ).order_by("-slot")[:limit]
