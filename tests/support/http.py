"""Callers of the API, through the whole of Django but the socket."""

import json
import uuid
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.test.client import ClientHandler

from controlplane.serving.callers import Callers
from controlplane.serving.front import plain_heartbeat_of
from controlplane.serving.lean_calls import LeanCalls
from jobs.api import shortcut


class LeanClientHandler(LeanCalls, ClientHandler):
    """Django as the web server has it."""


class ShortClient(Client):
    """As the web server calls it: a plain heartbeat goes the short way, and everything else the long way."""

    def __init__(self) -> None:
        super().__init__(raise_request_exception=False, headers={"Host": "testserver"})
        self.handler = LeanClientHandler(enforce_csrf_checks=False)

    def request(self, **request: Any) -> Any:
        environ = self._base_environ(**request)
        body = environ["wsgi.input"].read()
        response: Any = short_way(scope_of(environ), body)
        if response is None:
            return super().request(**{**request, "wsgi.input": BytesIO(body)})
        response.json = lambda: json.loads(response.content)
        return response


def scope_of(environ: dict[str, Any]) -> Any:
    """The request as granian has it."""
    names = {"CONTENT_TYPE": "content-type"} | {
        name: name.removeprefix("HTTP_").replace("_", "-").lower() for name in environ if name.startswith("HTTP_")
    }
    headers = {header: environ[name] for name, header in names.items() if name in environ}
    return SimpleNamespace(
        method=environ["REQUEST_METHOD"], path=environ["PATH_INFO"], client="127.0.0.1:5000", authority=None,
        headers=headers,
    )  # fmt: skip


def short_way(scope: Any, body: bytes) -> HttpResponse | None:
    """What a heartbeat is answered that nobody shares its statement with. None: it goes the long way."""
    if (beat := plain_heartbeat_of(scope, Callers().call(scope), body)) is None:
        return None
    try:
        (content,) = shortcut.answers([beat])
    except shortcut.UNHEARD as error:
        return shortcut.unheard(error)
    return None if content is None else HttpResponse(content, content_type="application/json")


@dataclass
class Caller:
    """Someone with a token."""

    token: str | None
    client: Client = field(default_factory=ShortClient)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return self.client.generic(method, f"/api/v1{path}", content, "application/json", headers=headers)

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, b"", **headers)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        return self.call("POST", path, body, **headers)


@dataclass
class Worker(Caller):
    """A registered worker; its calls return the body of a 200 unless asked for the answer."""

    id: str = ""
    registration: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def register(cls, registrar: Caller, **fields: Any) -> "Worker":
        body = {
            "type": "WORKER",
            "name": "worker-1",
            "instance_id": str(uuid.uuid4()),
            "tags": ["script", "python"],
            "max_concurrent": 10,
            **fields,
        }
        answer = registrar.post("/servers", body)
        assert answer.status_code in (200, 201), answer.json()
        return cls(token=answer.json()["token"], id=answer.json()["id"], registration=answer.json())

    def running(self) -> "Worker":
        assert self.beat(state="RUNNING").status_code == 200
        return self

    def beat(self, **fields: Any) -> Any:
        return self.post(f"/servers/{self.id}/heartbeat", fields)

    def obey(self) -> list[str]:
        """It hears what was taken from it, and says that it has stopped that."""
        lost = self.beat(stopped=[]).json()["lost"]
        assert self.beat(stopped=lost).json()["lost"] == []
        return lost

    def claim(self, limit: int = 10, **fields: Any) -> list[dict[str, Any]]:
        answer = self.post(f"/servers/{self.id}/claims", {"limit": limit, **fields})
        assert answer.status_code == 200, answer.json()
        return answer.json()["attempts"]

    def report(self, *reports: dict[str, Any]) -> list[dict[str, Any]]:
        answer = self.post(f"/servers/{self.id}/reports", {"reports": reports})
        assert answer.status_code == 200, answer.json()
        return answer.json()["results"]

    def start(self, attempt: dict[str, Any]) -> dict[str, Any]:
        return self.report({"attempt": attempt["id"], "event": "STARTED"})[0]

    def complete(self, attempt: dict[str, Any], output: Any = None) -> dict[str, Any]:
        return self.report({"attempt": attempt["id"], "event": "COMPLETED", "output": output})[0]

    def hold(self, *, running: bool = True) -> dict[str, Any]:
        """Claim one job, and begin its code unless told not to."""
        (attempt,) = self.claim(limit=1)
        if running:
            assert self.start(attempt)["accepted"]
        return attempt
