"""Selector of the fleet map: one cell for every server that has not ended."""

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Case, F, Q, TextField, Value, When
from django.db.models.functions import Cast, Concat

from controlplane.core.composed import Composed, compose_query
from jobs.models import Attempt
from liveness import states
from liveness.conf import LivenessSettings, conf
from liveness.selectors.counts import counts_by_type

LOOKS = ("silent", "lost", "ending", "cordoned", "draining", "alive")
"""Looks of a cell. Looks that need attention come first."""


class FleetCell(NamedTuple):
    """Server on the fleet map."""

    id: UUID
    name: str
    look: str
    """Look, one of `LOOKS`."""
    holds_work: bool


def fleet_by_type(cluster: str = "") -> list[dict[str, Any]]:
    """Return `server_counts_by_type()` with the `cells` of each row. One query."""
    rows: list[dict[str, Any]] = compose_fleet(cluster, conf()).fetch_dicts()
    return [{**row, "cells": [parse_cell(text) for text in row["cells"]]} for row in rows]


@lru_cache(maxsize=64)
def compose_fleet(cluster: str, settings: LivenessSettings) -> Composed:
    """Return the query of `fleet_by_type()`. A cell is a text of its look, its work, its id and its name."""
    alive = Q(state__in=states.ALIVE)
    look = Case(
        When(alive & Q(silent=True), then=Value("0")),
        When(state__in=states.LOST, then=Value("1")),
        When(~alive, then=Value("2")),
        When(drain_deadline__isnull=False, then=Value("4")),
        When(cordoned_by__isnull=False, then=Value("3")),
        default=Value("5"),
    )
    holding = Attempt.objects.live().order_by().values("server_id")
    work = Case(When(pk__in=holding, then=Value("0")), default=Value("1"))
    cell = Concat(look, work, Cast("pk", TextField()), F("name"), output_field=TextField())
    # Cells are in the order of the map: by look, servers with work first, then by name.
    order = (look, work, F("name"))
    return compose_query(counts_by_type(cluster, settings).annotate(cells=ArrayAgg(cell, order_by=order)))


def parse_cell(text: str) -> FleetCell:
    return FleetCell(UUID(text[2:38]), text[38:], LOOKS[int(text[0])], text[1] == "0")
