"""Record of one delivery of a task, and the texts in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.agent.celery.messages import TaskHeld
from controlplane.agent.clean_text import escaped


def plain(text: Any, most: int = 255) -> str:
    """Return a text without line breaks that PostgreSQL can store. Keep its first `most` characters."""
    return escaped(str(text).encode("utf-8", "replace").decode())[:most]


def free(text: str, most: int) -> str:
    """Return a text that PostgreSQL can store, with its line breaks. Keep its last `most` characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[-most:]


@dataclass
class TaskRecord:
    """Record of one delivery of a task. Times are in seconds on the clock of the records."""

    held: TaskHeld
    since: float
    state: str = "HELD"
    started: float | None = None
    pid: int | None = None
    error: dict[str, Any] | None = None
    result: str | None = None
    reason: str | None = None
    recorded: str | None = None  # the state that the control plane accepted last; MAY_BE: unknown
    recorded_at: float = 0.0
    is_again: bool = False  # the control plane wants to get this record again
    is_kept: bool = False  # the worker keeps its end until the control plane knows it

    def to_json(self, now: float) -> dict[str, Any]:
        held = self.held
        record: dict[str, Any] = {
            "attempt": held.attempt,
            "id": plain(held.id) or "?",
            "name": plain(held.name) or "?",
            "state": self.state,
            "queue": plain(held.queue),
            "retries": max(0, held.retries),
            "held_seconds": round(max(0.0, now - self.since), 3),
        }
        optional = {
            "eta": held.eta and plain(held.eta, 64),
            "root": held.root and plain(held.root),
            "parent": held.parent and plain(held.parent),
            "running_seconds": None if self.started is None else round(max(0.0, now - self.started), 3),
            "args": held.args and plain(held.args, 1000),
            "result": self.result and plain(self.result, 2000),
            "error": self.error,
            "reason": self.reason and plain(self.reason, 1000),
        }
        return record | {name: value for name, value in optional.items() if value is not None}
