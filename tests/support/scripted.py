"""Scripted control plane over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Call:
    method: str
    path: str
    query: dict[str, list[str]]
    body: Any
    headers: dict[str, str]
    connection: int
    """Port of the caller, which identifies the connection."""


@dataclass
class Say:
    """Answer to send. Without an answer the connection is closed."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


def problem(status: int, code: str, detail: str = "no", *, retry_after: str = "", **more: Any) -> Say:
    body = {"type": "about:blank", "title": "no", "status": status, "code": code, "detail": detail, **more}
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Say(status, body, {"Content-Type": "application/problem+json", **headers})


class Scripted:
    """Server with scripted answers.

    `answers[method, path]` is called for each call, with `path` after /api/v1. It may also be a list, whose last item
    is repeated.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: dict[tuple[str, str], list[Say | None] | Callable[[Call], Say | None]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, call: Call) -> Say | None:
        self.calls.append(call)
        reply = self.answers.get((call.method, call.path))
        if reply is None:
            return problem(404, "not_found", f"nothing at {call.method} {call.path}")
        if callable(reply):
            return reply(call)
        return reply.pop(0) if len(reply) > 1 else reply[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def exchange(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                address = urlsplit(self.path.removeprefix("/api/v1"))
                body = json.loads(content) if content else None
                call = Call(
                    self.command,
                    address.path,
                    parse_qs(address.query),
                    body,
                    dict(self.headers),
                    self.client_address[1],
                )
                reply = plane.answer(call)
                if reply is None:
                    self.close_connection = True
                    return
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                data = b"" if reply.status == 204 else data
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = exchange

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
