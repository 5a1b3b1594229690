"""Reads the queues: the jobs of each namespace and set of required tags, and the workers that can take them."""

from collections.abc import Iterable
from typing import Any

import orjson

from controlplane.agent.clean_text import is_clean
from controlplane.core.statements import fetch_result_sets
from jobs.sql import sql
from jobs.sql.rows.queues import LargestQueue, Queue, QueueRate
from liveness.conf import conf

QUEUES_NAMED = 100
"""Number of queues with their own series among the metrics."""
RATE_SECONDS, CHART_MINUTES, RATED_JOBS = 300.0, 15, 5000
"""Time over which rates are counted, time of the small charts, and largest number of jobs that are read for them."""

Place = tuple[str, list[str]]
"""Namespace and tags of a queue, by which queues are sorted."""


def write_place(queue: Queue) -> str:
    """Return the place of a queue as a cursor: JSON in hexadecimal digits."""
    return orjson.dumps([queue.namespace, queue.tags]).hex()


def read_place(cursor: str) -> Place:
    """Return the place that `write_place` wrote. Raise ValueError."""
    read = orjson.loads(bytes.fromhex(cursor))
    if not isinstance(read, list) or len(read) != 2 or not isinstance(read[1], list):
        raise ValueError(f"{cursor} has no namespace and tags.")
    namespace, tags = read
    if not all(isinstance(text, str) and is_clean(text) for text in (namespace, *tags)):
        raise ValueError(f"{cursor} has something other than texts.")
    return namespace, tags


def queues_page(
    namespaces: Iterable[str] | None, limit: int, *, after: Place | None = None, tag: str | None = None
) -> list[Queue]:
    """Return up to `limit` queues of these namespaces (None: all), by namespace and tags, after this place. One query.

    A queue has jobs that wait or run. With `tag` only queues with this tag are returned.
    """
    return sql.list_queues.fetch_rows(**page_parameters(namespaces, limit, after, tag))


def queues_page_with_rates(
    namespaces: Iterable[str] | None, limit: int, *, after: Place | None = None, tag: str | None = None
) -> tuple[list[Queue], dict[tuple[str, tuple[str, ...]], QueueRate]]:
    """Return `queues_page()`, and the rates of queues by namespace and tags. A queue without jobs lately has no rate.

    One query.
    """
    parameters = page_parameters(namespaces, limit, after, tag)
    rows, rates = fetch_result_sets(
        sql.list_queues,
        sql.read_queue_rates,
        **parameters,
        seconds=RATE_SECONDS,
        minutes=CHART_MINUTES,
        most=RATED_JOBS,
    )
    return rows, {(rate.namespace, tuple(rate.tags)): rate for rate in rates}


def page_parameters(
    namespaces: Iterable[str] | None, limit: int, after: Place | None, tag: str | None
) -> dict[str, Any]:
    after_namespace, after_tags = after or (None, None)
    return {
        "namespaces": None if namespaces is None else list(namespaces),
        "tag": tag,
        "after_namespace": after_namespace,
        "after_tags": after_tags,
        "limit": limit,
        "staleness_multiplier": conf().staleness_multiplier,
    }


def largest_queues() -> list[LargestQueue]:
    """Return the queues with most jobs, and one row `other` for all the rest together. Tags are joined by commas."""
    return sql.list_largest_queues.fetch_rows(namespaces=None, tag=None, limit=QUEUES_NAMED)
