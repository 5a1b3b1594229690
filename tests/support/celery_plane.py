"""A stand-in control plane for many servers. Its responses name the lost holders."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tests.support.standin import ControlPlane, Refuse

LONG_TIMEOUT = 60.0  # seconds, so that no worker of a slow machine is lost
TIMEOUT = 3.0  # seconds of silence, for servers whose silence is the point of a test: see `judge_soon`
ALIVE = ("CREATED", "RUNNING", "MAINTENANCE", "TERMINATING")


class CeleryPlane(ControlPlane):
    """The stand-in. With `older` it refuses `holders` and task records, as older versions do."""

    def __init__(self, timeout: float = LONG_TIMEOUT, *, older: bool = False) -> None:
        super().__init__()
        self.older = older
        self.config = {"heartbeat_interval_seconds": 0.5, "timeout_seconds": timeout}
        self.config["runner_heartbeat_interval_seconds"] = 0.1  # so each heartbeat lists the running jobs
        self.fence_after = 0.8 * timeout
        self.judged_at = time.monotonic()
        self.servers: dict[str, dict[str, Any]] = {}  # by instance
        self.tasks: dict[str, list[dict[str, Any]]] = {}  # by task id, in the order of the records
        self.tally: dict[str, dict[str, float]] = {}

    def server(self, name: str) -> dict[str, Any]:
        """Return the latest server with this name. Raise StopIteration for an unknown name."""
        with self.lock:
            return next(server for server in reversed(self.servers.values()) if server["name"] == name)

    def judge_soon(self, name: str) -> None:
        """Judge this server by TIMEOUT from now on. Its next heartbeat gets the fence for that."""
        with self.lock:
            self.server(f"{name}@host")["judged_after"] = TIMEOUT

    def beats_of(self, name: str) -> int:
        with self.lock:
            return next((server["beats"] for server in self.servers.values() if server["name"] == f"{name}@host"), 0)

    def states_of(self, task: str) -> list[str]:
        with self.lock:
            return [record["state"] for record in self.tasks.get(task, [])]

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        call = path.rpartition("/")[2].partition("?")[0]
        with self.lock:
            self.calls.append((call, body))
            if call in self.script and (scripted := self.script[call](body)) is not None:
                return 200, scripted
            if call == "servers":
                return 201, self._registered(body)
            server = next((one for one in self.servers.values() if one["id"] == path.split("/")[-2]), None)
            if server is None:
                raise Refuse(410, "server_unknown")
            if call == "ended":
                server["state"] = "ERROR"
                return 200, {"state": "ERROR", "attempts": 0}
            if call in ("claims", "reports", "hints"):
                return 200, getattr(self, f"_{call}")(body)
            return 200, self._beat(server, body) if call == "heartbeat" else self._take(body)

    def _registered(self, body: dict[str, Any]) -> dict[str, Any]:
        instance = body["instance_id"]
        if instance not in self.servers:
            self.servers[instance] = {**body, "id": str(uuid.uuid4()), "state": "CREATED", "beats": 0, "answer": {}}
            self.servers[instance]["heard_at"] = time.monotonic()
        server = self.servers[instance]
        self._judge()
        if server["state"] not in ALIVE:
            raise Refuse(409, "server_not_running")
        server["heard_at"] = time.monotonic()
        self.registrations = [server["id"]]
        config = {"termination_grace_period_seconds": 30.0, "worker_task_restart_strategy": "IMMEDIATELY"}
        return {
            "id": server["id"], "token": f"of {server['id']}", "state": server["state"],
            "fence_after_seconds": self.fence_after, "config": config | self.config | body.get("config", {}),
        }  # fmt: skip

    def _judge(self) -> None:
        """Mark silent servers as DISCONNECTED.

        As in the real control plane, only time with heartbeats of any server counts.
        """
        now = time.monotonic()
        unobserved, self.judged_at = max(0.0, now - self.judged_at - 1.0), now
        for server in self.servers.values():
            server["heard_at"] += unobserved
        for server in self.servers.values():
            timeout = server.get("judged_after", self.config["timeout_seconds"])
            if server["state"] in ALIVE and time.monotonic() - server["heard_at"] > timeout:
                server["state"] = "DISCONNECTED"

    def _beat(self, server: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        if self.older and "holders" in body:
            raise Refuse(400, "invalid", errors={"holders": ["Unknown field."]})
        self._judge()
        if server["state"] == "DISCONNECTED" and body.get("state") in ALIVE:
            raise Refuse(409, "server_disconnected")
        server |= {"state": body.get("state") or server["state"], "heard_at": time.monotonic()}
        server |= {"beats": server["beats"] + 1, "body": body}
        answer = self._heartbeat(body) | server["answer"]
        if "judged_after" in server:
            answer["fence_after_seconds"] = 0.8 * server["judged_after"]
        if "holders" in body:
            known = {id: self.servers[id] for id in body["holders"] if id in self.servers}
            answer["forsaken"] = [id for id, one in known.items() if one["state"] not in ALIVE]
            answer["unknown"] = [id for id in body["holders"] if id not in known]
        return answer

    def _take(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.older:
            raise Refuse(404, "not_found")
        for task in body["tasks"]:
            self.tasks.setdefault(task["id"], []).append(task)
        for sums in body.get("tally", []):
            self.tally[sums["name"]] = sums
        return {"cancel": [], "late": []}
