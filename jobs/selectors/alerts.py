"""Selectors of incidents, of the messages about them, and of mutes."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, F, Func, JSONField, Q, QuerySet

from controlplane.core.json_bodies import read_json
from jobs.models import AlertChannel, AlertMessage, AlertMute, Incident
from jobs.sql import sql
from liveness.models import ServerEvent
from liveness.states import Subject

EVENTS_SHOWN = 200

MESSAGES = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'event', m.event, 'channel', m.channel, 'tries', m.tries, 'error', m.error,
               'is_sent', m.sent_at is not null, 'is_given_up', m.sent_at is null and m.next_try_at is null)
               order by m.id), '[]')
      from jobs_alertmessage m where m.incident_id = %(expressions)s)"""


def incidents_page(matching: Q, before: UUID | None, limit: int) -> QuerySet[Incident]:
    """Return a page of incidents with their `messages`: open incidents first, then the latest.

    Open incidents are only on the first page (without `before`).
    """
    messages = Func(F("pk"), template=MESSAGES, output_field=JSONField())
    incidents = Incident.objects.filter(matching).annotate(messages=messages)
    if before:
        incidents = incidents.filter(ended_at__isnull=False, pk__lt=before)
    has_ended = ExpressionWrapper(Q(ended_at__isnull=False), output_field=BooleanField())
    return incidents.order_by(has_ended, "-pk")[:limit]


def incident_details(incident: UUID) -> Incident | None:
    """Return an incident with its `messages`, or None if it does not exist."""
    messages = Func(F("pk"), template=MESSAGES, output_field=JSONField())
    return Incident.objects.filter(pk=incident).annotate(messages=messages).first()


def events_of_incident(incident: UUID) -> list[ServerEvent]:
    """Return the latest actions of people on an incident, oldest first."""
    events = ServerEvent.objects.filter(subject_type=Subject.INCIDENT, subject_id=str(incident))
    return list(events.order_by("-pk")[:EVENTS_SHOWN])[::-1]


def notifications_of(owner: UUID | None) -> QuerySet[AlertMessage]:
    """Return the notifications of the jobs and executions of one token (None: of all)."""
    found = AlertMessage.objects.filter(url__isnull=False)
    return found if owner is None else found.filter(token=owner)


GIVEN_UP = Q(sent_at__isnull=True, next_try_at__isnull=True)


def stored_messages(of_alerts: Q, notified: Q, limit: int) -> tuple[list[AlertMessage], list[AlertMessage]]:
    """Return the latest messages of alerts, and what could not be delivered, latest first. One query.

    The second list has notifications too. `of_alerts` and `notified` are conditions for what the reader may view.
    """
    messages = AlertMessage.objects.order_by("-pk")
    latest = messages.filter(of_alerts, url__isnull=True)
    given_up = messages.filter(of_alerts | notified, GIVEN_UP)
    shown = Q(pk__in=latest.values("pk")[:limit]) | Q(pk__in=given_up.values("pk")[:limit])
    rows = list(messages.filter(shown).select_related("incident"))
    return (
        [row for row in rows if row.url is None][:limit],
        [row for row in rows if row.sent_at is None and row.next_try_at is None][:limit],
    )


def channels_and_time() -> tuple[list[AlertChannel], datetime]:
    """Return the channels that people added, and the time of the database, in one query."""
    row = sql.read_channels.fetch_only_row()
    channels = [AlertChannel(**{**fields, "id": UUID(fields["id"])}) for fields in read_json(row.channels)]
    return channels, row.now


def mutes(now: datetime) -> dict[str, Any]:
    """Return the mutes in force at `now`, by rule."""
    return {mute.rule: mute for mute in AlertMute.objects.filter(until__gt=now)}
