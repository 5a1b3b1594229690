"""Callers of the API that go through all of Django, but use no socket."""

import json
import uuid
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import Any
from urllib.parse import quote

from django.core.signals import setting_changed
from django.dispatch import receiver
from django.http import HttpResponse
from django.test import Client
from django.test.client import ClientHandler

from controlplane.agent.tracing import span_of_submission
from controlplane.serving.callers import Callers
from controlplane.serving.grouped_calls import plain_heartbeat_of, single_job_of
from controlplane.serving.lean_calls import LeanCalls
from controlplane.serving.request import Request
from jobs.api import shortcut, single_jobs


class LeanClientHandler(LeanCalls, ClientHandler):
    """Django handler of the web server."""


@cache
def shared_handler() -> LeanClientHandler:
    """Return the handler of all clients. It loads its middleware again after a change of settings."""
    return LeanClientHandler(enforce_csrf_checks=False)


@receiver(setting_changed)
def make_handler_again(**_: Any) -> None:
    shared_handler.cache_clear()


class ShortClient(Client):
    """Client that handles plain heartbeats without Django, as the web server does, and passes other calls to Django."""

    def __init__(self) -> None:
        super().__init__(raise_request_exception=False, headers={"Host": "testserver"})
        self.handler = shared_handler()

    def request(self, **request: Any) -> Any:
        environ = self._base_environ(**request)
        body = environ["wsgi.input"].read()
        response: Any = short_way(request_of(environ), body)
        if response is None:
            return super().request(**{**request, "wsgi.input": BytesIO(body)})
        response.json = lambda: json.loads(response.content)
        return response


def request_of(environ: dict[str, Any]) -> Request:
    """Return the front's request for a WSGI environ."""
    names = {"CONTENT_TYPE": "content-type"} | {
        name: name.removeprefix("HTTP_").replace("_", "-").lower() for name in environ if name.startswith("HTTP_")
    }
    headers = [(header.encode(), str(environ[name]).encode()) for name, header in names.items() if name in environ]
    query = environ.get("QUERY_STRING", "").encode()
    scope = http_scope(environ["REQUEST_METHOD"], environ["PATH_INFO"], headers=headers, query_string=query)
    return Request(scope, no_body)


def http_scope(method: str, path: str, /, **more: Any) -> dict[str, Any]:
    """Return an ASGI scope as granian makes it."""
    scope = {
        "type": "http", "http_version": "1.1", "server": ("127.0.0.1", "8000"), "client": ("127.0.0.1", "5000"),
        "scheme": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "query_string": b"",
        "headers": [],
    }  # fmt: skip
    return {**scope, **more}


async def no_body() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def short_way(request: Request, body: bytes) -> HttpResponse | None:
    """Return the response to a plain heartbeat or a single job. Return None if Django must handle the call."""
    beat, single = plain_heartbeat_of(request, Callers().call(request), body), single_job_of(request, body)
    try:
        if beat is not None:
            (content,) = shortcut.answers([beat])
        elif single is not None:
            with span_of_submission(single.traceparent) as trace:
                (content,) = single_jobs.answers([single.traced(trace)])
        else:
            return None
    except shortcut.UNHEARD as error:
        return shortcut.unheard(error)
    status = 200 if single is None else 201
    return None if content is None else HttpResponse(content, content_type="application/json", status=status)


@dataclass
class Caller:
    """Caller with a token."""

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
    """Registered worker. Its calls return the body of a 200 response, unless noted otherwise."""

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
        """Read which attempts were taken from this worker, and report that it has stopped them."""
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
        """Claim one job, and start its code if `running`."""
        (attempt,) = self.claim(limit=1)
        if running:
            assert self.start(attempt)["accepted"]
        return attempt
