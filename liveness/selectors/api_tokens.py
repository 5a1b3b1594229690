"""Selector of API tokens for people."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from controlplane.core.model_fields import ClockTimestamp
from liveness import states
from liveness.models import API_PREFIX, ApiToken
from liveness.selectors.namespaces import rows_within


def tokens_page(namespaces: Collection[str] | None, before: UUID | None, limit: int) -> list[ApiToken]:
    """Return tokens of these namespaces (None: all), latest first, each with the number of its alive `servers`.

    Rows that own the jobs of sessions and of the project are left out: nobody can call with them.
    """
    rows = callable_tokens(namespaces).filter(**({"pk__lt": before} if before else {}))
    return list(rows.order_by("-pk")[:limit])


def callable_tokens(namespaces: Collection[str] | None) -> QuerySet[ApiToken]:
    """Return the tokens of these namespaces (None: all) that somebody can call with."""
    tokens: QuerySet[ApiToken] = rows_within(namespaces, ApiToken.objects.filter(prefix__startswith=API_PREFIX))
    return tokens.annotate(now=ClockTimestamp(), servers=Count("server", filter=Q(server__state__in=states.ALIVE)))
