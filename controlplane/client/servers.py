"""Calls about servers and about the whole instance, for viewers and operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from controlplane.client.answers import Server
from controlplane.client.executions import ExecutionCalls
from controlplane.client.flow_answers import Queue
from controlplane.client.requests import Reference, id_of
from controlplane.client.session import Polls, Refused

DONE_BEFORE = {
    "cordon": "already_cordoned",
    "uncordon": "not_cordoned",
    "drain": "server_draining",
    "undrain": "not_draining",
    "disconnect": "server_not_alive",
    "enter": "already_in_maintenance",
    "exit": "not_in_maintenance",
}
"""Error code of each action if it was already done. The code counts as success if an earlier try of the same call
had no response."""


class ServerCalls(ExecutionCalls):
    def servers(
        self, *, cluster: str | None = None, state: str | None = None, type: str | None = None, tag: str | None = None,
        search: str | None = None, namespace: str | None = None, page: int | None = None,
    ) -> Iterator[Server]:  # fmt: skip
        """Yield servers, latest first, fetched in pages of `page`."""
        filters = {"cluster": cluster, "state": state, "type": type, "tag": tag, "search": search}
        return self.items("/servers", {**filters, "namespace": namespace, "limit": page})

    def server(self, server: Reference) -> Server:
        return cast(Server, self.call("GET", f"/servers/{id_of(server)}"))

    def server_events(self, server: Reference) -> Iterator[dict[str, Any]]:
        """Yield the transitions of a server and the actions on it, oldest first."""
        return self.items(f"/servers/{id_of(server)}/events")

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the events of all subjects with an `id` above `after`, oldest first. With `follow`, do not end."""
        polls = Polls(self.long_poll)
        for asked in polls:
            query = {"after": after} | ({"wait": asked} if follow else {})
            items = self.call("GET", "/events", query=query, wait=asked if follow else 0.0)["items"]
            yield from items
            if not items and not follow:
                return
            polls.progress = bool(items)
            after = items[-1]["id"] if items else after

    def queues(
        self, *, namespace: str | None = None, tag: str | None = None, page: int | None = None
    ) -> Iterator[Queue]:
        """Yield queues by namespace and tags, fetched in pages of `page`."""
        return self.items("/queues", {"namespace": namespace, "tag": tag, "limit": page})

    def cordon(self, server: Reference, note: str, *, duration_seconds: float | None = None) -> Server:
        """Give a server no new work, for `duration_seconds` or until `uncordon`. Its jobs continue."""
        return self._operate(server, "cordon", _with_note(note, {"duration_seconds": duration_seconds}))

    def uncordon(self, server: Reference, note: str) -> Server:
        """Let a server get work again."""
        return self._operate(server, "uncordon", {"note": note})

    def drain(
        self,
        server: Reference,
        note: str,
        deadline_seconds: float | None = None,
        *,
        duration_seconds: float | None = None,
    ) -> Server:
        """Give a server no new work, for `duration_seconds` or until `undrain`, and let it finish its jobs.

        It has `deadline_seconds` to finish them, by default its grace period.
        """
        given = {"deadline_seconds": deadline_seconds, "duration_seconds": duration_seconds}
        return self._operate(server, "drain", _with_note(note, given))

    def undrain(self, server: Reference, note: str) -> Server:
        """End a server's drain and its cordon, so that it gets work again."""
        return self._operate(server, "undrain", {"note": note})

    def disconnect(self, server: Reference, note: str) -> Server:
        """Mark a server as lost."""
        return self._operate(server, "disconnect", {"note": note})

    def instance(self, *, cluster: str | None = None) -> dict[str, Any]:
        """Return the state of the instance or of a cluster: servers, jobs, brakes, maintenance and concerns."""
        return self.call("GET", "/instance", query={"cluster": cluster})

    def enter_maintenance(
        self, note: str, *, cluster: str | None = None, duration_seconds: float | None = None
    ) -> dict[str, Any]:
        """Give servers (of the cluster, if given) no new work, for `duration_seconds` or until `exit_maintenance`."""
        given = {"cluster": cluster, "duration_seconds": duration_seconds}

        def as_it_is() -> dict[str, Any]:
            found = self.instance()
            some = [found["maintenance"]] if cluster is None else found["clusters_in_maintenance"]
            return {"maintenance": next((one for one in some if one and one["cluster"] == cluster), None)}

        return self._once("/maintenance/enter", _with_note(note, given), as_it_is)

    def exit_maintenance(self, note: str, *, cluster: str | None = None) -> dict[str, Any]:
        """End the maintenance, so that servers get work again."""
        return self._once("/maintenance/exit", _with_note(note, {"cluster": cluster}), lambda: {"maintenance": None})

    def release_brake(self, note: str, *, cluster: str | None = None, namespace: str | None = None) -> list[str]:
        """Release brakes, so that the silent servers they hold are disconnected. Return the types of these servers.

        `cluster` and `namespace` limit the brakes.
        """
        given = {"cluster": cluster, "namespace": namespace}
        released: list[str] = self.call("POST", "/brake/release", _with_note(note, given))["released"]
        return released

    def _operate(self, server: Reference, action: str, body: dict[str, Any]) -> Server:
        def as_it_is() -> dict[str, Any]:
            return cast(dict[str, Any], self.server(server))

        return cast(Server, self._once(f"/servers/{id_of(server)}/{action}", body, as_it_is))

    def _once(self, path: str, body: dict[str, Any], as_it_is: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return self.call("POST", path, body)
        except Refused as refused:
            if refused.retried and refused.code == DONE_BEFORE[path.rpartition("/")[2]]:
                return as_it_is()
            raise


def _with_note(note: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"note": note, **{name: value for name, value in given.items() if value is not None}}
