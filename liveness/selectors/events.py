"""Transitions, what operators and clients did, and the rows that could not be written."""

import json
from collections.abc import Collection
from itertools import takewhile
from typing import Any
from uuid import UUID

from django.db.models import F, Func, JSONField, QuerySet

from liveness.models import Brake, ServerEvent
from liveness.sql import sql
from liveness.states import Subject


def events_of_server(server: UUID) -> QuerySet[ServerEvent]:
    """The transitions of a server and what was done to it, oldest first."""
    return ServerEvent.objects.filter(server_id=server)


def complete_events(after: int, limit: int) -> list[ServerEvent]:
    """What happened, from the event after this one on, oldest first, in all at most `limit`; only as far as no earlier
    one can follow: who goes on behind the last misses none, however long a transaction took."""
    horizon = sql.read_events_horizon.fetch_only_row().at
    rows = ServerEvent.objects.filter(pk__gt=after).order_by("pk")[:limit]
    return list(takewhile(lambda event: event.at <= horizon, rows))


ACTION_EVENTS = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'action', e.action, 'actor', e.actor, 'note', e.reason,
               'at', to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) order by e.id desc), '[]')
      from (select * from liveness_serverevent
             where subject_type = '%(subject)s' and subject_id = %(expressions)s::text order by id desc limit 20) e)"""


def action_events(subject: Subject) -> Func:
    """Of rows that are such subjects, but for servers: what was done last to each, latest first."""
    return Func(F("pk"), template=ACTION_EVENTS, subject=subject.value, output_field=JSONField())


def rows_left_out() -> list[dict[str, Any]]:
    """The rows that could not be written within the last hour, the latest few."""
    return json.loads(sql.list_rows_left_out.fetch_only_row().rows_left_out or "[]")


def events_of_subjects(
    subject: Subject, actions: Collection[str], cluster: str, before: int | None, limit: int
) -> list[ServerEvent]:
    """What was done to subjects of a type that are few, before an event, latest first; of one cluster, or of all."""
    events = ServerEvent.objects.filter(subject_type=subject, action__in=actions)
    if cluster:
        events = events.filter(subject_id__in=Brake.keys_of(cluster) if subject == Subject.BRAKE else [cluster])
    if before is not None:
        events = events.filter(pk__lt=before)
    # Never along the key, past the events of all servers.
    return list(events.order_by(Func("pk", template="(%(expressions)s + 0)").desc())[:limit])
