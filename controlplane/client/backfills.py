"""Calls about backfills: runs of a trigger for the past slots of a period. For operators; viewers may read them."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, cast

from controlplane.client.holds import HoldCalls
from controlplane.client.jobs import new_key
from controlplane.client.requests import Reference, id_of

Backfill = TypedDict(
    "Backfill",
    {
        "id": str,
        "trigger": str,
        "from": str,
        "to": str,
        "max_running": int,
        "state": str,
        "total": int,
        "waiting": int,
        "running": int,
        "by": str,
        "note": str,
        "created_at": str,
        "finished_at": str | None,
    },
)


class BackfillCalls(HoldCalls):
    def backfill(
        self, trigger: Reference, start: datetime | str, end: datetime | str, *, max_running: int = 1, note: str = ""
    ) -> Backfill:
        """Run a trigger for its slots from `start` to just before `end`, at most `max_running` at once."""
        body = {"from": time_of(start), "to": time_of(end), "max_running": max_running, "note": note}
        return cast(Backfill, self.call("POST", f"/triggers/{id_of(trigger)}/backfills", body, key=new_key()))

    def read_backfill(self, trigger: Reference, backfill: Reference) -> Backfill:
        """Return a backfill as it is now."""
        return cast(Backfill, self.call("GET", f"/triggers/{id_of(trigger)}/backfills/{id_of(backfill)}"))

    def stop_backfill(self, trigger: Reference, backfill: Reference, note: str = "") -> Backfill:
        """Stop a backfill: no further slot starts. Raise Refused with `backfill_ended` if it has ended."""
        path = f"/triggers/{id_of(trigger)}/backfills/{id_of(backfill)}/stop"
        return cast(Backfill, self.call("POST", path, {"note": note}))


def time_of(at: datetime | str) -> str:
    return at if isinstance(at, str) else at.isoformat()
