"""Executions for tests."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Caller, Worker

SCRIPT = {"type": "script", "command": "true"}


def step(key: str, *needs: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "action": SCRIPT, "depends_on": list(needs), **fields}


@dataclass
class Run:
    """Execution that is read from the API again at each access."""

    client: Caller
    id: str

    def read(self) -> Any:
        return self.client.get(f"/executions/{self.id}").json()

    @property
    def state(self) -> str:
        return self.read()["state"]

    def states(self) -> dict[str, str]:
        return {step["key"]: step["state"] for step in self.read()["steps"]}

    def step(self, key: str) -> Any:
        answer = self.read()
        hooks = answer["on_error"] + answer["on_success"] + answer["on_complete"]
        return next(step for step in answer["steps"] + hooks if step["key"] == key)

    def events(self) -> list[Any]:
        return self.client.get(f"/executions/{self.id}/steps/_server/logs").json()["items"]

    def cancel(self) -> Any:
        return self.client.post(f"/executions/{self.id}/cancel", {})


@dataclass
class Crew:
    """Worker that runs steps by key: `do("load")`, `do("load", fails=True)`."""

    crew: Worker
    held: dict[str, Any] = field(default_factory=dict)

    def take(self) -> dict[str, Any]:
        """Claim all waiting steps."""
        self.crew.beat()
        while claimed := self.crew.claim(limit=1000):
            self.held.update({attempt["job"]["step"]: attempt for attempt in claimed})
        return self.held

    def __call__(self, *keys: str, fails: bool = False, output: Any = None) -> None:
        if not self.held.keys() >= set(keys):
            self.take()
        failed = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}
        end = failed if fails else {"event": "COMPLETED", "output": output}
        attempts = [self.held.pop(key) for key in keys]
        for first in range(0, len(attempts), 500):
            some = attempts[first : first + 500]
            results = self.crew.report(
                *[{"attempt": attempt["id"], "event": "STARTED"} for attempt in some],
                *[{"attempt": attempt["id"], **end} for attempt in some],
            )
            assert all(result["accepted"] for result in results), results
