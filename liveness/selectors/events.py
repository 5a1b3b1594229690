"""Selectors of events (transitions and actions), and of rows that could not be written."""

import json
import re
from collections.abc import Collection
from itertools import takewhile
from typing import Any
from uuid import UUID

from django.db.models import F, Func, JSONField, Q, QuerySet

from liveness.models import DEFAULT_NAMESPACE, Brake, ServerEvent
from liveness.selectors.namespaces import reaches_instance
from liveness.sql import sql
from liveness.states import ServerType, Subject


def events_of_server(server: UUID, namespaces: Collection[str] | None = None) -> QuerySet[ServerEvent]:
    """Return the events of a server that readers of these namespaces (None: all) may see.

    An event stores the namespace of its server, because the event may outlive the server. Old events of deleted servers
    may have no namespace. Only readers of the whole control plane see those.
    """
    events = ServerEvent.objects.filter(server_id=server)
    if namespaces is None:
        return events
    reached = Q(namespace__in=sorted(namespaces))
    return events.filter(reached | Q(namespace=None) if reaches_instance(namespaces) else reached)


def complete_events(after: int, limit: int) -> list[ServerEvent]:
    """Return up to `limit` events with ids above `after`, oldest first.

    The newest events are left out while an open transaction may still add an event before them. A reader that continues
    after the last event therefore misses none, however long a transaction takes.
    """
    horizon = sql.read_events_horizon.fetch_only_row().at
    rows = ServerEvent.objects.filter(pk__gt=after).order_by("pk")[:limit]
    return list(takewhile(lambda event: event.at <= horizon, rows))


ACTION_EVENTS = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'action', e.action, 'actor', e.actor, 'note', e.reason, 'changes', e.changes,
               'at', to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) order by e.id desc), '[]')
      from (select * from liveness_serverevent
             where subject_type = '%(subject)s' and subject_id = %(expressions)s::text order by id desc limit 20) e)"""


def action_events(subject: Subject) -> Func:
    """Return an SQL expression: the last 20 actions on each row, latest first. It does not work for servers."""
    return Func(F("pk"), template=ACTION_EVENTS, subject=subject.value, output_field=JSONField())


def rows_left_out() -> list[dict[str, Any]]:
    """Return the latest rows that could not be written within the last hour."""
    rows: list[dict[str, Any]] = json.loads(sql.list_rows_left_out.fetch_only_row().rows_left_out or "[]")
    return rows


def is_brake_of_cluster(column: str, cluster: str) -> Q:
    """Return a filter for the keys of a cluster's brakes, in any namespace. The cluster's name may contain a slash."""
    keys = [Brake(type=type, namespace=DEFAULT_NAMESPACE, cluster=cluster).key for type in ServerType]
    of_others = rf"^[A-Z]+@[^/]*/{re.escape(cluster)}$"
    return Q(**{f"{column}__in": keys}) | Q(**{f"{column}__regex": of_others})


def events_of_subjects(
    subject: Subject, actions: Collection[str], cluster: str, before: int | None, limit: int
) -> list[ServerEvent]:
    """Return up to `limit` actions on subjects of a type, latest first, with ids below `before`. Use it for rare types.

    An empty `cluster` means all clusters.
    """
    events = ServerEvent.objects.filter(subject_type=subject, action__in=actions)
    if cluster:
        is_brake = subject == Subject.BRAKE
        events = events.filter(is_brake_of_cluster("subject_id", cluster) if is_brake else Q(subject_id=cluster))
    if before is not None:
        events = events.filter(pk__lt=before)
    # `+ 0` keeps the planner from walking the primary key, past the events of all servers.
    return list(events.order_by(Func("pk", template="(%(expressions)s + 0)").desc())[:limit])
