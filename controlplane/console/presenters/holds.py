"""Holds as the pages show them."""

from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.console.formatting import time_since, time_until
from jobs.sql import sql
from jobs.states import HoldOf


def present_hold(row: Any, now: datetime) -> dict[str, Any]:
    return {
        "it": row,
        "since": time_since(row.created_at, now),
        "until": row.ends_at and time_until(row.ends_at, now),
        "page": row.kind if row.kind in (HoldOf.EXECUTION, HoldOf.TRIGGER) else "",
    }


def present_holds(kind: HoldOf, id: UUID, now: datetime) -> list[dict[str, Any]]:
    """Return the holds of one execution or trigger."""
    return [present_hold(row, now) for row in sql.list_holds_of.fetch_rows(kind=kind, value=str(id))]
