"""Acknowledge, assign and comment on incidents. Each action is an event; comments are stored only there."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.alert_errors import IncidentAcknowledged, IncidentEnded, IncidentReassigned, IncidentUnknown
from jobs.models import Incident
from jobs.selectors.alerts import events_of_incident
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject


@retried_atomic
def acknowledge_incident(incident: UUID, name: str, by: str, note: str = "") -> None:
    """Record that the person `name` has seen an incident. Raises IncidentUnknown, IncidentEnded, IncidentAcknowledged.

    It changes nothing about messages: further servers or jobs and the end of the incident are still announced.
    """
    row = lock_incident(incident)
    if row.ended_at is not None:
        raise IncidentEnded
    if row.acknowledged_by:
        raise IncidentAcknowledged(f"The incident is already acknowledged by {row.acknowledged_by}.")
    rows_of(row).update(acknowledged_by=name, acknowledged_at=ClockTimestamp())
    note_action("acknowledge_incident", by, note, row)


@retried_atomic
def assign_incident(incident: UUID, owner: str, by: str, note: str = "", *, seen: str | None = None) -> None:
    """Make a person the owner of an incident; an empty name removes the owner.

    `seen` is the owner that the caller saw (None: any). Raises IncidentUnknown, and IncidentReassigned if the owner has
    changed since then.
    """
    row = lock_incident(incident)
    if seen is not None and row.owner != seen:
        raise IncidentReassigned(f"The owner is {row.owner or 'none'} now. Open the page again.")
    if row.owner == owner:
        return
    rows_of(row).update(owner=owner)
    note_action("assign_incident", by, note, row, changes={"owner": {"old": row.owner, "new": owner}})


@retried_atomic
def comment_on_incident(incident: UUID, by: str, note: str) -> None:
    """Record a comment. The same comment of the same person twice in a row is one. Raises IncidentUnknown."""
    row = lock_incident(incident)
    last = [(event.action, event.actor, event.reason) for event in events_of_incident(incident)[-1:]]
    if last != [("comment_on_incident", by, note)]:
        note_action("comment_on_incident", by, note, row)


def lock_incident(incident: UUID) -> Incident:
    row = Incident.objects.filter(pk=incident).select_for_update(no_key=True).first()
    if row is None:
        raise IncidentUnknown
    return row


def rows_of(incident: Incident) -> QuerySet[Incident]:
    return Incident.objects.filter(pk=incident.pk)


def note_action(action: str, by: str, note: str, incident: Incident, **of: Any) -> None:
    record_action(action, by, note, ActionSubject(Subject.INCIDENT, incident.pk, incident.summary), **of)
