"""Celery workers as the control plane sees them: their records of tasks, and their questions about holders."""

import uuid
from typing import Any

from liveness.models import Server
from tests.support.http import Worker

TAGS = ["celery:orders", "queue:letters"]


def task(id: str = "t", state: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    """Return a record of a new delivery."""
    return {"attempt": str(uuid.uuid4()), "id": id, "name": "orders.send", "queue": "letters", "state": state, **fields}


def then(before: dict[str, Any], state: str, **fields: Any) -> dict[str, Any]:
    """Return a later record of the same delivery."""
    return {**before, "state": state, **fields}


def quarantined(id: str = "t", **fields: Any) -> dict[str, Any]:
    return task(id, "QUARANTINED", reason="lost 4 times", **fields)


class CeleryWorker(Worker):
    def say(self, *tasks: dict[str, Any], **fields: Any) -> Any:
        answer = self.post(f"/servers/{self.id}/tasks", {"tasks": list(tasks), **fields})
        assert answer.status_code == 200, answer.json()
        return answer.json()

    def asks(self, *holders: str) -> Any:
        return self.beat(holders=list(holders)).json()

    def lose(self, state: str = "ERROR") -> None:
        from tests.integration.liveness.test_transitions import put

        put(Server.objects.get(pk=self.id), state)

    @property
    def instance(self) -> str:
        return str(Server.objects.get(pk=self.id).instance_id)
