"""Limit searches without an index: a list searches SCAN_LIMIT rows, and its next page continues after these rows."""

from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, Func, IntegerField, OuterRef, Q, QuerySet, Subquery

from controlplane.core.composed import Given
from jobs.models import Attempt
from jobs.states import JobKind
from liveness.models import ApiToken, Server

SCAN_LIMIT = 10_000


def next_scan_window(
    rows: QuerySet[Any], before: UUID | None = None, state: str | None = None, *, oldest_first: bool = False
) -> tuple[QuerySet[Any], UUID | None]:
    """Return the next SCAN_LIMIT rows in a state (None: any), latest or oldest first, and the id of the last of them.

    The id is None if no rows are left after them. `before` is the id that the previous window returned.
    """
    sign, onward, back = ("", "pk__gt", "pk__lte") if oldest_first else ("-", "pk__lt", "pk__gte")
    rest = rows.filter(**{onward: before}) if before else rows
    if state is None:
        ids = rest.order_by(f"{sign}pk").values_list("pk", flat=True)
    else:
        # Only the index of states fits a range condition with this order, so the planner cannot choose a longer scan.
        ids = (
            rest.filter(state__range=(state, state)).order_by(f"{sign}state", f"{sign}pk").values_list("pk", flat=True)
        )
        rest = rest.filter(state=state)
    last = list(ids[SCAN_LIMIT - 1 : SCAN_LIMIT + 1])
    if len(last) < 2:
        return rest, None
    if state is None:
        return rest.filter(**{back: last[0]}), last[0]
    return rest.filter(field_is_any_of("pk", ids[:SCAN_LIMIT])), last[0]


def filter_by_kind(jobs: QuerySet[Any], kind: str | None) -> QuerySet[Any]:
    """Filter jobs by kind if it is TRIGGER, which has an index. Other kinds have none, because most jobs match."""
    return jobs.filter(kind=kind) if kind == JobKind.TRIGGER else jobs


def field_is_any_of(field: str, values: QuerySet[Any] | Given) -> Func:
    """Return a condition: the field is one of these values.

    The values are read first, and then each row is found by an index, whatever the planner estimates.
    """
    found = Func(values, template="ARRAY(%(expressions)s)") if isinstance(values, Given) else ArraySubquery(values)
    one = "%(expressions)s)"
    return Func(field, found, template=one, arg_joiner=" = ANY (", output_field=BooleanField())


def has_key_condition(key: str) -> Q:
    """Return a condition: jobs or executions with this key. The index is searched owner by owner."""
    return Q(key=key) & (Q(field_is_any_of("owner", ApiToken.objects.values("pk"))) | Q(owner=None))


def attempts_of_servers(name: str, server: UUID | None) -> tuple[QuerySet[Attempt], bool]:
    """Return the attempts of the servers with this name or id, and True if they are few enough to search them all."""
    own = Attempt.objects.filter(server=OuterRef("pk")).order_by("-pk").values("pk")[: SCAN_LIMIT + 1]
    count = Subquery(own, template="(SELECT count(*) FROM (%(subquery)s) own)", output_field=IntegerField())
    servers = Server.objects.filter(Q(name=name) | Q(pk=server) if server else Q(name=name))
    counts = dict(servers.values_list("pk", count))
    return Attempt.objects.filter(server__in=counts), sum(counts.values()) <= SCAN_LIMIT
