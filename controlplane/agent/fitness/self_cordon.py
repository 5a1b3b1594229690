"""The cordon that a worker sets for itself while its machine is not fit for work."""

from __future__ import annotations

import threading
from typing import Any


class SelfCordon:
    """The fields of heartbeats for the cordon that this server sets for itself. Thread safe.

    All heartbeats have them while there is any cause. After that, heartbeats have them until one is answered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fields: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}

    @property
    def fields(self) -> dict[str, Any]:
        """Fields for the next heartbeat."""
        return self._fields

    def cordon(self, reason: str, cause: str = "probe") -> None:
        with self._lock:
            self._reasons[cause] = reason
            self._fields = {"schedulable": False, "reason": reason}

    def lift(self, reason: str, cause: str = "probe") -> None:
        with self._lock:
            self._reasons.pop(cause, None)
            if self._reasons:
                self._fields = {"schedulable": False, "reason": next(iter(self._reasons.values()))}
            elif self._fields:
                self._fields = {"schedulable": True, "reason": reason}

    def record_answer(self, fields: dict[str, Any]) -> None:
        """Record that a heartbeat with these fields was answered."""
        with self._lock:
            if self._fields is fields and fields.get("schedulable"):
                self._fields = {}
