"""Request that the front reads from ASGI and passes to Django by WSGI.

The front decides by the same values that Django will see. So no odd spelling of a header, a cookie or a method can make
a call look like a call of another caller.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from django.conf import settings

from controlplane.core.addresses import client_address, network
from controlplane.core.problems import Problem
from controlplane.serving.answers import Environ

PROBES = ("/livez", "/readyz", "/healthz")
HEADERS_LIMIT = 100
HEAD_BYTES_LIMIT = 64 * 1024

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class HeadersTooLarge(Problem):
    """The request has more than 100 headers, or more than 64 KiB of them. Send fewer or shorter headers."""

    status = 431
    code = "headers_too_large"


class HttpVersionRefused(Problem):
    """The control plane serves HTTP/1.1 and HTTP/1.0. Start the web process with `granian --http 1`."""

    status = 505
    code = "http_version_refused"


class Request:
    """Head of a request, and the channel on which its body arrives.

    Raise HeadersTooLarge or HttpVersionRefused.
    """

    def __init__(self, scope: Message, receive: Receive) -> None:
        if not scope["http_version"].startswith("1"):
            raise HttpVersionRefused
        raw_path = scope.get("raw_path") or scope["path"].encode()
        sizes = [len(name) + len(value) for name, value in scope["headers"]]
        if len(sizes) > HEADERS_LIMIT or sum(sizes) + len(raw_path) + len(scope["query_string"]) > HEAD_BYTES_LIMIT:
            raise HeadersTooLarge
        self.receive = receive
        self.method: str = scope["method"].upper()  # Django reads `post` as POST
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        self.by_name = join_headers(self.headers)
        self._scope, self._raw_path = scope, raw_path
        self._disconnect: asyncio.Future[None] | None = None

    @property
    def peer(self) -> str:
        """Return the address at the other end of the connection; empty on a Unix socket."""
        return (self._scope.get("client") or ("",))[0]

    @cached_property
    def caller(self) -> str:
        """Return the address under which a call counts for limits. A trusted proxy sends this address in a header."""
        forwarded = self.by_name.get("x-forwarded-for", "") if settings.BEHIND_TLS else ""
        return network(client_address(self.peer, forwarded))

    async def disconnected(self) -> None:
        """Return when the client has closed its connection. The body must have been read before."""
        if self._disconnect is None:
            self._disconnect = asyncio.ensure_future(self._wait_for_disconnect())
        await asyncio.shield(self._disconnect)

    def close(self) -> None:
        """Stop waiting for a disconnect."""
        if self._disconnect is not None:
            self._disconnect.cancel()

    async def _wait_for_disconnect(self) -> None:
        with suppress(asyncio.CancelledError):
            while (await self.receive())["type"] != "http.disconnect":
                pass

    def environ(self, body: bytes) -> Environ:
        """Return the request in the form of WSGI."""
        host, port = (self._scope.get("server") or ("", None))[:2]
        environ: Environ = {
            "REQUEST_METHOD": self.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(self._raw_path).decode("latin-1"),
            "QUERY_STRING": self.query,
            "SERVER_NAME": host,
            "SERVER_PORT": str(port or ""),
            "SERVER_PROTOCOL": f"HTTP/{self._scope['http_version']}",
            "REMOTE_ADDR": self.peer,
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.url_scheme": self._scope["scheme"],
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "wsgi.input": BytesIO(body),
        }
        # In WSGI a header name with an underscore looks like the same name with a hyphen, so it is dropped.
        environ |= {
            "HTTP_" + name.upper().replace("-", "_"): value for name, value in self.by_name.items() if "_" not in name
        }
        if (kind := environ.pop("HTTP_CONTENT_TYPE", None)) is not None:
            environ["CONTENT_TYPE"] = kind
        environ.pop("HTTP_CONTENT_LENGTH", None)
        if body:
            environ["CONTENT_LENGTH"] = str(len(body))
        return environ


def join_headers(headers: list[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by name. The values of a repeated header are joined, as in HTTP."""
    joined: dict[str, list[str]] = {}
    for name, value in headers:
        joined.setdefault(name, []).append(value)
    return {name: (";" if name == "cookie" else ",").join(values) for name, values in joined.items()}
