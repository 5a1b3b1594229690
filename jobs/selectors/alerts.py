"""Selectors of incidents, of the messages about them, and of mutes."""

from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
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


@dataclass(frozen=True)
class StoredMessages:
    """Stored messages, latest first."""

    latest: list[AlertMessage]
    """Messages of alerts."""
    undelivered: list[AlertMessage]
    """Messages of alerts that could not be delivered."""
    undelivered_notifications: list[AlertMessage]


def stored_messages(of_alerts: Q, notified: Q, limit: int) -> StoredMessages:
    """Return at most `limit` messages of each kind, with one query.

    `of_alerts` and `notified` are conditions for the alerts and the notifications that the reader may view.
    """
    messages = AlertMessage.objects.order_by("-pk")
    kinds = (
        messages.filter(of_alerts, url__isnull=True),
        messages.filter(of_alerts, GIVEN_UP, url__isnull=True),
        messages.filter(notified, GIVEN_UP, url__isnull=False),
    )
    shown = reduce(or_, (Q(pk__in=kind.values("pk")[:limit]) for kind in kinds))
    rows = list(messages.filter(shown).select_related("incident"))
    alerts = [row for row in rows if row.url is None]
    return StoredMessages(
        alerts[:limit],
        [row for row in alerts if row.sent_at is None and row.next_try_at is None][:limit],
        [row for row in rows if row.url is not None],
    )


def channels_and_time() -> tuple[list[AlertChannel], datetime]:
    """Return the channels that people added, and the time of the database, in one query."""
    row = sql.read_channels.fetch_only_row()
    channels = [AlertChannel(**{**fields, "id": UUID(fields["id"])}) for fields in read_json(row.channels)]
    return channels, row.now


def mutes(now: datetime) -> dict[str, Any]:
    """Return the mutes in force at `now`, by rule."""
    return {mute.rule: mute for mute in AlertMute.objects.filter(until__gt=now)}
