"""Holds as the pages show them."""

from collections.abc import Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from controlplane.console.formatting import time_since, time_until
from jobs.choices import HoldOf
from jobs.sql import sql


def present_hold(row: Any, now: datetime, own: str = "") -> dict[str, Any]:
    """Return a hold. `own` is the id of the execution or trigger whose page shows it."""
    return {
        "it": row,
        "what": f"{row.kind} {row.value}",
        "name": getattr(row, "name", row.value),
        "is_own": row.value == own,
        "since": time_since(row.created_at, now),
        "until": row.ends_at and time_until(row.ends_at, now),
        "page": row.kind if row.kind in (HoldOf.EXECUTION, HoldOf.TRIGGER) else "",
    }


def present_holds(kind: HoldOf, id: UUID, now: datetime) -> list[dict[str, Any]]:
    """Return the holds of one execution or trigger."""
    return [present_hold(row, now, str(id)) for row in sql.list_holds_of.fetch_rows(kind=kind, value=str(id))]


def present_hold_in_json(hold: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a hold that was read as JSON."""
    times = {name: hold[name] and datetime.fromisoformat(hold[name]) for name in ("created_at", "ends_at")}
    return present_hold(SimpleNamespace(**{**hold, **times}), now)
