"""Objects that the search of the top bar finds: servers, jobs, executions and triggers by name or id."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.http import QueryDict

from controlplane.console.selectors.filters.base import SearchFilter
from controlplane.console.selectors.filters.executions import ExecutionListFilter
from controlplane.console.selectors.filters.jobs import JobListFilter
from controlplane.core.ids import ID_PART, id_condition
from jobs.models import Execution, Trigger, WorkerJob
from liveness.models import Server

Reach = Callable[[QuerySet[Any]], QuerySet[Any]]
"""Function that limits rows to those that the user may view."""


def find_servers(word: str, within: Reach, limit: int) -> list[Server]:
    """Return the servers whose name, host or id has this text, latest first."""
    found = Q(name__icontains=word) | Q(hostname__icontains=word) | id_condition(word)
    if ID_PART.fullmatch(word):
        found |= Q(pk__endswith=word.lower())
    return list(within(Server.objects.filter(found)).only("name", "state", "cluster").order_by("-pk")[:limit])


def find_jobs(word: str, within: Reach, limit: int) -> list[WorkerJob]:
    """Return jobs whose name, action, error, key or id has this text. Names are searched in one scan window."""
    rows = WorkerJob.objects.only("name", "state", "action")
    return find_in_window(JobListFilter(ask(word)), within(rows), limit)


def find_executions(word: str, within: Reach, limit: int) -> list[Execution]:
    """Return executions whose name, key or id has this text. Names are searched in one scan window."""
    rows = Execution.objects.only("name", "state")
    return find_in_window(ExecutionListFilter(ask(word)), within(rows), limit)


def find_triggers(word: str, within: Reach, limit: int) -> list[Trigger]:
    """Return the triggers whose name or id has this text."""
    found = Q(name__icontains=word) | id_condition(word)
    return list(within(Trigger.objects.filter(found)).only("name").order_by("name")[:limit])


def ask(word: str) -> QueryDict:
    return QueryDict(urlencode({"q": word}))


def find_in_window(search: SearchFilter, rows: QuerySet[Any], limit: int) -> list[Any]:
    matching, floor = search.match_in_scan_window(rows, None)
    found = list(matching.order_by("-pk")[:limit])
    if floor is not None and len(found) < limit:
        found += search.match_by_key_or_id(rows.filter(pk__lt=floor)).order_by("-pk")[: limit - len(found)]
    return found
